// A connection that is no client's: before its first packet, and then a tool's with its reply on
// the way. The reply goes in packets of at most kReplyChunkBytes, as fast as the tool reads;
// nothing here blocks. Loop thread.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/daemon/file_descriptor.h"
#include "coordinator/daemon/priority_rules.h"

namespace lull::daemon {

class ToolConnection {
 public:
  ToolConnection(FileDescriptor socket, Peer peer, uint64_t since_ns)
      : socket_(std::move(socket)), peer_(std::move(peer)), since_ns_(since_ns) {}

  int socket() const { return socket_.get(); }
  const Peer& peer() const { return peer_; }
  uint64_t since_ns() const { return since_ns_; }
  FileDescriptor take_socket() { return std::move(socket_); }

  void set_reply(std::string reply) {
    reply_ = std::move(reply);
    replying_ = true;
  }
  bool is_replying() const { return replying_; }
  // False: everything is sent or the tool has gone, close the connection. True: more when the
  // socket can be written to again.
  bool send_more();

 private:
  FileDescriptor socket_;
  Peer peer_;
  uint64_t since_ns_;
  std::string reply_;
  size_t sent_ = 0;
  bool replying_ = false;
};

}  // namespace lull::daemon
