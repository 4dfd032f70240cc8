// The guard of one important client: what it lost so far, and how much lower work may be on the
// device now. guarded.h says how it decides; GuardedPolicy feeds it. Pure.
#pragma once

#include <cstdint>
#include <deque>

#include "policies/launch/launch_policy.h"
#include "policies/launch/own_timeline.h"
#include "policies/prediction/iteration_detector.h"

namespace lull::policies {

struct GuardLimits {
  int64_t mean_per_mille = 30;
  int64_t tail_per_mille = 50;
};

class TaskGuard {
 public:
  explicit TaskGuard(GuardLimits limits) : limits_(limits) {}

  // ---- the protected client's life ----
  void submitted(const Submitted& launch, Instant now, bool lower_in_flight);
  void completed(uint32_t units, Instant now, bool idle);
  void synced(Instant at);
  // Lower work is on the device: this iteration is not clean.
  void disturbed() { clean_ = false; }

  // ---- answers ----
  bool known() const { return timeline_.known() && detector_.in_step(); }
  // It needs clean iterations to know how one goes.
  bool is_learning() const { return detector_.in_step() && !timeline_.known(); }
  // The lower clients must stay off the device now.
  bool wants_clean() const { return clean_wanted_; }
  // Lower work that may be in flight at `now`, before the time to react is taken off.
  // `lower_in_flight` matters only for how far the device has got.
  Duration room(Instant now, bool lower_in_flight) const;
  // Room as it would be at the best moment of an iteration, without spending.
  Duration best_slack() const;
  // A unit of this length is waiting that fits no room: save for it.
  void save_for(Duration length) { longest_waiting_ = std::max(longest_waiting_, length); }
  void stop_saving() { longest_waiting_ = Duration{}; }
  // Whether the accounts hold what this unit costs now. It is spent by going.
  bool affords(Duration length, Instant now) const;
  void spend_tail() { tail_open_ = true; }
  Duration mean_account() const { return {account_ns_}; }

 private:
  struct InFlight {
    uint32_t position = 0;
    bool in_step = false;
    Duration predicted;
  };
  void finish_iteration(Instant now);
  int64_t allowed_delay_ns() const;
  // Until the host's next wait would end later than its own time if nothing lower ran from now on.
  int64_t slack_ns(Instant now, bool lower_in_flight) const;
  bool between_iterations() const;

  GuardLimits limits_;
  IterationDetector detector_;
  OwnTimeline timeline_;
  uint64_t generation_ = 0;
  std::deque<InFlight> in_flight_;
  Instant moved_at_{0};  // the device's last known progress of this client
  bool began_ = false;
  bool clean_ = true;
  bool clean_wanted_ = true;
  bool tail_open_ = false;
  uint64_t iterations_ = 0;
  uint64_t since_clean_ = 0;
  int64_t account_ns_ = 0;
  int64_t tail_x1000_ = 0;  // iterations over the tail bound that are free, times 1000
  uint32_t over_ = 0;       // iterations in a row over the bound without a reason
  Duration longest_waiting_;
};

}  // namespace lull::policies
