// A client's region as memory: how a coordinator makes it, and what a client looks at before it
// maps what it was given. Any thread.
//
// Why an access to a mapped region never faults, whatever happens to the descriptor afterwards:
//   - F_SEAL_SHRINK: no page lies beyond the end of the file, now or ever. Seals cannot be taken
//   off,
//     and they are read back before the size is, so no shrinking comes between the two.
//   - Every page was allocated before the mapping was made: none has to be found at an access.
//   - Pages of the ordinary size only: those of hugetlbfs come from a pool that can be empty.
//   - A mapping stands for its file: closing the descriptor, or the other side's end, changes
//   nothing.
// The one thing left to who holds the descriptor is to punch a hole, which reads as zeroes and
// needs memory when it is next written to; only a trusted coordinator (trust.h) has ever held it.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "coordinator/channel/file_status.h"

namespace lull::channel {

inline constexpr int kRegionSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A descriptor, close-on-exec, of `bytes` of zeroes. -1: `failed` names the call, errno says why.
inline int make_sealed_memory(const char* name, size_t bytes, const char*& failed) {
  failed = "memfd_create";
  const int fd = static_cast<int>(syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) return -1;
  failed = "ftruncate";
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    failed = "fallocate";
    if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) {
      failed = "fcntl(F_ADD_SEALS)";
      if (fcntl(fd, F_ADD_SEALS, kRegionSeals) == 0) return fd;
    }
  }
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

// True: `bytes` of it can be mapped and never fault.
inline bool is_sealed_memory(int fd, size_t bytes) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kRegionSeals) != kRegionSeals) return false;
  struct statfs system;
  struct stat status;
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) return false;
  constexpr off_t kBlockBytes = 512;  // of st_blocks, on every file system
  return file_status(fd, status) && status.st_size >= static_cast<off_t>(bytes) &&
         status.st_blocks >= static_cast<off_t>(bytes) / kBlockBytes;
}

}  // namespace lull::channel
