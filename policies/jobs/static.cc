#include "policies/jobs/static.h"

#include "policies/jobs/ordered_policy.h"

namespace lull::jobs {
namespace {

class Static final : public OrderedPolicy {
 public:
  Static() : OrderedPolicy({}) {}

 private:
  Key key_of(Instant, Unit& unit) override { return {static_cast<int64_t>(unit.first().arrival)}; }

  void after_round(Instant now, std::span<Unit* const> waiting, Cluster::Out& out) override {
    for (Unit* unit : waiting) {
      const auto memory = cluster_.memory_of(*unit);
      if (!memory || unit->pinned) continue;
      Unit* best = nullptr;
      for (Unit* host : cluster_.units()) {
        if (!host->running || host->priority() != unit->priority()) continue;
        if (!host->of_one_importance() || host->size() != unit->size()) continue;
        if (unit->started() && unit->gpus != host->gpus && !unit->may_move()) continue;
        const Group& group = cluster_.groups()[cluster_.slots()[host->gpus.front()].group];
        const auto in_use = cluster_.memory_of(*host);
        if (!in_use || *in_use + *memory > group.memory_bytes) continue;
        if (!cluster_.kind_will_do(*unit, group)) continue;
        if (best == nullptr || host->jobs.size() < best->jobs.size()) best = host;
      }
      if (best == nullptr) continue;
      cluster_.pack(now, *unit, *best, {Why::kOnlySharing}, out);
    }
  }
};

}  // namespace

std::unique_ptr<JobPolicy> make_static(const SettingValues&) { return std::make_unique<Static>(); }

}  // namespace lull::jobs
