// What others cost one important client at each wait of its host. Kept and fed by its RequestGuard. Pure.
//
// The isolated schedule says when each launch would have been complete with nobody else there: launched when it was,
// run after the client's earlier launches, for as long as predicted. Where the host waits for the device, the
// difference to the real end is what others cost:
//
//   delay of a wait = its end - the isolated schedule's end of what was waited for; 0 where the device
//                     was through long before the host asked
//
// A stretch is the launches up to a wait. Stretches in which no lower work ran have no delay. Runs of own work alone
// calibrate the schedule. A delay is never more than lower work and changes of hands took while the client had work on
// the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "policies/launch/guarded/observe/kernel_costs.h"
#include "policies/launch/launch_policy.h"
#include "policies/launch/guarded/model/iteration_model.h"
#include "policies/launch/guarded/observe/switch_cost.h"

namespace lull::policies {

class IsolatedSchedule {
 public:
  // ---- the client's life ----
  // A launch is told in two calls. The first returns whether it begins a stretch, so that the caller can act on that
  // before the second one, `submitted`. `in_step`: the launch is in an iteration that has waits.
  bool begins_stretch(Instant at, bool lower_in_flight);
  void submitted(const Submitted& launch, bool in_step, bool lower_in_flight);
  void completed(const Completed& done, Instant now, bool lower_in_flight);
  // One call a stream that was waited for. `settle` follows when all that happened at that time has been told.
  void synced(const Synced& wait, bool lower_in_flight);
  // For programs whose waits nobody sees: after many launches without a wait, an idle device is taken for one. Called
  // before each launch.
  void look_for_wait();
  struct Waited {
    Instant from, at;      // from the stretch's first launch, or else the wait before, to the wait's end
    Duration delay;        // what others cost it
    bool clean;            // no lower work was on the device since the wait before
  };
  std::optional<Waited> settle(bool lower_in_flight);
  void service_ended(Duration usual) { service_ = usual; }  // `usual`: how long requests take by themselves

  // ---- lower work ----
  // A unit, or copy, has come to the device. A unit has run on it.
  void disturbed(bool copy, Instant at);
  void lower_ran(Instant from, Instant until);
  // `kernels` are through, or gone with their client; `left` are still on the device.
  void lower_ended(uint32_t kernels, uint32_t left, Instant now);

  // ---- a client that is quiet ----
  // The client has nothing on the device, and `catch_up` can make up for all that lower work changes here.
  bool may_rest() const { return idle() && wait_.at == kNever && kernel_costs_.may_rest(); }
  // Lower work may have come and gone meanwhile, the last of it at `moved_at`. `left` of its kernels are on the device
  // now.
  void catch_up(uint32_t left, Instant moved_at);

  // ---- answers ----
  IterationModel& timeline() { return timeline_; }
  const IterationModel& timeline() const { return timeline_; }
  KernelCosts& kernel_costs() { return kernel_costs_; }
  const KernelCosts& kernel_costs() const { return kernel_costs_; }
  bool idle() const { return in_flight_.empty(); }
  // Launches that should still be on the device.
  size_t in_flight() const {
    size_t launches = in_flight_.size();
    for (const Stream& its : streams_) launches -= std::min<size_t>(launches, its.unreported);
    return launches;
  }
  // The host has launched nothing since its last wait. That ended at `waited_until`.
  bool between_stretches() const { return began_ == kNever; }
  Instant waited_until() const { return waited_until_; }
  bool lower_there() const { return lower_there_ > 0; }
  bool clean() const { return clean_; }
  // How late the host is since its last wait, because launches waited for a place in the driver's queue.
  Duration host_late() const { return host_late_; }
  // How long lower work has run while own work was on the device, since the last wait and since own work was last known
  // to be through.
  Duration blocked_since_wait() const {
    return {std::max<int64_t>(0, blocked_ns_ - blocked_before_ns_)};
  }
  // The delay that the host's wait will say, where the device is through and the host is not back yet; else 0.
  Duration about_to_lose(Instant now) const {
    const bool returns = idle() && began_ != kNever && timeline_.wait_is_next();
    return returns ? delay(now, moved_at_, own_free_) : Duration{};
  }
  // It is known where in its iteration the launch stands that the device does next.
  bool knows_place() const {
    return in_flight_.empty() || in_flight_.front().index.position != kOutOfStep;
  }
  // Own work up to the next wait.
  Duration work_left() const {
    const IterationModel::LaunchIndex from = idle() ? timeline_.next_index() : in_flight_.front().index;
    return std::max(Duration{}, timeline_.work(from, idle()) - overtook_work_);
  }
  // What one change of hands costs; and how many there are if a lower launch goes: to lower work, unless that has the
  // device, and back; and first to own work, where that waits behind lower work.
  Duration change() const { return std::max(least_change_, switch_.cost()); }
  void change_costs(Duration least) { least_change_ = least; }
  int64_t changes() const { return !switch_.behind() ? 2 : computing_ == 0 ? 1 : 3; }
  // The schedule knows better from now on: its errors until now are no measure.
  void knows_better() { noise_ns_ = 0; }

  bool operator==(const IsolatedSchedule&) const = default;

 private:
  struct InFlight {
    uint64_t number = 0;  // in the order of launches
    Instant at;
    StreamSlot stream;
    bool copy = false;
    IterationModel::LaunchIndex index;  // in its iteration, where that is known
    Duration predicted;
    Duration seen;    // how long it takes by itself, where that was seen; else 0
    Instant own_end;  // in the isolated schedule
    bool operator==(const InFlight&) const = default;
  };
  struct Stream {
    Instant own_free{0};       // the isolated schedule's end of everything launched
    Instant own_end{0};        // the isolated schedule's end of what is known complete
    Instant end{0};            // when that was seen complete
    uint32_t unreported = 0;   // launches that are expected to be complete, while the host waits for them
    bool operator==(const Stream&) const = default;
  };
  struct Wait {
    Instant at = kNever;       // when it ended
    Instant end{0};            // when the last launch that it was for was seen complete
    Instant own_end{0};        // when that was complete in the isolated schedule
    Duration left;             // own work still to do that it was not for
    bool operator==(const Wait&) const = default;
  };
  Stream& stream(StreamSlot slot);
  Duration left_to_do(const Synced& wait) const;
  // Of a wait that ends at `at`. What it was for was through at `through`, and would have been at `own_end` by itself.
  Duration delay(Instant at, Instant through, Instant own_end) const;
  void take_done(StreamSlot slot, uint32_t left, Instant now, bool reported = true);
  void progress(bool reported, Instant now, bool lower_in_flight);
  void see_work(bool reported, Instant now);
  void count_beside(Instant now, uint32_t lower_there);
  void calibrate();
  void shift(Duration by);
  // How long own work waits at most for a change of hands. The waits say how long it really did.
  Duration longest_switch() const { return {change().ns * 33 / 32}; }
  Duration likely_work(const InFlight& launch) const {
    return launch.seen.ns > 0 ? launch.seen : scaled(launch.predicted);
  }
  Duration scaled(Duration predicted) const { return {predicted.ns * scale_x1024_ / 1024}; }

  static constexpr uint32_t kOutOfStep = UINT32_MAX;

  IterationModel timeline_;
  KernelCosts kernel_costs_;
  SwitchCost switch_;
  Duration least_change_;

  // ---- on the device ----
  std::deque<InFlight> in_flight_;
  uint32_t computing_ = 0;      // launches in flight that are not copies
  StreamSlot computes_on_{0};   // the stream of the last of them
  bool several_streams_ = false;  // they have come on several streams since none was in flight
  // Launches of other streams that are through before the first one in flight, although they were made after it.
  std::vector<IterationModel::LaunchIndex> overtook_;
  Duration overtook_work_;
  std::vector<InFlight> done_;  // scratch
  uint64_t launched_ = 0;
  uint64_t reached_ = 0;        // the number of the latest launch that is through, of any stream
  Instant moved_at_{0};         // the device's last known progress with this client's work
  Instant busy_since_{0};       // since when kernels of this client have been in flight

  // ---- in the isolated schedule ----
  Instant own_free_{0};        // the end of all kernels launched
  std::vector<Stream> streams_;
  struct Run {                 // of own work on the device, with nobody else there
    Instant from = kNever;     // a completion, or a launch to an idle device
    Instant until = kNever;    // up to here it is seen what ran
    Duration predicted;        // the predicted length of what has completed since `from`
    std::vector<std::pair<IterationModel::LaunchIndex, Duration>> seen;  // what launches took; not told to timeline_ yet
    bool operator==(const Run&) const = default;
  };
  Run run_;
  int64_t real_ns_ = 0;        // the length of recent runs
  int64_t predicted_ns_ = 0;   // their predicted length
  int64_t scale_x1024_ = 1024; // the real length over the predicted one
  Duration service_;           // how long a request takes by itself
  int64_t noise_ns_ = 0;       // the schedule's largest error of late, with nobody in the way

  // ---- the stretch ----
  Wait wait_;
  Instant began_ = kNever;     // its first launch
  Instant waited_until_{0};
  Duration host_late_;
  uint32_t launches_ = 0;      // since the last wait
  bool clean_ = true;          // no lower work has been on the device since then
  int64_t blocked_ns_ = 0;     // how long lower work and changes of hands may have held up own work
  int64_t blocked_before_ns_ = 0;  // the part of it before the last wait
  // How long own and lower work have been on the device together, since own work was last known to be through.
  int64_t beside_ns_ = 0;
  Instant beside_since_ = kNever;
  bool knows_work_ = true;  // each kernel since the last wait has been seen with nobody in its way
  uint32_t lower_there_ = 0;  // kernels of lower work on the device

  // ---- turns ----
  int64_t lower_turn_ns_ = 0;  // how long lower work has run since the client last made progress
};

}  // namespace lull::policies
