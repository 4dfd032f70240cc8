#include "policies/jobs/exchange.h"

#include <algorithm>

namespace lull::jobs {
namespace {

// A job below this share of its best has something to gain.
constexpr double kSlow = 0.9;

Unit* running_unit(const Cluster& cluster, uint64_t id) {
  const auto& units = cluster.units();
  const auto at = std::lower_bound(units.begin(), units.end(), id,
                                   [](const Unit* one, uint64_t value) { return one->id < value; });
  return at != units.end() && (*at)->id == id && (*at)->running ? *at : nullptr;
}

uint32_t group_of(const Cluster& cluster, const Unit& unit) {
  return cluster.slots()[unit.gpus.front()].group;
}

bool may_exchange(const Unit& unit) {
  return unit.running && unit.may_move() && unit.extra() == 0 && unit.joined == nullptr;
}

}  // namespace

bool Exchange::judge(Instant now, Cluster& cluster, Cluster::Out& out) {
  if (!trial_) return false;
  Unit* a = running_unit(cluster, trial_->a);
  Unit* b = running_unit(cluster, trial_->b);
  if (a == nullptr || b == nullptr || !may_exchange(*a) || !may_exchange(*b) ||
      a->gpus.size() != b->gpus.size() || group_of(cluster, *a) != group_of(cluster, *b)) {
    trial_.reset();
    return false;
  }
  const auto sum = cluster.sum_of_rates(trial_->node, trial_->node);
  if (!sum && now - trial_->since < Duration{4 * patience_.ns}) return true;
  const Trial trial = *trial_;
  trial_.reset();
  if (sum && *sum >= trial.sum_before + margin_) {
    tried_.clear();  // another order of things: what was no better before may be now
    return false;
  }
  const auto per_mille = sum ? static_cast<int64_t>(*sum / trial.sum_before * 1000) : 0;
  cluster.exchange(now, *a, *b, Why::kNoBetter, per_mille, out);
  return false;
}

void Exchange::try_one(Instant now, Cluster& cluster, Cluster::Out& out) {
  if (generation_ != cluster.generation()) {
    generation_ = cluster.generation();
    tried_.clear();
  }
  for (Unit* a : cluster.units()) {
    if (!may_exchange(*a)) continue;
    const Gpu& here = cluster.slots()[a->gpus.front()].gpu;
    const auto rates = cluster.sum_of_rates(*a);
    if (!rates || (a->jobs.size() == 1 && *rates >= kSlow)) continue;
    const Group& group = cluster.groups()[cluster.slots()[a->gpus.front()].group];
    for (const GpuIndex index : group.gpus) {
      Unit* b = cluster.slots()[index].unit;
      const Gpu& there = cluster.slots()[index].gpu;
      if (b == nullptr || b == a || b->gpus.front() != index || !may_exchange(*b)) continue;
      if (b->gpus.size() != a->gpus.size()) continue;
      if (there.socket == here.socket && there.pcie_switch == here.pcie_switch) continue;
      const auto pair = std::minmax(a->id, b->id);
      if (tried_.contains(pair)) continue;
      const auto sum = cluster.sum_of_rates(here.node, here.node);
      if (!sum) break;  // not measured yet
      tried_.insert(pair);
      trial_ = {a->id, b->id, here.node, *sum, now};
      cluster.exchange(now, *a, *b, Why::kTryPlace, 0, out);
      return;
    }
  }
}

}  // namespace lull::jobs
