#include "coordinator/daemon/profile_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {
namespace {

constexpr std::string_view kSuffix = ".json";
constexpr size_t kNameChars = 60;

struct File {
  std::string name;
  int64_t written_ns = 0;  // wall clock
  uint64_t bytes = 0;
};

uint64_t hash_of(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  return hash;
}

// Tasks begin with "UID/", and so do their files' names (ProfileStore::file_name).
std::string user_of(const std::string& name) { return name.substr(0, name.find('_')); }

std::expected<void, std::string> make_directories(const std::string& path) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      return std::unexpected(fmt::format("cannot make {}: {}", part, strerror(errno)));
    }
  }
  return {};
}

// Nothing for a file that is not there; links are not followed.
std::expected<std::optional<std::string>, std::string> read_file(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status;
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    return std::unexpected(std::string(strerror(errno)));
  }
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::unexpected("it is no ordinary file");
  }
  if (static_cast<uint64_t>(status.st_size) > engine::kMaxTaskRecordBytes) {
    return std::unexpected("it is too long");
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

std::vector<File> files_in(const std::string& directory) {
  std::vector<File> files;
  DIR* folder = directory.empty() ? nullptr : ::opendir(directory.c_str());
  if (folder == nullptr) return files;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.starts_with('.') || !name.ends_with(kSuffix)) continue;
    struct stat status;
    if (::lstat((directory + "/" + name).c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    files.push_back({name, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
                     static_cast<uint64_t>(status.st_size)});
  }
  ::closedir(folder);
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.name < b.name; });
  return files;
}

}  // namespace

std::string default_profile_directory() {
  const auto named = [](const char* variable) -> std::string {
    const char* value = ::getenv(variable);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  // systemd may name several, with colons between.
  if (std::string state = named("STATE_DIRECTORY"); !state.empty()) {
    return state.substr(0, state.find(':')) + "/profiles";
  }
  if (const std::string state = named("XDG_STATE_HOME"); !state.empty()) {
    return state + "/lull/profiles";
  }
  const std::string home = named("HOME");
  return home.empty() ? "" : home + "/.local/state/lull/profiles";
}

bool names_task(const std::string& recorded, const std::string& task) {
  if (recorded == task) return true;
  const size_t slash = recorded.find('/');
  return slash != std::string::npos && recorded.compare(slash + 1, std::string::npos, task) == 0;
}

std::string ProfileStore::file_name(const std::string& task, const std::string& gpu) {
  std::string name;
  for (const char c : task + "@" + gpu) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '@';
    name += plain ? c : '_';
    if (name.size() >= kNameChars) break;
  }
  if (name.starts_with('.')) name[0] = '_';
  // Different tasks may look the same so far.
  return fmt::format("{}-{:016x}{}", name, hash_of(task + "\n" + gpu), kSuffix);
}

std::expected<void, std::string> ProfileStore::save(const engine::TaskRecord& record) {
  if (!is_on()) return {};
  const auto failed = [&](const std::string& why) {
    return std::unexpected(fmt::format(
        "cannot keep the profile of {} in {}: {}: make room there or name another directory with "
        "profiles in the configuration",
        record.task, directory_, why));
  };
  if (const auto made = make_directories(directory_); !made) return failed(made.error());
  const std::string text = engine::write_task_record(record);
  if (text.size() > engine::kMaxTaskRecordBytes) return failed("it is too long");
  const std::string path = directory_ + "/" + file_name(record.task, record.gpu);
  const std::string fresh = fmt::format("{}.{}.tmp", path, ::getpid());
  {
    FileDescriptor file(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return failed(strerror(errno));
    size_t done = 0;
    int error = 0;
    while (done < text.size() && error == 0) {
      const ssize_t put = ::write(file.get(), text.data() + done, text.size() - done);
      if (put >= 0) {
        done += static_cast<size_t>(put);
      } else if (errno != EINTR) {
        error = errno;
      }
    }
    // Not synchronised: the daemon's loop is here, and a disk may take seconds. What a machine that
    // goes down leaves of it is whole, old, or put aside by `load`.
    if (error != 0) {
      ::unlink(fresh.c_str());
      return failed(strerror(error));
    }
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(fresh.c_str());
    return failed(strerror(error));
  }
  make_room();
  return {};
}

void ProfileStore::make_room() const {
  std::vector<File> files = files_in(directory_);
  if (files.size() <= kMostFiles) return;
  std::stable_sort(files.begin(), files.end(),
                   [](const File& a, const File& b) { return a.written_ns < b.written_ns; });
  std::map<std::string, size_t> users;
  for (const File& file : files) ++users[user_of(file.name)];
  for (size_t excess = files.size() - kMostFiles; excess > 0; --excess) {
    const size_t most = std::ranges::max(users | std::views::values);
    const auto oldest =
        std::ranges::find(files, most, [&](const File& f) { return users[user_of(f.name)]; });
    ::unlink((directory_ + "/" + oldest->name).c_str());
    --users[user_of(oldest->name)];
    files.erase(oldest);
  }
}

std::expected<std::optional<ProfileStore::Kept>, std::string> ProfileStore::load(
    const std::string& task, const std::string& gpu) {
  if (!is_on()) return std::nullopt;
  const std::string path = directory_ + "/" + file_name(task, gpu);
  auto text = read_file(path);
  std::string why;
  if (!text) {
    why = text.error();
  } else if (!*text) {
    return std::nullopt;
  } else {
    auto record = engine::read_task_record(**text);
    if (record && record->task == task && record->gpu == gpu) {
      return Kept{std::move(**text), std::move(*record)};
    }
    why = record ? "it is of another task" : record.error();
  }
  const std::string aside = path + (why.find("newer") != std::string::npos ? ".newer" : ".bad");
  const bool moved = ::rename(path.c_str(), aside.c_str()) == 0;
  return std::unexpected(fmt::format("cannot use the profile {}: {}: {}, and it is learnt anew", path,
                                     why, moved ? "it is now " + aside : "it stays"));
}

std::vector<ProfileStore::Entry> ProfileStore::list() const {
  std::vector<Entry> entries;
  for (const File& file : files_in(directory_)) {
    const auto text = read_file(directory_ + "/" + file.name);
    if (!text || !*text) continue;
    const auto record = engine::read_task_record(**text);
    if (!record) continue;
    Entry entry{file.name, record->task,  record->gpu, record->kernels.size(),
                0,         file.bytes, file.written_ns / 1'000'000'000};
    for (const auto& kernel : record->kernels) entry.samples += kernel.saved.count;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.task != b.task ? a.task < b.task : a.gpu < b.gpu;
  });
  return entries;
}

std::vector<engine::TaskRecord> ProfileStore::find(const std::string& task) const {
  std::vector<engine::TaskRecord> found;
  for (const File& file : files_in(directory_)) {
    const auto text = read_file(directory_ + "/" + file.name);
    if (!text || !*text) continue;
    auto record = engine::read_task_record(**text);
    if (record && names_task(record->task, task)) found.push_back(std::move(*record));
  }
  return found;
}

std::expected<size_t, std::string> ProfileStore::forget(const std::string& task,
                                                        const std::string& only_prefix) {
  size_t gone = 0;
  for (const Entry& entry : list()) {
    if (!names_task(entry.task, task) || !entry.task.starts_with(only_prefix)) continue;
    if (::unlink((directory_ + "/" + entry.file).c_str()) != 0) {
      return std::unexpected(
          fmt::format("cannot remove {}/{}: {}", directory_, entry.file, strerror(errno)));
    }
    gone += 1;
  }
  return gone;
}

}  // namespace lull::daemon
