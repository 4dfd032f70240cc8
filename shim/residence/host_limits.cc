#include "shim/residence/host_limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/system.h"

namespace lull::shim {

namespace {

constexpr size_t kPathBytes = 4096;
constexpr size_t kFileBytes = 16384;
// Deeper ones are not looked at.
constexpr int kMostLevels = 64;

// False: no such file, or none that can be read.
bool read_file(const char* path, char (&text)[kFileBytes]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  size_t length = 0;
  for (ssize_t got;
       length < sizeof text - 1 && (got = read(fd, text + length, sizeof text - 1 - length)) > 0;) {
    length += static_cast<size_t>(got);
  }
  close(fd);
  text[length] = '\0';
  return length != 0;
}

// The first number in `text`. UINT64_MAX: "max", or none.
uint64_t number(const char* text) {
  while (*text == ' ' || *text == '\t' || *text == ':') ++text;
  if (*text < '0' || *text > '9') return UINT64_MAX;
  uint64_t value = 0;
  for (; *text >= '0' && *text <= '9'; ++text)
    value = value * 10 + static_cast<uint64_t>(*text - '0');
  return value;
}

// The number behind the line that begins with `key`; 0: none.
uint64_t field(const char* text, const char* key) {
  const size_t length = strlen(key);
  for (const char* line = text; line != nullptr; line = strchr(line, '\n')) {
    if (*line == '\n') ++line;
    if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == ':')) {
      const uint64_t value = number(line + length);
      return value == UINT64_MAX ? 0 : value;
    }
  }
  return 0;
}

// The process's path in the hierarchy whose line in /proc/self/cgroup has `controllers`; false:
// none.
bool cgroup_path(const char* text, const char* controller, char (&path)[kPathBytes]) {
  for (const char* line = text; line != nullptr && *line != '\0';) {
    const char* end = strchr(line, '\n');
    const size_t length = end != nullptr ? static_cast<size_t>(end - line) : strlen(line);
    const auto* first = static_cast<const char*>(memchr(line, ':', length));
    const char* second = first == nullptr
                             ? nullptr
                             : static_cast<const char*>(memchr(
                                   first + 1, ':', length - static_cast<size_t>(first + 1 - line)));
    if (second != nullptr) {
      bool ours = *controller == '\0' && second == first + 1;
      const size_t wanted = strlen(controller);
      for (const char* at = first + 1; wanted != 0 && at < second;) {
        const char* comma =
            static_cast<const char*>(memchr(at, ',', static_cast<size_t>(second - at)));
        const char* stop = comma != nullptr ? comma : second;
        ours = ours ||
               (static_cast<size_t>(stop - at) == wanted && memcmp(at, controller, wanted) == 0);
        at = stop + 1;
      }
      if (ours) {
        const size_t size =
            std::min(length - static_cast<size_t>(second + 1 - line), kPathBytes - 1);
        memcpy(path, second + 1, size);
        path[size] = '\0';
        return true;
      }
    }
    line = end != nullptr ? end + 1 : nullptr;
  }
  return false;
}

struct Names {
  const char* limit;
  const char* used;
  const char* idle;  // in memory.stat: files that nobody has used lately, which go at once
};

// The least that any level from `path` up to the root of the hierarchy has left.
uint64_t left_in(const char* root, char (&path)[kPathBytes], const Names& names) {
  uint64_t least = UINT64_MAX;
  for (int level = 0; level < kMostLevels; ++level) {
    char file[2 * kPathBytes];
    char text[kFileBytes];
    const auto read_one = [&](const char* name) {
      snprintf(file, sizeof file, "%s%s/%s", root, strcmp(path, "/") == 0 ? "" : path, name);
      return read_file(file, text);
    };
    if (read_one(names.limit)) {
      const uint64_t limit = number(text);
      if (limit != UINT64_MAX && read_one(names.used)) {
        uint64_t used = number(text);
        const uint64_t idle = read_one("memory.stat") ? field(text, names.idle) : 0;
        used = used > idle ? used - idle : 0;
        least = std::min(least, limit > used ? limit - used : 0);
      }
    }
    char* slash = strrchr(path, '/');
    if (slash == nullptr || path[1] == '\0') break;
    // The root itself last.
    if (slash == path) ++slash;
    *slash = '\0';
  }
  return least;
}

uint64_t left_in_cgroups(const char* proc, const char* cgroups) {
  char file[kPathBytes];
  char text[kFileBytes];
  snprintf(file, sizeof file, "%s/self/cgroup", proc);
  if (!read_file(file, text)) return UINT64_MAX;
  char path[kPathBytes];
  uint64_t least = UINT64_MAX;
  if (cgroup_path(text, "", path)) {
    least = left_in(cgroups, path, {"memory.max", "memory.current", "inactive_file"});
  }
  if (cgroup_path(text, "memory", path)) {
    char root[kPathBytes];
    snprintf(root, sizeof root, "%s/memory", cgroups);
    least = std::min(
        least, left_in(root, path,
                       {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}));
  }
  return least;
}

}  // namespace

uint64_t host_reserve_bytes(uint64_t total_bytes) {
  return std::max<uint64_t>(total_bytes / 10, uint64_t{1} << 30);
}

HostRoom host_room(const char* proc, const char* cgroups) {
  KeepErrno keep;
  char file[kPathBytes];
  char text[kFileBytes];
  HostRoom room{UINT64_MAX, 0, HostBound::kNone};
  snprintf(file, sizeof file, "%s/meminfo", proc);
  if (read_file(file, text)) {
    const uint64_t available = field(text, "MemAvailable") << 10;
    const uint64_t reserve = host_reserve_bytes(field(text, "MemTotal") << 10);
    room.left_bytes = available > reserve ? available - reserve : 0;
    room.bound = HostBound::kMachine;
    const uint64_t free_pages = field(text, "HugePages_Free");
    const uint64_t promised = field(text, "HugePages_Rsvd");
    if (field(text, "Hugepagesize") == 2048 && free_pages > promised) {
      room.reserved_huge_bytes = (free_pages - promised) << 21;
    }
  }
  const uint64_t left = left_in_cgroups(proc, cgroups);
  if (left < room.left_bytes) {
    room.left_bytes = left;
    room.bound = HostBound::kCgroup;
  }
  return room;
}

}  // namespace lull::shim
