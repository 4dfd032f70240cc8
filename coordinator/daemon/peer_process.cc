#include "coordinator/daemon/peer_process.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lull::daemon {
namespace {

#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;  // <asm-generic/socket.h> of Linux 6.5
#endif
constexpr size_t kStatusBytes = 4096;

}  // namespace

FileDescriptor peer_pidfd(int socket, const Peer& peer) {
  int pidfd = -1;
  socklen_t bytes = sizeof pidfd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &bytes) == 0) {
    return FileDescriptor(pidfd);
  }
  // An older kernel. Otherwise the process is gone, and its pid may be another's by now.
  if (errno != ENOPROTOOPT || peer.pid <= 0) return {};
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

pid_t pid_in_its_namespace(const Peer& peer, const FileDescriptor& pidfd) {
  if (peer.pid <= 0 || !pidfd) return 0;
  const FileDescriptor file(
      ::open(fmt::format("/proc/{}/status", peer.pid).c_str(), O_RDONLY | O_CLOEXEC));
  char text[kStatusBytes];
  const ssize_t got = file ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (got <= 0) return 0;
  text[got] = '\0';
  // Still alive after that: the file was its own.
  pollfd ended{pidfd.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0 ? innermost_pid(text) : 0;
}

pid_t innermost_pid(const char* status) {
  const char* line = strstr(status, "\nNSpid:");
  if (line == nullptr) return 0;
  line += strlen("\nNSpid:");
  long last = 0;
  for (;;) {
    while (*line == '\t' || *line == ' ') ++line;
    if (*line < '0' || *line > '9') return static_cast<pid_t>(last);
    char* end = nullptr;
    last = strtol(line, &end, 10);
    line = end;
  }
}

}  // namespace lull::daemon
