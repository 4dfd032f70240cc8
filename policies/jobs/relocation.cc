#include "policies/jobs/relocation.h"

#include <algorithm>
#include <tuple>

#include "policies/jobs/rounds.h"

namespace lull::jobs {
namespace {

// A job that was moved for its own good stays for this long: a move has to pay.
constexpr Duration kRest{600'000'000'000};
// A job slower than this share of its best is worth a move.
constexpr double kSlow = 0.9;
constexpr uint64_t kSteady = 20;  // iterations after which a pace is believed

// How far apart GPUs are: how many sockets, then how many switches they sit on.
using Spread = std::pair<size_t, size_t>;
constexpr Spread kNearest{1, 1};
Spread spread_of(const Cluster& cluster, const Places& gpus) {
  const auto gpu = [&](size_t i) -> const Gpu& { return cluster.slots()[gpus[i]].gpu; };
  Spread out{0, 0};
  for (size_t i = 0; i < gpus.size(); ++i) {
    bool same_socket = false, same_switch = false;
    for (size_t k = 0; k < i; ++k) {
      if (gpu(k).node != gpu(i).node || gpu(k).socket != gpu(i).socket) continue;
      same_socket = true;
      same_switch |= gpu(k).pcie_switch == gpu(i).pcie_switch;
    }
    out.first += !same_socket;
    out.second += !same_switch;
  }
  return out;
}

// Whether enough GPUs of a faster kind are free, unless that is known to be no better than `here`.
bool may_be_faster(const Cluster& cluster, const Unit& unit, double here) {
  for (uint32_t kind = 0; kind < cluster.kind_of(unit).value; ++kind) {
    if ((unit.first().request.kinds >> kind & 1) == 0) continue;
    if (cluster.free_gpus(GpuKind{kind}) < unit.size()) continue;
    const double there = unit.first().best_per_second(GpuKind{kind}, unit.gpus.size());
    if (there == 0 || there > here / kSlow) return true;
  }
  return false;
}

}  // namespace

bool Relocation::rests(Instant now, const Job& job) const {
  const auto found = moved_.find(job.request.job);
  return found != moved_.end() && now - found->second < kRest;
}

void Relocation::spread(Instant now, Cluster& cluster, Cluster::Out& out) {
  std::erase_if(moved_, [&](const auto& one) { return now - one.second >= kRest; });
  const std::vector<Unit*> units = cluster.units();
  for (Unit* unit : units) {
    if (cluster.free_gpus() == 0) return;
    if (!unit->running || unit->jobs.size() != 1 || unit->extra() > 0) continue;
    if (cluster.node_of(*unit) != cluster.slots()[unit->gpus.back()].gpu.node) continue;
    Job& job = unit->first();
    const GpuKind kind = cluster.kind_of(*unit);
    const double here = job.best_per_second(kind, unit->gpus.size());
    const bool slow = job.pace.iterations >= kSteady && job.pace.per_second() < kSlow * here;
    const Spread apart = spread_of(cluster, unit->gpus);
    if (!slow && apart == kNearest && !may_be_faster(cluster, *unit, here)) continue;
    if (rests(now, job) || !unit->may_move()) continue;
    Places gpus = free_places(cluster, *unit, unit->size());
    if (gpus.empty()) continue;
    const GpuKind other = cluster.slots()[gpus.front()].gpu.kind;
    const double there = job.best_per_second(other, unit->gpus.size());
    Reason reason;
    if (other < kind && (there == 0 || there > here / kSlow)) {
      reason.why = Why::kVacated;
    } else if (other == kind && spread_of(cluster, gpus) < apart) {
      reason.why = Why::kNearer;
    } else if (slow) {
      const auto group = static_cast<int>(cluster.slots()[unit->gpus.front()].group);
      gpus = free_places(cluster, *unit, unit->size(), group);
      if (gpus.empty() || cluster.slots()[gpus.front()].gpu.kind != kind) continue;
      reason = {Why::kInterference, {}, static_cast<int64_t>(job.pace.per_second() / here * 1000)};
    } else {
      continue;
    }
    moved_[job.request.job] = now;
    cluster.migrate(now, *unit, std::move(gpus), reason, out);
  }
}

void Relocation::defragment(Instant now, Cluster& cluster, std::span<Unit* const> waiting,
                            Cluster::Out& out) {
  for (Unit* unit : waiting) {
    if (unit->pinned || unit->size() < 2 || unit->size() > cluster.free_gpus()) continue;
    if (!unit->gpus.empty() && unit->started() && !unit->may_move()) continue;
    const auto& groups = cluster.groups();
    // Nodes by free GPUs, the most first. One will do if enough smaller jobs there fit elsewhere.
    std::vector<size_t> by_free;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].present >= unit->size() && groups[g].free > 0 &&
          cluster.kind_will_do(*unit, groups[g])) {
        by_free.push_back(g);
      }
    }
    std::stable_sort(by_free.begin(), by_free.end(),
                     [&](size_t a, size_t b) { return groups[a].free > groups[b].free; });
    for (const size_t g : by_free) {
      std::vector<Unit*> moving;
      for (const GpuIndex index : groups[g].gpus) {
        Unit* there = cluster.slots()[index].unit;
        if (there != nullptr && there->may_move() && there->extra() == 0 && there->joined.empty() &&
            there->size() < unit->size() && (moving.empty() || moving.back() != there)) {
          moving.push_back(there);
        }
      }
      std::sort(moving.begin(), moving.end(), [](const Unit* a, const Unit* b) {
        return std::tuple{a->size(), a->id} < std::tuple{b->size(), b->id};
      });
      moving.erase(std::unique(moving.begin(), moving.end()), moving.end());
      // Who goes where, on a copy of the numbers of free GPUs.
      std::vector<uint32_t> free(groups.size());
      for (size_t i = 0; i < groups.size(); ++i) free[i] = groups[i].free;
      uint32_t gained = free[g];
      std::vector<Unit*> chosen;
      for (Unit* one : moving) {
        if (gained >= unit->size()) break;
        for (size_t i = 0; i < groups.size(); ++i) {
          if (i == g || free[i] < one->size() || groups[i].kind != groups[g].kind) continue;
          free[i] -= one->size();
          gained += one->size();
          chosen.push_back(one);
          break;
        }
      }
      if (gained < unit->size()) continue;
      for (Unit* one : chosen) {
        Places gpus = free_places(cluster, *one, one->size(), static_cast<int>(g));
        if (gpus.empty()) return;
        cluster.migrate(now, *one, std::move(gpus), {Why::kDefragment, unit->first().request.job},
                        out);
      }
      Places gpus = free_places(cluster, *unit, unit->size());
      if (!gpus.empty()) cluster.start(now, *unit, std::move(gpus), {Why::kFreeGpus}, out);
      return;
    }
  }
}

}  // namespace lull::jobs
