#include "coordinator/daemon/service_notice.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {

void notify_service(std::string_view state) {
  const char* path = ::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if (length >= sizeof address.sun_path) return;
  memcpy(address.sun_path, path, length);
  // '@' stands for the NUL that begins an abstract name.
  if (path[0] == '@') address.sun_path[0] = '\0';
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

uint64_t watchdog_interval_ns() {
  const char* pid = ::getenv("WATCHDOG_PID");
  if (pid != nullptr && strtol(pid, nullptr, 10) != ::getpid()) return 0;
  const char* microseconds = ::getenv("WATCHDOG_USEC");
  if (microseconds == nullptr) return 0;
  return strtoull(microseconds, nullptr, 10) * 1000 / 2;
}

}  // namespace lull::daemon
