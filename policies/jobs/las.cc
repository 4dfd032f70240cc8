#include "policies/jobs/las.h"

#include <algorithm>

#include "policies/jobs/ordered_policy.h"

namespace lull::jobs {
namespace {

// Rounds come at multiples of this, so that one round serves all jobs that pass the threshold.
constexpr Duration kGrid{10'000'000'000};

class LeastAttainedService final : public OrderedPolicy {
 public:
  explicit LeastAttainedService(Duration threshold)
      : OrderedPolicy({.preempt = true, .displaced = Why::kLessService}),
        threshold_ns_(static_cast<double>(threshold.ns)) {}

 private:
  bool above(const Unit& unit, Instant now) const {
    return cluster_.served_gpu_ns(unit, now) >= threshold_ns_;
  }

  Key key_of(Instant now, Unit& unit) override {
    return {above(unit, now), static_cast<int64_t>(unit.first().arrival)};
  }

  Instant next_time(Instant now, bool anybody_waits) override {
    if (!anybody_waits) return kNever;
    double soonest_ns = -1;
    for (const Unit* unit : cluster_.units()) {
      if (!unit->running || above(*unit, now)) continue;
      const double left_ns = (threshold_ns_ - cluster_.served_gpu_ns(*unit, now)) /
                             static_cast<double>(unit->gpus.size());
      if (soonest_ns < 0 || left_ns < soonest_ns) soonest_ns = left_ns;
    }
    if (soonest_ns < 0) return kNever;
    return next_multiple(now + Duration{static_cast<int64_t>(soonest_ns)}, kGrid);
  }

  double threshold_ns_;
};

}  // namespace

std::unique_ptr<JobPolicy> make_las(const SettingValues& values) {
  return std::make_unique<LeastAttainedService>(Duration{values["threshold_gpu_s"] * 1'000'000'000});
}

}  // namespace lull::jobs
