// The shared file behind a simulated device: mapping, lock, clock, dead processes, wake-ups. The
// rules are in device_model.h; this is the thin shell that lets many processes, any of which may be
// killed at any instruction, play them. Called by device.cc and inspect.cc from any thread.
//
//   offset          part
//   0               sim_device_prefix        by the creator, then constant
//   192             shared_parameters        by the creator, then constant
//   kControlOffset  shared_control           lock, which state counts, wake-up words
//   kStatesOffset   model_state[2]           the published one and the one being prepared
//   kOpsOffset      op_record[contexts * kMaxOps]
//
// An update: lock; bring the spare state up to date with the published one; change it; publish it
// by one store of `active`; unlock; wake. Who dies in between leaves the published state as it was:
// the robust mutex tells the next one (EOWNERDEAD), who overwrites the spare and goes on. The only
// words changed outside that are the wake-up words, where a lost or an extra change costs at most
// one short sleep. Robust mutexes and two non-private futexes are the only primitives.
//
// Who is dead: a process of one's own pid namespace is looked up in /proc, by pid and start time.
// Of another namespace (a container) the pid says nothing, and its service thread's mutex is asked,
// which the kernel marks when that thread ends. One that is killed in another namespace before its
// service thread has begun keeps its slot until a process of that namespace looks.
#pragma once

#include <pthread.h>

#include <atomic>
#include <expected>
#include <memory>
#include <string>

#include "coordinator/channel/model_clock.h"
#include "tools/simgpu/device/device_model.h"

namespace simgpu {

inline constexpr uint32_t kLayoutVersion = 5;
// Longest real sleep: a waiter looks for dead processes at least this often.
inline constexpr uint64_t kMaxSleepRealNs = 20'000'000;
// Dead processes are looked for at most this often by whoever locks.
inline constexpr uint64_t kLivenessRealNs = 5'000'000;

struct shared_parameters {
  uint64_t file_bytes;
  uint32_t layout_version;
  uint32_t reserved;
  DeviceProfile profile;
};

// Wake-up words of one live process, by its slot.
struct process_wake {
  uint32_t change_word;    // futex: something other than time may have completed an op
  uint32_t service_word;   // futex: the service thread's bound may have moved
  uint64_t service_until;  // model time until which the service thread sleeps; 0: it does not
};

struct shared_control {
  pthread_mutex_t mutex;  // robust, process-shared
  uint32_t active;        // index of the published state
  uint32_t recoveries;    // dead lock owners so far
  uint64_t liveness_real_ns;
  uint64_t copied_bytes;  // into spare states, for whoever measures
  process_wake wake[kMaxProcesses];
  pthread_mutex_t life[kMaxProcesses];  // robust; the process's service thread has it until it ends
};

inline constexpr size_t round_to_page(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
inline constexpr size_t kParametersOffset = sizeof(lull::channel::sim_device_prefix);
inline constexpr size_t kControlOffset =
    round_to_page(kParametersOffset + sizeof(shared_parameters));
inline constexpr size_t kStatesOffset = kControlOffset + round_to_page(sizeof(shared_control));
inline constexpr size_t kStateStride = round_to_page(sizeof(model_state));
inline constexpr size_t kOpsOffset = kStatesOffset + 2 * kStateStride;
inline constexpr size_t kFileBytes = kOpsOffset + sizeof(op_record) * kMaxContexts * kMaxOps;

class SharedDevice {
 public:
  static std::expected<std::unique_ptr<SharedDevice>, std::string> open_existing(
      const std::string& path);
  // Opens it, created first when it is absent; `replace`: a new one in any case.
  static std::expected<std::unique_ptr<SharedDevice>, std::string> open_or_create(
      const std::string& path, const SimParameters& parameters, bool replace);
  ~SharedDevice();
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

  const lull::channel::sim_device_prefix& prefix() const {
    return *at<lull::channel::sim_device_prefix>(0);
  }
  const DeviceProfile& profile() const { return at<shared_parameters>(kParametersOffset)->profile; }
  lull::channel::ModelClock clock() const { return {prefix().origin_ns, prefix().slow_motion}; }
  const std::string& path() const { return path_; }
  bool forked() const;
  // own_pid_namespace(), when the device was opened.
  uint64_t pid_namespace() const { return pid_namespace_; }
  // This process's slot among the model's processes; kMaxProcesses before its first context.
  uint32_t process() const { return process_.load(std::memory_order_acquire); }

  shared_control& control() const { return *at<shared_control>(kControlOffset); }
  process_wake& wake() const { return control().wake[process()]; }

  // Sleeps on a wake-up word until it differs from `seen` or the real time has come, then spins
  // from `spin_real_ns` before it. Returns early at will.
  void sleep(uint32_t& word, uint32_t seen, uint64_t until_real_ns, uint64_t spin_real_ns) const;
  static void wake_word(uint32_t& word);

  // Set by wake_service before it bumps the service word, cleared by the service thread: a wake-up
  // that comes while that thread is not asleep yet is not lost.
  std::atomic<bool> service_wanted{false};

 private:
  friend class Session;
  SharedDevice() = default;
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  model_state& state(uint32_t index) const {
    return *at<model_state>(kStatesOffset + index * kStateStride);
  }
  std::span<op_record> ops() const {
    return {at<op_record>(kOpsOffset), size_t{kMaxContexts} * kMaxOps};
  }

  std::string path_;
  char* base_ = nullptr;
  uint32_t fork_epoch_ = 0;
  int32_t pid_ = 0;
  uint64_t pid_namespace_ = 0;
  uint64_t start_time_ = 0;  // where the namespace is not known: when the device was opened
  std::atomic<uint32_t> process_{kMaxProcesses};
  ModelParameters parameters_;
};

// One stay inside the lock. On entry everything that is due has been played and published, and the
// dead have been removed. `seen()` is the published state; the first `model()` begins an update
// that the destructor publishes.
class Session {
 public:
  explicit Session(SharedDevice& device);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  ModelNs now_ns() const { return now_ns_; }
  uint64_t real_ns() const { return real_ns_; }
  const DeviceModel& seen() const { return model_; }
  DeviceModel& model();
  // Publishes what was changed so far; the session goes on.
  void commit();
  // The slot of this process, added when it has none yet.
  std::expected<uint32_t, Status> own_process();
  // Once a process, by its service thread, of this process's slot.
  void hold_life(uint32_t process);
  // It has ended, as far as can be known; the next look for the dead removes it.
  bool is_dead(uint32_t process) const;
  // Wake-ups, sent after the lock is released.
  void wake_service(uint32_t process) { wake_services_ |= 1U << process; }
  void wake_changed(uint32_t process) { wake_changed_ |= 1U << process; }
  void wake_everybody();

 private:
  void lock();
  void remove_the_dead();
  DeviceModel model_of(uint32_t index);

  SharedDevice& device_;
  shared_control& control_;
  bool writing_ = false;
  bool recovered_ = false;
  uint32_t wake_services_ = 0;
  uint32_t wake_changed_ = 0;
  uint64_t real_ns_ = 0;
  ModelNs now_ns_ = 0;
  DeviceModel model_;
};

// Start time of a live process from /proc (field 22 of its stat), 0 when it is gone or a zombie.
uint64_t process_start_time(int32_t pid);
// A number of this process's pid namespace, the same in all its processes. 0: not known, for /proc
// is not there or shows another namespace's processes.
uint64_t own_pid_namespace();

}  // namespace simgpu
