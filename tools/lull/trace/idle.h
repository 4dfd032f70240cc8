// Why a task's share of a device was idle: each gap between two of its busy intervals there, cut by
// the launch of the unit that ended it. Called by the analysis in the order of the file, one thread.
// Pure, in bounded memory.
//
//   last unit ends      launch called     gate lets it go       the unit starts
//        |------ host -------|------ held ------|------- start -------|
//        |  wait  |   host   |  (for `by`)      | others |   start    |
//
//   wait    the thread that launched the unit was inside a synchronising call
//   host    the host was late: it did something else before it made the call
//   held    the gate held the launch, for the task `by` or for nobody in particular
//   others  it had gone to the driver, and kernels of the task `by` ran on the device
//   start   it had gone to the driver, and nothing ran: the way to the device, a wait for another
//           stream, a unit that is not timed
//   unknown the launch of the unit has no record
//
// The parts of a gap add up to it, and those of a task on a device to its time there, from the first
// start to the last end, less what it was busy. Host time that passed while the device still worked
// is no part of a gap. Of each part it is known too how much of it kernels of other tasks ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "coordinator/trace/events.h"
#include "tools/lull/trace/log_histogram.h"

namespace lull::trace {

enum class IdleCause : uint8_t { kHost, kWait, kHeld, kOthers, kStart, kUnknown };
inline constexpr const char* kIdleCauses[] = {"host", "wait", "held", "others", "start", "unknown"};
inline const char* idle_cause_name(IdleCause cause) {
  return kIdleCauses[static_cast<size_t>(cause)];
}

struct IdlePart {
  IdleCause cause = IdleCause::kUnknown;
  ClientId by;  // kHeld, kOthers
  int64_t from_ns = 0, until_ns = 0;
  int64_t others_ns = 0;  // of it: kernels of other tasks ran
};

struct TimeSpan {
  int64_t from_ns = 0, until_ns = 0;
};
struct OwnedSpan {
  int64_t from_ns = 0, until_ns = 0;
  ClientId client;
};

// A gap and the launch that ended it.
struct IdleGap {
  int64_t from_ns = 0, until_ns = 0;
  bool launch_known = false;
  int64_t called_ns = 0, went_ns = 0;  // went - called: held
  ClientId held_by;
};

// The parts of a gap, in order of time. `waits` of the launching thread and `others`, what other
// tasks ran, may reach beyond the gap; `waits` do not overlap, `others` are in order of their start.
std::vector<IdlePart> cut_gap(const IdleGap& gap, const std::vector<TimeSpan>& waits,
                              const std::vector<OwnedSpan>& others);

struct IdleRow {
  DeviceId device;
  ClientId client;
  IdleCause cause = IdleCause::kUnknown;
  ClientId by;
  int64_t others_ns = 0;
  LogHistogram lengths;
};

class Idle {
 public:
  static constexpr size_t kWindow = 1U << 15;     // units of a device that may come out of order
  static constexpr size_t kMaxLaunches = 1U << 14;  // of a stream, without their timing so far
  static constexpr size_t kMaxStreams = 1U << 16;  // and threads; the rest is unknown
  static constexpr size_t kMaxWaits = 1U << 15;   // of a thread
  static constexpr size_t kMaxOthers = 1U << 16;  // units of a device
  static constexpr size_t kMaxRows = 4096;        // beyond them one row counts for all
  using Sink = std::function<void(DeviceId, ClientId, const IdlePart&)>;

  Idle() = default;
  // Told each part, a task's in order of time.
  explicit Idle(Sink sink) : sink_(std::move(sink)) {}

  void feed(const Launch& launch);
  void feed(const Timing& timing);
  void feed(const Waited& waited);
  template <typename E>
  void feed(const E&) {}
  // The rows, longest first. Nothing is fed afterwards.
  std::vector<IdleRow> finish();
  size_t kept_bytes() const;

 private:
  struct LaunchNote {
    uint64_t sequence = 0;
    int64_t called_ns = 0, held_ns = 0;
    ClientId held_by;
    ThreadSlot thread;
  };
  struct Unit {
    int64_t start_ns = 0, end_ns = 0;
    ClientId client;
    ThreadSlot thread;
    bool launch_known = false;
    int64_t called_ns = 0, went_ns = 0;
    ClientId held_by;
  };
  struct Ran {
    OwnedSpan span;
    int64_t reach_ns = 0;  // the latest end up to here
  };
  struct Device {
    std::vector<Unit> waiting;
    std::map<uint32_t, int64_t> busy_until;  // by client
    std::deque<Ran> ran;                     // in order of start
  };

  void retire(DeviceId id, Device& device, size_t how_many);
  void ended(DeviceId id, Device& device, const Unit& unit, int64_t from_ns);

  Sink sink_;
  std::unordered_map<uint64_t, std::deque<LaunchNote>> launches_;  // by client and stream
  std::unordered_map<uint64_t, std::deque<TimeSpan>> waits_;       // by client and thread
  std::map<uint32_t, Device> devices_;
  std::map<std::tuple<uint32_t, uint32_t, IdleCause, uint32_t>, IdleRow> rows_;
};

}  // namespace lull::trace
