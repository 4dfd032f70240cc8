#include "tools/lull/installed.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace lull::command {

Installed installed() {
  std::error_code ignored;
  const std::filesystem::path exe = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path bin = exe.parent_path();
  const std::filesystem::path lib = bin.parent_path() / "lib" / "lull";
  return {bin.string(), (lib / "liblull.so").string(), (lib / "sim").string()};
}

std::string default_sim_device() {
  if (const char* told = std::getenv("SIMGPU_DEVICE"); told && *told) return told;
  return fmt::format("/dev/shm/simgpu-{}", getuid());
}

std::expected<std::string, int> find_program(const std::string& name, const std::string& path) {
  const auto look = [](const std::string& file) -> int {
    struct stat about;
    if (stat(file.c_str(), &about) != 0) return errno == ENOTDIR ? ENOENT : errno;
    if (!S_ISREG(about.st_mode)) return EACCES;
    return access(file.c_str(), X_OK) == 0 ? 0 : EACCES;
  };
  if (name.empty()) return std::unexpected(ENOENT);
  if (name.find('/') != std::string::npos) {
    if (const int error = look(name)) return std::unexpected(error);
    return name;
  }
  int worst = ENOENT;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? std::string(".") : folder) + "/" + name;
    const int error = look(file);
    if (error == 0) return file;
    if (error == EACCES) worst = EACCES;
  }
  return std::unexpected(worst);
}

}  // namespace lull::command
