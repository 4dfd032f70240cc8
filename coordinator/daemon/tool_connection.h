// A connection that is no client's. Nothing here blocks. Loop thread.
//
//   silent --its first packet is a request, left in the socket--> asking --its turn has come-->
//   being answered --> replying: in packets of at most kReplyChunkBytes, as fast as the tool reads
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

  enum class State : uint8_t { kSilent, kAsking, kBeingAnswered, kReplying };
  State state() const { return state_; }
  void set_state(State state) { state_ = state; }
  void set_reply(std::string reply) {
    reply_ = std::move(reply);
    state_ = State::kReplying;
  }
  // Of the reply: bytes that the tool has not taken yet.
  size_t unread_bytes() const { return reply_.size() - sent_; }
  // False: everything is sent or the tool has gone, close the connection. True: more when the
  // socket can be written to again.
  bool send_more();

 private:
  FileDescriptor socket_;
  Peer peer_;
  uint64_t since_ns_;
  std::string reply_;
  size_t sent_ = 0;
  State state_ = State::kSilent;
};

}  // namespace lull::daemon
