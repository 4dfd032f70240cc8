#include "policies/jobs/gandiva.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

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
// A unit that has waited for this many turns counts as one that has had nothing yet.
constexpr int64_t kPatienceTurns = 30;

class Gandiva final : public OrderedPolicy {
 public:
  explicit Gandiva(const SettingValues& values)
      : OrderedPolicy({.preempt = true, .displaced = Why::kTurnOver, .parts_all = true}),
        quantum_{values["quantum_s"] * 1'000'000'000},
        packing_(trial_rules(values)),
        arrange_(trial_rules(values)),
        grow_after_{values["grow_after_s"] * 1'000'000'000},
        level_gpu_ns_(static_cast<double>(values["level_gpu_s"]) * kNsPerSecond),
        survivors_first_(values["survivors_first"] != 0) {}

 private:
  static TrialRules trial_rules(const SettingValues& values) {
    return {.most = static_cast<size_t>(values["pack_most"]),
            .margin = static_cast<double>(values["margin_per_mille"]) / 1000,
            .patience = Duration{values["quantum_s"] * 1'000'000'000}};
  }

  // Whether it has not been measured alone yet; this lasts for a turn at most.
  bool to_be_profiled(Instant now, const Unit& unit) const {
    return unit.jobs.size() == 1 &&
           cluster_.served_gpu_ns(unit, now) <
               static_cast<double>(quantum_.ns) * static_cast<double>(unit.size()) &&
           !unit.first().profiled();
  }

  int64_t level_of(double served_gpu_ns) const {
    if (served_gpu_ns < level_gpu_ns_) return 0;
    return 1 + static_cast<int64_t>(std::log(served_gpu_ns / level_gpu_ns_) / std::log(kLevelStep));
  }
  int64_t level(Instant now, const Unit& unit) const {
    if (!unit.running && (now - unit.since).ns > kPatienceTurns * quantum_.ns) return 0;
    return level_of(cluster_.served_gpu_ns(unit, now));
  }

  // Which of two siblings goes first: the one that has passed fewer looks of their owner, then the
  // one of the lower level of service. With `survivors_first` the one that has passed more.
  using Had = std::pair<int64_t, int64_t>;
  Had had(Instant now, const Job& job) {
    const MultiJob* of = cluster_.multi_job(job);
    const int64_t looks = of == nullptr ? 0 : static_cast<int64_t>(of->looks(job.iterations));
    if (survivors_first_) return {-looks, 0};
    return {looks, level_of(cluster_.served_gpu_ns(job, now))};
  }
  Had had(Instant now, const Unit& unit) {
    Had least{INT64_MAX, INT64_MAX};
    for (const Job* job : unit.jobs) least = std::min(least, had(now, *job));
    return least;
  }

  // While only jobs of its own multi-job wait, a unit has no turns: a single job stays until it has
  // had more than one that waits, and the jobs of a pack change places one by one.
  bool stays(Instant now, const Unit& unit) {
    const MultiJobId id = unit.multi_job();
    if (id.value == 0 || id != waiting_for_.multi_job) return false;
    return unit.jobs.size() > 1 || had(now, unit) <= waiting_for_.least;
  }

  void look_at_waiting(Instant now) {
    waiting_for_ = {};
    bool first = true;
    for (const Unit* unit : cluster_.units()) {
      if (unit->running || unit->held) continue;
      const MultiJobId id = unit->multi_job();
      if (id.value == 0 || (!first && id != waiting_for_.multi_job)) {
        waiting_for_ = {};
        return;
      }
      const Had least = had(now, *unit);
      waiting_for_ = {id, first ? least : std::min(least, waiting_for_.least)};
      first = false;
    }
  }

  // If no GPU is free, a job that may run beside its siblings does so before anybody makes room.
  void join_siblings(Instant now, Cluster::Out& out) {
    if (cluster_.free_gpus() > 0) return;
    std::vector<Unit*> waiting;
    for (Unit* unit : cluster_.units()) {
      if (!unit->running && !unit->held && unit->multi_job().value != 0) waiting.push_back(unit);
    }
    std::ranges::stable_sort(waiting, {}, [&](const Unit* unit) {
      return std::pair{had(now, *unit).first, UINT64_MAX - unit->first().iterations};
    });
    packing_.join_siblings(now, cluster_, waiting, /*try_others=*/false, out);
  }

  // Jobs of a pack make room for siblings of their importance that have had less.
  void change_places(Instant now, std::span<Unit* const> waiting, Cluster::Out& out) {
    const auto kind_of = [](const Unit& unit) {
      return std::pair{unit.multi_job(), unit.priority()};
    };
    std::map<std::pair<MultiJobId, Priority>, std::vector<std::pair<Had, JobId>>> least;
    for (const Unit* unit : waiting) {
      if (unit->running || unit->multi_job().value == 0) continue;
      least[kind_of(*unit)].emplace_back(had(now, *unit), unit->first().request.job);
    }
    for (auto& [kind, some] : least) std::ranges::sort(some, std::greater{});
    const std::vector<Unit*> units = cluster_.units();
    for (Unit* unit : units) {
      const auto found = least.find(kind_of(*unit));
      if (found == least.end() || !unit->running || unit->jobs.size() < 2) continue;
      if (!unit->joined.empty() || !unit->may_move()) continue;
      const std::vector<Job*> jobs = unit->jobs;
      for (Job* job : jobs) {
        auto& next = found->second;  // the last has had the least
        if (next.empty() || unit->jobs.size() < 2) break;
        if (had(now, *job) <= next.back().first) continue;
        cluster_.unpack(now, *job, {Why::kTurnOver, next.back().second}, out);
        next.pop_back();
      }
    }
  }

  Key key_of(Instant now, Unit& unit) override {
    if (to_be_profiled(now, unit)) {
      unit.start_why = Why::kProfile;
      return {0, unit.running ? 0 : 1};
    }
    const int64_t at = level(now, unit);
    const bool sibling = unit.multi_job().value != 0;
    const int64_t looks = sibling ? had(now, unit).first : 0;
    // Of siblings with as many looks, the one nearest to its next look comes first.
    const int64_t left = sibling ? -static_cast<int64_t>(unit.first().iterations) : 0;
    if (unit.running && (turn_end(unit, quantum_) > now || stays(now, unit))) return {1, at, looks};
    if (!unit.running) return {2, at, looks, left, unit.since.ns};
    return {2, at, looks, left, now.ns, -unit.since.ns};
  }

  void before_round(Instant now, Cluster::Out& out) override {
    cluster_.expect_of_siblings();
    packing_.judge(now, cluster_, arrange_, out);
    join_siblings(now, out);
    look_at_waiting(now);
  }

  // A pack that waits stays one, unless its jobs could go apart: where GPUs are free, on loan or
  // with less important jobs. But a pack of two, and one of siblings, is dissolved: its jobs may be
  // packed anew with others.
  bool order_again(Instant now, std::span<Unit* const> waiting) override {
    Priority least{0};
    size_t open = cluster_.free_gpus();
    for (const Unit* unit : cluster_.units()) {
      if (unit->running) least = std::max(least, unit->priority());
      open += unit->extra();
    }
    bool any = false;
    for (Unit* unit : waiting) {
      if (unit->jobs.size() < 2) continue;
      const bool may_part = open >= unit->size() || unit->priority() < least;
      if (unit->jobs.size() > 2 && !may_part && unit->multi_job().value == 0) continue;
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
    change_places(now, waiting, out);
    std::vector<Unit*> left;
    for (Unit* unit : waiting) {
      if (!unit->running) left.push_back(unit);
    }
    packing_.try_more(now, cluster_, std::move(left), out);
  }

  bool keeps_free(size_t group) const override { return arrange_.keeps_free(cluster_, group); }

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
  bool survivors_first_;
  Instant calm_since_ = kNever;  // since when nobody waits
  // The multi-job that all who wait are of, and the least that one of them has had; 0: there is
  // none.
  struct {
    MultiJobId multi_job;
    Had least;
  } waiting_for_;
};

}  // namespace

std::unique_ptr<JobPolicy> make_gandiva(const SettingValues& values) {
  return std::make_unique<Gandiva>(values);
}

}  // namespace lull::jobs
