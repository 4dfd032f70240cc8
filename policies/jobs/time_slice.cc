#include "policies/jobs/time_slice.h"

#include "policies/jobs/ordered_policy.h"

namespace lull::jobs {
namespace {

class TimeSlice final : public OrderedPolicy {
 public:
  explicit TimeSlice(Duration quantum)
      : OrderedPolicy({.preempt = true, .displaced = Why::kTurnOver}), quantum_(quantum) {}

 private:
  Key key_of(Instant now, Unit& unit) override {
    if (!unit.running) return {1, unit.since.ns};
    if (turn_end(unit, quantum_) > now) return {0};
    return {1, now.ns, -unit.since.ns};  // who has run longest is the first to go
  }

  Instant next_time(Instant now, bool anybody_waits) override {
    return anybody_waits ? next_multiple(now, quantum_) : kNever;
  }

  Duration quantum_;
};

}  // namespace

std::unique_ptr<JobPolicy> make_time_slice(const SettingValues& values) {
  return std::make_unique<TimeSlice>(Duration{values["quantum_s"] * 1'000'000'000});
}

}  // namespace lull::jobs
