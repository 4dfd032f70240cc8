#include "policies/jobs/gandiva.h"

#include <algorithm>
#include <cmath>

#include "policies/jobs/arrange.h"
#include "policies/jobs/elastic.h"
#include "policies/jobs/ordered_policy.h"
#include "policies/jobs/packing.h"
#include "policies/jobs/relocation.h"

namespace lull::jobs {
namespace {

constexpr double kNsPerSecond = 1e9;
// A level's service is this many times that of the one before.
constexpr double kLevelStep = 4;
// Who has waited for so many turns is as good as one that had nothing yet.
constexpr int64_t kPatienceTurns = 30;

class Gandiva final : public OrderedPolicy {
 public:
  explicit Gandiva(const SettingValues& values)
      : OrderedPolicy({.preempt = true, .displaced = Why::kTurnOver}),
        quantum_{values[0] * 1'000'000'000},
        packing_(trial_rules(values)),
        arrange_(trial_rules(values)),
        grow_after_{values[3] * 1'000'000'000},
        level_gpu_ns_(static_cast<double>(values[4]) * kNsPerSecond) {}

 private:
  static TrialRules trial_rules(const SettingValues& values) {
    return {.most = static_cast<size_t>(values[1]),
            .margin = static_cast<double>(values[2]) / 1000,
            .patience = Duration{values[0] * 1'000'000'000}};
  }

  // Not yet measured alone, and not for longer than a turn.
  bool to_be_profiled(Instant now, const Unit& unit) const {
    return unit.jobs.size() == 1 && !unit.first().profiled() &&
           cluster_.served_gpu_ns(unit, now) <
               static_cast<double>(quantum_.ns) * static_cast<double>(unit.size());
  }

  int64_t level(Instant now, const Unit& unit) const {
    if (!unit.running && (now - unit.since).ns > kPatienceTurns * quantum_.ns) return 0;
    const double served = cluster_.served_gpu_ns(unit, now);
    if (served < level_gpu_ns_) return 0;
    return 1 + static_cast<int64_t>(std::log(served / level_gpu_ns_) / std::log(kLevelStep));
  }

  Key key_of(Instant now, Unit& unit) override {
    if (to_be_profiled(now, unit)) {
      unit.start_why = Why::kProfile;
      return {0, unit.running ? 0 : 1};
    }
    if (unit.running && turn_end(unit, quantum_) > now) return {1, level(now, unit)};
    if (!unit.running) return {2, level(now, unit), unit.since.ns};
    return {2, level(now, unit), now.ns, -unit.since.ns};
  }

  void before_round(Instant now, Cluster::Out& out) override {
    packing_.judge(now, cluster_, arrange_, out);
  }

  // A pack that waits goes as one, unless its jobs could go apart: where GPUs are free, or with
  // less important jobs. One of two may be made anew with others.
  bool order_again(Instant now, std::span<Unit* const> waiting) override {
    Priority least{0};
    for (const Unit* unit : cluster_.units()) {
      if (unit->running) least = std::max(least, unit->priority());
    }
    bool any = false;
    for (Unit* unit : waiting) {
      if (unit->jobs.size() < 2) continue;
      const bool may_part = cluster_.free_gpus() >= unit->size() || unit->priority() < least;
      if (unit->jobs.size() > 2 && !may_part) continue;
      cluster_.dissolve(now, *unit);
      any = true;
    }
    return any;
  }

  void after_round(Instant now, std::span<Unit* const> waiting, Cluster::Out& out) override {
    if (waiting.empty()) {
      if (calm_since_ == kNever) calm_since_ = now;
      relocation_.spread(now, cluster_, out);
      arrange_.step(now, cluster_, out);
      if (now - calm_since_ >= grow_after_) grow_elastic(now, cluster_, out);
      return;
    }
    calm_since_ = kNever;
    arrange_.drop();
    relocation_.defragment(now, cluster_, waiting, out);
    std::vector<Unit*> left;
    for (Unit* unit : waiting) {
      if (!unit->running) left.push_back(unit);
    }
    packing_.try_more(now, cluster_, left, out);
  }

  Instant next_time(Instant now, bool) override {
    if (cluster_.units().empty()) return kNever;
    return next_multiple(now, Duration{quantum_.ns / 2});
  }

  Duration quantum_;
  Packing packing_;
  Arrange arrange_;
  Relocation relocation_;
  Duration grow_after_;
  double level_gpu_ns_;
  Instant calm_since_ = kNever;  // since when nobody waits
};

}  // namespace

std::unique_ptr<JobPolicy> make_gandiva(const SettingValues& values) {
  return std::make_unique<Gandiva>(values);
}

}  // namespace lull::jobs
