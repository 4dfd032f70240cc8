// What others cost one important client at each wait of its host. Kept and fed by its RequestGuard. Pure.
//
// Beside the real device it keeps a shadow of the client's own: when each of its launches would have
// been complete with nobody else there (launched when it was, after what it launched before, for
// as long as predicted). Where the host waits for the device, the difference is what others cost:
//
//   delay of a wait = its end - the shadow's end of what was waited for; 0 where the device was
//                     through long before the host asked
//
// Stretches (the launches up to a wait) in which no lower work ran cost nobody anything; runs of own
// work alone calibrate the shadow. No more is charged than lower work ran while the client had work
// waiting for the device.
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
  // A launch comes: whether it is the first of a stretch; then, with all that follows from that, it
  // is `submitted`. `in_step`: in an iteration that has waits.
  bool begins_stretch(Instant at, bool lower_in_flight);
  void submitted(const Submitted& launch, bool in_step, bool lower_in_flight);
  void completed(const Completed& done, Instant now, bool lower_in_flight);
  // Of one or several streams; `settle` when all that happened at that time has been told.
  void synced(const Synced& wait, bool lower_in_flight);
  // A program whose waits nobody sees: after many launches without one, that the device is through
  // with it is taken for one. Asked before each launch.
  void look_for_wait();
  struct Waited {
    Instant from, at;      // the stretch, from its first launch, or the wait before, to the wait's end
    Duration delay;        // of the wait, by others
    bool clean;            // no lower work was on the device since the wait before
  };
  std::optional<Waited> settle(bool lower_in_flight);
  void service_ended(Duration usual) { service_ = usual; }  // services take so long by themselves

  // ---- lower work ----
  // A unit, or copy, has come to the device; one has run on it.
  void disturbed(bool copy, Instant at);
  void lower_ran(Instant from, Instant until);
  // So many kernels are through or, with their client, gone; so many are left.
  void lower_ended(uint32_t kernels, uint32_t left, Instant now);

  // ---- a client that is quiet ----
  // It has nothing on the device, and lower work changes nothing but what `catch_up` makes up for.
  bool may_rest() const { return idle() && wait_.at == kNever && kernel_costs_.may_rest(); }
  // Lower work may have come and gone meanwhile, the last of it at `moved_at`; `left` kernels of it are
  // on the device now.
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
  // The host has launched nothing since its last wait, which ended then.
  bool between_stretches() const { return began_ == kNever; }
  Instant waited_until() const { return waited_until_; }
  bool lower_there() const { return lower_there_ > 0; }
  bool clean() const { return clean_; }
  // By waiting for a place in the driver's queue, since the last wait.
  Duration host_late() const { return host_late_; }
  // So long lower work has run while own work was on the device, since the last wait and since that was
  // last known to be through.
  Duration blocked_since_wait() const {
    return {std::max<int64_t>(0, blocked_ns_ - blocked_before_ns_)};
  }
  // The device is through with what the host waits for, and the host is not back yet: what its wait will say.
  Duration about_to_lose(Instant now) const {
    const bool returns = idle() && began_ != kNever && timeline_.wait_is_next();
    return returns ? delay(now, moved_at_, own_free_) : Duration{};
  }
  // The place of what the device is about to do is known.
  bool knows_place() const {
    return in_flight_.empty() || in_flight_.front().spot.position != kOutOfStep;
  }
  // Own work up to the next wait.
  Duration work_left() const {
    const IterationModel::Spot from = idle() ? timeline_.next_spot() : in_flight_.front().spot;
    return std::max(Duration{}, timeline_.work(from, idle()) - overtook_work_);
  }
  // What it costs that others have the device at all: so often it changes hands to them, unless they
  // have it, and back; and before that to own work that is waiting.
  Duration change() const { return std::max(least_change_, switch_.cost()); }
  void change_costs(Duration least) { least_change_ = least; }
  int64_t changes() const { return !switch_.behind() ? 2 : computing_ == 0 ? 1 : 3; }
  // It knows better from here on: what its errors were until now is no measure.
  void knows_better() { noise_ns_ = 0; }

  bool operator==(const IsolatedSchedule&) const = default;

 private:
  struct InFlight {
    uint64_t number = 0;  // in the order of launches
    Instant at;
    StreamSlot stream;
    bool copy = false;
    IterationModel::Spot spot;  // in its iteration, where that is known
    Duration predicted;
    Duration seen;    // what it takes by itself, where that was seen; else 0
    Instant own_end;  // in the shadow
    bool operator==(const InFlight&) const = default;
  };
  struct Stream {
    Instant own_free{0};       // in the shadow: through with everything launched
    Instant own_end{0};        // ... with what is known complete
    Instant end{0};            // when that was seen
    uint32_t unreported = 0;   // launches that are taken to be complete, while the host waits for them
    bool operator==(const Stream&) const = default;
  };
  struct Wait {
    Instant at = kNever;       // until then the host waited
    Instant end{0};            // the last of what it waited for was seen complete
    Instant own_end{0};        // ... in the shadow
    Duration left;             // own work that it was not for, to be done yet
    bool operator==(const Wait&) const = default;
  };
  Stream& stream(StreamSlot slot);
  Duration left_to_do(const Synced& wait) const;
  // Of a wait that ends at `at`; what was waited for was through then, and by itself at `own_end`.
  Duration delay(Instant at, Instant through, Instant own_end) const;
  void take_done(StreamSlot slot, uint32_t left, Instant now, bool reported = true);
  void progress(bool reported, Instant now, bool lower_in_flight);
  void see_work(bool reported, Instant now);
  void count_beside(Instant now, uint32_t lower_there);
  void calibrate();
  void shift(Duration by);
  // What own work waits at most for the device to change hands: how much it did, the waits say.
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
  uint32_t computing_ = 0;      // of them not copies
  StreamSlot computes_on_{0};   // the last of those
  bool several_streams_ = false;  // ... are or were on, since none was there
  // Of other streams than the first one in flight: launches after that one which are through.
  std::vector<IterationModel::Spot> overtook_;
  Duration overtook_work_;
  std::vector<InFlight> done_;  // scratch
  uint64_t launched_ = 0;
  uint64_t reached_ = 0;        // the last launch that is through, of any stream
  Instant moved_at_{0};         // the device's last known progress of this client
  Instant busy_since_{0};       // it has had work in flight

  // ---- in the shadow ----
  Instant own_free_{0};        // when it is through with everything launched
  std::vector<Stream> streams_;
  struct Run {                 // of own work on the device, with nobody else there
    Instant from = kNever;     // a completion, or a launch to an idle device
    Instant until = kNever;    // what ran until then is seen
    Duration predicted;        // of what has completed since `from`, as far as seen
    std::vector<std::pair<IterationModel::Spot, Duration>> seen;  // what it took, not told yet
    bool operator==(const Run&) const = default;
  };
  Run run_;
  int64_t real_ns_ = 0;        // of such runs lately
  int64_t predicted_ns_ = 0;
  int64_t scale_x1024_ = 1024; // the one over the other
  Duration service_;           // how long one takes
  int64_t noise_ns_ = 0;       // the largest error lately, with nobody in the way

  // ---- the stretch ----
  Wait wait_;
  Instant began_ = kNever;     // its first launch
  Instant waited_until_{0};
  Duration host_late_;
  uint32_t launches_ = 0;      // since the last wait
  bool clean_ = true;          // no lower work on the device since then
  int64_t blocked_ns_ = 0;
  int64_t blocked_before_ns_ = 0;  // ... until the last wait
  // Own and lower work have been on the device together, since own work was last known to be through.
  int64_t beside_ns_ = 0;
  Instant beside_since_ = kNever;
  bool knows_work_ = true;  // of all launches since the last wait
  uint32_t lower_there_ = 0;  // kernels of lower work on the device

  // ---- turns ----
  int64_t lower_turn_ns_ = 0;  // lower work has run since the client last made progress
};

}  // namespace lull::policies
