// stat(2) and fstat(2) by system call. As functions they came with glibc 2.33, newer than what the
// shim may ask for. Any thread; errors as the functions report them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lull::channel {

// Follows symbolic links. False: `errno` says why.
inline bool file_status(const char* path, struct stat& status) {
  return syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0;
}
inline bool file_status(int descriptor, struct stat& status) {
  return syscall(SYS_fstat, descriptor, &status) == 0;
}

}  // namespace lull::channel
