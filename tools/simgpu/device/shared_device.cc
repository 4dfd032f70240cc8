#include "tools/simgpu/device/shared_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace simgpu {
namespace {

using lull::channel::kSimMagic;
using lull::channel::kSimVersion;
using lull::channel::monotonic_ns;
using lull::channel::sim_device_prefix;

constexpr int kLockSpins = 200;

std::atomic<uint32_t> fork_epoch{0};
void count_fork() { fork_epoch.fetch_add(1, std::memory_order_relaxed); }

// Crash points: with SIMGPU_TEST_KILL_AT=N in the environment when the device is opened, the
// process kills itself at the N-th point that it comes by.
std::atomic<uint64_t> kill_countdown{0};
void crash_point() {
  if (kill_countdown.load(std::memory_order_relaxed) == 0) return;
  if (kill_countdown.fetch_sub(1, std::memory_order_relaxed) == 1) raise(SIGKILL);
}
bool crash_points_armed = false;

void arm_crash_points() {
  const char* at = std::getenv("SIMGPU_TEST_KILL_AT");
  crash_points_armed = at != nullptr;
  kill_countdown.store(at != nullptr ? std::strtoull(at, nullptr, 10) : 0);
}
#define SIMGPU_CRASH_POINT()             \
  do {                                   \
    if (crash_points_armed) [[unlikely]] \
      crash_point();                     \
  } while (false)

std::string why(int error) { return std::strerror(error); }

uint32_t load_word(uint32_t& word) {
  return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
}

void make_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

// A complete file under a name of its own: nobody ever sees one that is not ready.
std::expected<std::string, std::string> write_new_file(const std::string& path,
                                                       const SimParameters& parameters) {
  static std::atomic<uint32_t> serial{0};
  const std::string temporary = fmt::format("{}.new.{}.{}", path, getpid(), serial.fetch_add(1));
  const auto failed = [&](const char* what) {
    const int error = errno;
    unlink(temporary.c_str());
    return std::unexpected(
        fmt::format("lull: cannot create the simulated device {}: {}: {}: set SIMGPU_DEVICE to a "
                    "path in a writable folder with {} MB of space",
                    path, what, why(error), kFileBytes >> 20));
  };
  const int fd = open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed("open");
  if (ftruncate(fd, kFileBytes) != 0) {
    close(fd);
    return failed("ftruncate");
  }
  void* mapped = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return failed("mmap");
  char* base = static_cast<char*>(mapped);

  auto* shared = new (base + kParametersOffset) shared_parameters{};
  shared->file_bytes = kFileBytes;
  shared->layout_version = kLayoutVersion;
  shared->profile = parameters.profile;

  auto* control = reinterpret_cast<shared_control*>(base + kControlOffset);
  make_robust(control->mutex);
  for (pthread_mutex_t& life : control->life) make_robust(life);
  for (uint32_t i = 0; i < 2; ++i) {
    DeviceModel::initialise(
        *reinterpret_cast<model_state*>(base + kStatesOffset + i * kStateStride));
  }

  auto* prefix = reinterpret_cast<sim_device_prefix*>(base);
  std::memcpy(prefix->magic, kSimMagic, sizeof prefix->magic);
  prefix->version = kSimVersion;
  prefix->slow_motion = parameters.slow_motion;
  prefix->control_latency_ns = parameters.control_latency_ns != kNever
                                   ? parameters.control_latency_ns
                                   : parameters.profile.control_latency_ns;
  prefix->sharing = static_cast<uint32_t>(parameters.sharing);
  prefix->device_count = parameters.devices;
  // The same for every process and every run: the model's name, hashed.
  uint64_t hash = 14695981039346656037ULL;
  for (const char* c = parameters.profile.name; *c != '\0'; ++c) {
    hash = (hash ^ static_cast<uint8_t>(*c)) * 1099511628211ULL;
  }
  std::memcpy(prefix->uuid, "simgpu", 6);
  std::memcpy(prefix->uuid + 8, &hash, sizeof hash);
  prefix->memory_bytes = parameters.profile.memory_bytes;
  static_assert(sizeof prefix->name == sizeof parameters.profile.name);
  std::memcpy(prefix->name, parameters.profile.name, sizeof prefix->name);
  prefix->origin_ns = monotonic_ns();
  std::atomic_ref<uint32_t>(prefix->ready).store(1, std::memory_order_release);
  munmap(mapped, kFileBytes);
  return temporary;
}

}  // namespace

uint64_t process_start_time(int32_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ESRCH ? 0 : UINT64_MAX;
  char text[1024];
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  // The command's name may contain anything; its last parenthesis ends it. Field 3 follows.
  const char* rest = std::strrchr(text, ')');
  if (rest == nullptr) return UINT64_MAX;
  char state = 0;
  long threads = 0;
  unsigned long long start = 0;
  if (std::sscanf(
          rest + 1,
          " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu",
          &state, &threads, &start) != 3) {
    return UINT64_MAX;
  }
  // A zombie whose other threads still run is not dead: its main thread has only left first.
  if ((state == 'Z' && threads <= 1) || state == 'X') return 0;
  return start;
}

uint64_t own_pid_namespace() {
  char self[16];
  const ssize_t length = readlink("/proc/self", self, sizeof self - 1);
  if (length <= 0) return 0;
  self[length] = '\0';
  struct stat about;
  return std::atoi(self) == getpid() && stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

std::expected<std::unique_ptr<SharedDevice>, std::string> SharedDevice::open_existing(
    const std::string& path) {
  const auto failed = [&](const std::string& reason, const std::string& remedy) {
    return std::unexpected(
        fmt::format("lull: cannot open the simulated device {}: {}: {}", path, reason, remedy));
  };
  const std::string remove = "remove the file, or set SIMGPU_DEVICE to another path";
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return failed(why(errno), "set SIMGPU_DEVICE to the path of a device of yours");
  struct stat info;
  if (fstat(fd, &info) != 0 || static_cast<size_t>(info.st_size) != kFileBytes) {
    close(fd);
    return failed("it is not a simulated device of this version", remove);
  }
  void* mapped = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (mapped == MAP_FAILED) return failed(why(error), remove);
  std::unique_ptr<SharedDevice> device(new SharedDevice);
  device->base_ = static_cast<char*>(mapped);
  device->path_ = path;
  const sim_device_prefix& prefix = device->prefix();
  const auto& shared = *device->at<shared_parameters>(kParametersOffset);
  if (std::memcmp(prefix.magic, kSimMagic, sizeof kSimMagic) != 0 ||
      prefix.version != kSimVersion || prefix.ready != 1 ||
      shared.layout_version != kLayoutVersion || shared.file_bytes != kFileBytes ||
      prefix.device_count < 1 || prefix.device_count > kMaxDevices || prefix.sharing > 2 ||
      !(prefix.slow_motion >= 1)) {
    return failed("it is not a simulated device of this version", remove);
  }
  if (prefix.origin_ns > monotonic_ns()) return failed("it is older than this boot", remove);
  device->parameters_ = {prefix.device_count,      static_cast<Sharing>(prefix.sharing),
                         shared.profile.sm_count,  shared.profile.slice_ns,
                         shared.profile.switch_ns, shared.profile.memory_bytes};
  static std::once_flag registered;
  std::call_once(registered, [] { pthread_atfork(nullptr, nullptr, count_fork); });
  device->fork_epoch_ = fork_epoch.load(std::memory_order_relaxed);
  device->pid_ = getpid();
  device->pid_namespace_ = own_pid_namespace();
  device->start_time_ =
      device->pid_namespace_ != 0 ? process_start_time(device->pid_) : monotonic_ns();
  arm_crash_points();
  return device;
}

std::expected<std::unique_ptr<SharedDevice>, std::string> SharedDevice::open_or_create(
    const std::string& path, const SimParameters& parameters, bool replace) {
  const auto wrong = [&](const std::string& what) {
    return std::unexpected(
        fmt::format("lull: cannot create the simulated device {}: {}", path, what));
  };
  if (parameters.devices < 1 || parameters.devices > kMaxDevices) {
    return wrong(
        fmt::format("{} devices: 1 to {} would be right", parameters.devices, kMaxDevices));
  }
  if (!(parameters.slow_motion >= 1 && parameters.slow_motion <= 1e6)) {
    return wrong(
        fmt::format("slow motion {}: 1 to 1000000 would be right", parameters.slow_motion));
  }
  if (replace) {
    auto temporary = write_new_file(path, parameters);
    if (!temporary) return std::unexpected(temporary.error());
    if (rename(temporary->c_str(), path.c_str()) != 0) {
      const int error = errno;
      unlink(temporary->c_str());
      return wrong(fmt::format("rename: {}: name a path that can be replaced", why(error)));
    }
    return open_existing(path);
  }
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (access(path.c_str(), F_OK) == 0) {
      auto opened = open_existing(path);
      // Gone again between the two calls: make one.
      if (opened || access(path.c_str(), F_OK) == 0) return opened;
    }
    auto temporary = write_new_file(path, parameters);
    if (!temporary) return std::unexpected(temporary.error());
    const int linked = link(temporary->c_str(), path.c_str());
    const int error = errno;
    unlink(temporary->c_str());
    if (linked != 0 && error != EEXIST) {
      return wrong(fmt::format("link: {}: set SIMGPU_DEVICE to a path under /dev/shm", why(error)));
    }
  }
  return open_existing(path);
}

SharedDevice::~SharedDevice() {
  if (base_ != nullptr) munmap(base_, kFileBytes);
}

bool SharedDevice::forked() const {
  return fork_epoch.load(std::memory_order_relaxed) != fork_epoch_;
}

void SharedDevice::sleep(uint32_t& word, uint32_t seen, uint64_t until_real_ns,
                         uint64_t spin_real_ns) const {
  uint64_t now = monotonic_ns();
  const uint64_t end = std::min(until_real_ns, now + kMaxSleepRealNs);
  if (end > now + spin_real_ns) {
    const uint64_t wake_at = end - spin_real_ns;
    timespec deadline;
    deadline.tv_sec = static_cast<time_t>(wake_at / 1'000'000'000);
    deadline.tv_nsec = static_cast<long>(wake_at % 1'000'000'000);
    // Non-private: the waker may be another process.
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, seen, &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  for (;;) {
    now = monotonic_ns();
    if (now >= end || load_word(word) != seen) return;
    if (now + spin_real_ns < end) return;  // woken early: let the caller look
    sched_yield();
  }
}

void SharedDevice::wake_word(uint32_t& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// ---------------------------------------------------------------------------------------- session

Session::Session(SharedDevice& device)
    : device_(device), control_(device.control()), model_((lock(), model_of(control_.active))) {
  SIMGPU_CRASH_POINT();
  real_ns_ = monotonic_ns();
  now_ns_ = std::max(device_.clock().to_model_ns(real_ns_), model_.state().head.time_ns);
  if (model_.next_event_ns() <= now_ns_) {
    model();
    commit();
  }
  if (recovered_ || real_ns_ - control_.liveness_real_ns >= kLivenessRealNs) remove_the_dead();
}

DeviceModel Session::model_of(uint32_t index) {
  return {device_.state(index), device_.ops(), device_.parameters_,
          crash_points_armed ? &crash_point : nullptr};
}

void Session::lock() {
  int result = EBUSY;
  // A short stay costs less than a sleep and its wake-up.
  for (int i = 0; i < kLockSpins && result == EBUSY; ++i) {
    result = pthread_mutex_trylock(&control_.mutex);
  }
  if (result == EBUSY) result = pthread_mutex_lock(&control_.mutex);
  if (result != EOWNERDEAD) return;
  // The owner died inside: what is published counts, the spare may be anything.
  copy_all(device_.state(control_.active), device_.state(control_.active ^ 1));
  SIMGPU_CRASH_POINT();
  ++control_.recoveries;
  recovered_ = true;
  pthread_mutex_consistent(&control_.mutex);
}

DeviceModel& Session::model() {
  if (writing_) return model_;
  writing_ = true;
  const uint32_t spare = control_.active ^ 1;
  control_.copied_bytes += copy_changes(device_.state(control_.active), device_.state(spare));
  SIMGPU_CRASH_POINT();
  std::destroy_at(&model_);
  std::construct_at(&model_, model_of(spare));
  model_.advance_to(now_ns_);
  SIMGPU_CRASH_POINT();
  return model_;
}

void Session::commit() {
  if (!writing_) return;
  writing_ = false;
  const uint32_t spare = control_.active ^ 1;
  ++device_.state(spare).head.commits;
  SIMGPU_CRASH_POINT();
  // Release: whoever takes the lock after a dead owner sees the whole state.
  std::atomic_ref<uint32_t>(control_.active).store(spare, std::memory_order_release);
  SIMGPU_CRASH_POINT();
}

void Session::remove_the_dead() {
  control_.liveness_real_ns = real_ns_;
  for (uint32_t p = 0; p < kMaxProcesses; ++p) {
    if (seen().state().process[p].used == 0 || !is_dead(p)) continue;
    model().remove_process(p);
    wake_everybody();
  }
  commit();
}

std::expected<uint32_t, Status> Session::own_process() {
  const uint32_t known = device_.process();
  if (known < kMaxProcesses) return known;
  for (uint32_t p = 0; p < kMaxProcesses; ++p) {
    const process_state& process = seen().state().process[p];
    if (process.used != 0 && process.pid == device_.pid_ &&
        process.pid_namespace == device_.pid_namespace_ &&
        process.start_time == device_.start_time_) {
      device_.process_.store(p, std::memory_order_release);
      return p;
    }
  }
  auto added = model().add_process(device_.pid_, device_.start_time_, device_.pid_namespace_);
  if (!added) return added;
  control_.wake[*added].service_until = 0;
  device_.process_.store(*added, std::memory_order_release);
  return added;
}

void Session::hold_life(uint32_t process) {
  // A dead process that had the slot before may have left it marked.
  pthread_mutex_t& life = control_.life[process];
  const int taken = pthread_mutex_trylock(&life);
  if (taken == EOWNERDEAD) pthread_mutex_consistent(&life);
  if (taken != ENOTRECOVERABLE) return;
  make_robust(life);
  pthread_mutex_lock(&life);
}

bool Session::is_dead(uint32_t p) const {
  const process_state& process = seen().state().process[p];
  if (p == device_.process()) return false;
  if (device_.pid_namespace_ != 0 && process.pid_namespace == device_.pid_namespace_) {
    if (process.pid == device_.pid_) return false;
    const uint64_t start = process_start_time(process.pid);
    return start != process.start_time && start != UINT64_MAX;
  }
  const int taken = pthread_mutex_trylock(&control_.life[p]);
  // A mark that is not cleared stays, for who looks next.
  if (taken == 0 || taken == EOWNERDEAD) pthread_mutex_unlock(&control_.life[p]);
  return taken == EOWNERDEAD || taken == ENOTRECOVERABLE;
}

void Session::wake_everybody() {
  wake_services_ = UINT32_MAX;
  wake_changed_ = UINT32_MAX;
}

Session::~Session() {
  commit();
  const auto bump = [&](uint32_t set, uint32_t process_wake::*word) {
    for (uint32_t rest = set; rest != 0; rest &= rest - 1) {
      process_wake& wake = control_.wake[std::countr_zero(rest)];
      std::atomic_ref<uint32_t>(wake.*word).fetch_add(1, std::memory_order_release);
      SIMGPU_CRASH_POINT();
    }
  };
  bump(wake_services_, &process_wake::service_word);
  bump(wake_changed_, &process_wake::change_word);
  uint32_t used = 0;
  if ((wake_services_ | wake_changed_) != 0) {
    for (uint32_t p = 0; p < kMaxProcesses; ++p) {
      if (seen().state().process[p].used != 0) used |= 1U << p;
    }
  }
  pthread_mutex_unlock(&control_.mutex);
  SIMGPU_CRASH_POINT();
  for (uint32_t rest = wake_services_ & used; rest != 0; rest &= rest - 1) {
    SharedDevice::wake_word(control_.wake[std::countr_zero(rest)].service_word);
  }
  for (uint32_t rest = wake_changed_ & used; rest != 0; rest &= rest - 1) {
    SharedDevice::wake_word(control_.wake[std::countr_zero(rest)].change_word);
  }
}

}  // namespace simgpu
