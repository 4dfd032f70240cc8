// The facts on which trust.h decides, as they are now: looks at files and /proc, changes nothing.
// Any thread; leaves errno changed, opens descriptors for a moment only, never blocks on a peer.
#pragma once

#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coordinator/channel/file_status.h"
#include "coordinator/channel/trust.h"

namespace lull::channel {

inline constexpr char kSystemDirectory[] = "/run/lull";

inline FileFacts file_facts(const char* path) {
  struct stat status;
  if (!file_status(path, status)) return {};
  return {true, status.st_uid, status.st_mode};
}

namespace facts {

// The first bytes of a file of /proc as a string; empty when it cannot be read.
template <size_t N>
inline void read_text(const char* path, char (&text)[N]) {
  text[0] = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = read(fd, text, N - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
}

// By hand: newer C libraries give strtoul another symbol version.
inline bool take_number(const char*& text, uint64_t& number) {
  while (*text == ' ') ++text;
  if (*text < '0' || *text > '9') return false;
  for (number = 0; *text >= '0' && *text <= '9'; ++text) {
    number = number * 10 + static_cast<uint64_t>(*text - '0');
  }
  return true;
}

// A mount of its own, as `docker run -v DIR:DIR:ro` makes it, not a part of a larger one.
// Linux 5.8.
inline bool is_mount(const char* path) {
  struct statx status;
  if (syscall(SYS_statx, AT_FDCWD, path, 0, 0, &status) != 0) return false;
  return (status.stx_attributes & status.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
}
// FUSE: what any user may mount where the helper is installed.
inline bool is_read_only(const char* path) {
  struct statfs system;
  return statfs(path, &system) == 0 && (system.f_flags & ST_RDONLY) != 0 &&
         system.f_type != FUSE_SUPER_MAGIC;
}

}  // namespace facts

inline TrustFacts trust_facts(const char* socket_path) {
  TrustFacts known;
  known.own_uid = geteuid();
  char text[128];
  facts::read_text("/proc/sys/kernel/overflowuid", text);
  const char* at = text;
  uint64_t number;
  if (facts::take_number(at, number)) known.overflow_uid = static_cast<uint32_t>(number);
  // Without /proc the numbers are not known to be users.
  facts::read_text("/proc/self/uid_map", text);
  at = text;
  uint64_t map[3] = {};
  const bool map_known = facts::take_number(at, map[0]) && facts::take_number(at, map[1]) &&
                         facts::take_number(at, map[2]);
  known.in_user_namespace = !map_known || map[0] != 0 || map[1] != 0 || map[2] != UINT32_MAX;

  char directory[256];  // a socket's path is shorter
  const char* slash = strrchr(socket_path, '/');
  const size_t length = slash == nullptr ? 0 : static_cast<size_t>(slash - socket_path);
  if (length >= sizeof directory) return known;
  memcpy(directory, socket_path, length);
  directory[length] = '\0';
  if (length == 0) strcpy(directory, slash == nullptr ? "." : "/");

  known.run = file_facts("/run");
  known.service = file_facts(kSystemDirectory);
  known.directory = file_facts(directory);
  known.socket = file_facts(socket_path);
  // Read-only in here, a directory for all (/tmp) still takes a stranger's socket from outside.
  const bool for_all = (known.directory.mode & trust::kWritableByOthers) != 0;
  known.operators_mount =
      map_known && known.in_user_namespace && facts::is_read_only(socket_path) &&
      (facts::is_mount(socket_path) || (facts::is_mount(directory) && !for_all));
  return known;
}

// Of a connected socket. An answer of kPeer also where the kernel does not say who is there.
inline Distrust judge_connection(const TrustFacts& known, int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return Distrust::kPeer;
  return judge_peer(known, peer.uid);
}

}  // namespace lull::channel
