// The daemon's Unix socket: where it is, who else has it, and what is left of a dead daemon.
//
//   <socket>        SOCK_SEQPACKET, non-blocking
//   <socket>.lock   held by flock for as long as the daemon lives; says its pid
//
// A second daemon on the same socket is refused; a socket that nobody answers on is replaced. Where the
// socket is by default: coordinator/channel/socket_place.h.
// Both files are removed when the listener goes. Start-up and loop thread.
#pragma once

#include <sys/types.h>

#include <expected>
#include <optional>
#include <string>

#include "coordinator/daemon/file_descriptor.h"
#include "coordinator/daemon/priority_rules.h"

namespace lull::daemon {

class Listener {
 public:
  // Errors are one line. Makes the directory when the path is the default one.
  static std::expected<Listener, std::string> open(const std::string& path, mode_t mode,
                                                   std::optional<gid_t> group);
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = default;
  ~Listener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  // One waiting connection, non-blocking and close-on-exec; nothing when none waits.
  FileDescriptor accept() const;
  // Applies other permissions to the socket.
  std::expected<void, std::string> set_access(mode_t mode, std::optional<gid_t> group) const;

 private:
  Listener() = default;
  std::string path_;
  FileDescriptor lock_;
  FileDescriptor socket_;
};

// Who is at the other end; nothing when the kernel does not say.
std::optional<Peer> peer_of(int socket);

}  // namespace lull::daemon
