#include "policies/jobs/elastic.h"

#include <algorithm>

namespace lull::jobs {
namespace {

bool may_grow(const Cluster& cluster, const Unit& unit) {
  if (!unit.running || unit.jobs.size() != 1 || unit.pinned || !unit.first().movable) return false;
  if (unit.gpus.size() >= unit.first().request.most_gpus) return false;
  const uint32_t group = cluster.slots()[unit.gpus.front()].group;
  return cluster.groups()[group].free > 0 && cluster.slots()[unit.gpus.back()].group == group;
}

}  // namespace

void grow_elastic(Instant now, Cluster& cluster, Cluster::Out& out) {
  std::vector<Unit*> growing;
  for (Unit* unit : cluster.units()) {
    if (may_grow(cluster, *unit)) growing.push_back(unit);
  }
  std::stable_sort(growing.begin(), growing.end(),
                   [](const Unit* a, const Unit* b) { return a->priority() < b->priority(); });
  for (Unit* unit : growing) {
    Places gpus = unit->gpus;
    const Group& group = cluster.groups()[cluster.slots()[gpus.front()].group];
    for (const GpuIndex index : group.gpus) {
      if (gpus.size() >= unit->first().request.most_gpus) break;
      const Slot& slot = cluster.slots()[index];
      if (slot.present && slot.unit == nullptr) gpus.push_back(index);
    }
    if (gpus.size() > unit->gpus.size()) {
      cluster.resize(now, *unit, std::move(gpus), {Why::kIdleGpus}, out);
    }
  }
}

}  // namespace lull::jobs
