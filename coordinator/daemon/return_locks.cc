#include "coordinator/daemon/return_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {

std::string return_lock_path(const std::string& socket_path, const DeviceUuid& uuid) {
  const std::filesystem::path directory = std::filesystem::path(socket_path).parent_path();
  return ((directory.empty() ? "." : directory) / fmt::format("return-{}.lock", uuid_text(uuid)))
      .string();
}

std::expected<void, std::string> make_return_lock(const std::string& path) {
  const auto cannot = [&](const std::string& why) {
    return std::unexpected(
        fmt::format("cannot make {}: {}: without a coordinator, programs return to that GPU "
                    "without waiting for each "
                    "other: choose a --socket in a directory of its own",
                    path, why));
  };
  const FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!file) return cannot(strerror(errno));
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return cannot(strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1) return cannot("there is something else");
  // Apart, because the umask takes bits off.
  if (info.st_uid == ::geteuid() && (info.st_mode & 0777) != 0666) ::fchmod(file.get(), 0666);
  return {};
}

}  // namespace lull::daemon
