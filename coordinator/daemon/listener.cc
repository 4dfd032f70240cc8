#include "coordinator/daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>

#include "coordinator/channel/socket_place.h"

namespace lull::daemon {
namespace {

constexpr int kBacklog = 256;
constexpr int kLockAttempts = 8;

std::string dir_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::unexpected<std::string> cannot(const std::string& path, const std::string& why,
                                    const std::string& what_to_do) {
  return std::unexpected(fmt::format("cannot listen on {}: {}: {}", path, why, what_to_do));
}

// The directory of a default place is made when missing: root's for every user to reach. One in
// which others could put a socket of theirs is refused, as this user's own programs would refuse
// it.
std::expected<void, std::string> prepare_directory(const std::string& path) {
  const std::string dir = dir_of(path);
  const channel::SocketPlace place = channel::socket_place();
  if (place.place != channel::Place::kNamed && path == place.path) {
    const bool system = place.place == channel::Place::kSystem;
    // Apart, because the umask takes bits off.
    if (::mkdir(dir.c_str(), 0700) == 0) {
      if (system) ::chmod(dir.c_str(), 0755);
    } else if (errno != EEXIST) {
      return cannot(path, fmt::format("{} cannot be made: {}", dir, strerror(errno)),
                    "make that directory or choose another --socket");
    }
  }
  struct stat info;
  if (::stat(dir.c_str(), &info) != 0) {
    return cannot(path, fmt::format("{}: {}", dir, strerror(errno)),
                  "make that directory or choose another --socket");
  }
  if (channel::judge_place(channel::trust_facts(path.c_str())) != channel::Distrust::kNone) {
    return cannot(path, fmt::format("{} does not belong to this user alone", dir),
                  "take write permission from group and others or choose another --socket");
  }
  return {};
}

// Takes the lock file, also against a daemon that is just removing it.
std::expected<FileDescriptor, std::string> take_lock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    FileDescriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!lock) {
      return cannot(path, fmt::format("{}: {}", lock_path, strerror(errno)),
                    "choose a --socket in a directory that can be written");
    }
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      char pid[32] = {};
      const ssize_t got = ::pread(lock.get(), pid, sizeof pid - 1, 0);
      pid[got > 0 ? strcspn(pid, "\n") : 0] = '\0';
      return cannot(path,
                    pid[0] != '\0' ? fmt::format("another lulld (pid {}) has it", pid)
                                   : std::string("another lulld has it"),
                    "stop that one or choose another --socket");
    }
    struct stat mine, named;
    if (::fstat(lock.get(), &mine) == 0 && ::stat(lock_path.c_str(), &named) == 0 &&
        mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) {
      const std::string pid = fmt::format("{}\n", ::getpid());
      if (::ftruncate(lock.get(), 0) != 0 ||
          ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
        return cannot(path, fmt::format("{}: {}", lock_path, strerror(errno)),
                      "make room on that file system or choose another --socket");
      }
      return lock;
    }
  }
  return cannot(path, fmt::format("{} keeps changing", lock_path), "try again");
}

// Removes what a dead daemon left; refuses when something answers or when it is no socket.
std::expected<void, std::string> clear_stale(const std::string& path, const sockaddr_un& address) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return cannot(path, strerror(errno), "choose another --socket");
  }
  if (!S_ISSOCK(info.st_mode)) {
    return cannot(path, "it exists and is not a socket", "remove it or choose another --socket");
  }
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int connected =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (connected == 0 || errno == EAGAIN || errno == EPROTOTYPE) {
    return cannot(path, "another daemon answers there", "stop that one or choose another --socket");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return cannot(path, fmt::format("a dead daemon's socket is there: {}", strerror(errno)),
                  "remove it");
  }
  return {};
}

}  // namespace

std::expected<Listener, std::string> Listener::open(const std::string& path, mode_t mode,
                                                    std::optional<gid_t> group) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return cannot(
        path, fmt::format("a socket's path has 1 to {} characters", sizeof address.sun_path - 1),
        "choose another --socket");
  }
  memcpy(address.sun_path, path.data(), path.size());
  if (auto ready = prepare_directory(path); !ready) return std::unexpected(ready.error());
  auto lock = take_lock(path);
  if (!lock) return std::unexpected(lock.error());
  Listener listener;
  listener.lock_ = std::move(*lock);
  if (auto clear = clear_stale(path, address); !clear) {
    ::unlink((path + ".lock").c_str());
    return std::unexpected(clear.error());
  }
  listener.socket_ =
      FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Nobody may connect before the permissions are the asked ones.
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(listener.socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int why = errno;
  ::umask(before);
  if (bound != 0) return cannot(path, strerror(why), "choose another --socket");
  listener.path_ = path;
  if (auto access = listener.set_access(mode, group); !access) {
    return std::unexpected(access.error());
  }
  if (::listen(listener.socket_.get(), kBacklog) != 0) {
    return cannot(path, strerror(errno), "choose another --socket");
  }
  return listener;
}

Listener::~Listener() {
  if (path_.empty() || !lock_) return;
  ::unlink(path_.c_str());
  ::unlink((path_ + ".lock").c_str());
}

std::expected<void, std::string> Listener::set_access(mode_t mode,
                                                      std::optional<gid_t> group) const {
  if (group && ::chown(path_.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return cannot(path_, fmt::format("group {}: {}", *group, strerror(errno)),
                  "use a group this user is in (socket.group)");
  }
  if (::chmod(path_.c_str(), mode) != 0) {
    return cannot(path_, strerror(errno), "choose another --socket");
  }
  return {};
}

FileDescriptor Listener::accept() const {
  return FileDescriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return std::nullopt;
  Peer peer{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
  gid_t groups[256];
  bytes = sizeof groups;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0) {
    peer.groups.assign(groups, groups + bytes / sizeof(gid_t));
  }
  return peer;
}

}  // namespace lull::daemon
