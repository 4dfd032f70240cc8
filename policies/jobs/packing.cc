#include "policies/jobs/packing.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lull::jobs {
namespace {

// Use of the GPU by all jobs of a pack, in thousandths, above which a trial is not worth its time:
// Gandiva's table 1 has no gain from 87 % on for two of a kind.
constexpr uint32_t kMostUse = 1750;
// Turns for which a pair that was bad is not tried again, at first.
constexpr int64_t kBadTurns = 15;
// Hosts that are looked at for one job; the list is sorted by use, the first that fits is taken.
constexpr size_t kMostHosts = 64;

uint32_t use_of(const Unit& unit) {
  uint32_t sum = 0;
  for (const Job* job : unit.jobs) sum += job->busy_per_mille;
  return sum;
}

bool use_known(const Unit& unit) {
  return std::all_of(unit.jobs.begin(), unit.jobs.end(),
                     [](const Job* job) { return job->busy_per_mille > 0; });
}

}  // namespace

Packing::Pair Packing::pair_of(const Job& a, const Job& b) {
  return std::minmax(a.request.job.value, b.request.job.value);
}

double Packing::known_worth(const Job& job, const Unit& host) const {
  if (host.jobs.size() != 1) return 0;
  const auto found = worth_.find(pair_of(job, host.first()));
  return found == worth_.end() ? 0 : found->second;
}

void Packing::forget_the_gone(const Cluster& cluster) {
  if (bad_.size() + worth_.size() < 64 + 8 * cluster.units().size()) return;
  const auto gone = [&](const Pair& pair) {
    return cluster.find(JobId{pair.first}) == nullptr ||
           cluster.find(JobId{pair.second}) == nullptr;
  };
  std::erase_if(bad_, [&](const auto& one) { return gone(one.first); });
  std::erase_if(worth_, [&](const auto& one) { return gone(one.first); });
}

void Packing::judge(Instant now, Cluster& cluster, const Arrange& arrange, Cluster::Out& out) {
  forget_the_gone(cluster);
  const std::vector<Unit*> units = cluster.units();
  for (Unit* unit : units) {
    if (unit->jobs.size() < 2 || !unit->running) continue;
    const Group& group = cluster.groups()[cluster.slots()[unit->gpus.front()].group];
    const auto memory = cluster.memory_of(*unit);
    if (!memory || *memory > group.memory_bytes) {
      cluster.unpack(now, *unit->jobs.back(), {Why::kMemory}, out);
      continue;
    }
    const auto worth = cluster.sum_of_rates(*unit);
    if (!worth) continue;
    const bool measured = unit->least_iterations() >= kTrialIterations;
    if (measured && unit->jobs.size() == 2) {
      worth_[pair_of(unit->first(), *unit->jobs.back())] = *worth;
    }
    if (arrange.on_trial(cluster.slots()[unit->gpus.front()].group)) continue;
    if (unit->joined == nullptr) {
      if (!measured || *worth >= 1) continue;
      Job& last = *unit->jobs.back();
      note_bad(now, last, unit->first());
      cluster.unpack(
          now, last,
          {Why::kBadPack, unit->first().request.job, static_cast<int64_t>(*worth * 1000)}, out);
      continue;
    }
    if (!measured && now - unit->joined_at < rules_.patience) continue;
    Job& joined = *unit->joined;
    unit->joined = nullptr;
    if (*worth >= std::max(1.0, unit->sum_before) * (1 + rules_.margin)) continue;
    const Job& other = unit->jobs.front() == &joined ? *unit->jobs.back() : unit->first();
    note_bad(now, joined, other);
    const auto per_mille = static_cast<int64_t>(*worth / std::max(1.0, unit->sum_before) * 1000);
    cluster.unpack(now, joined, {Why::kBadPack, other.request.job, per_mille}, out);
  }
}

void Packing::note_bad(Instant now, const Job& a, const Job& b) {
  const Duration first{kBadTurns * rules_.patience.ns};
  Bad& bad = bad_.try_emplace(pair_of(a, b), Bad{now, first}).first->second;
  bad.until = now + bad.next;
  bad.next = bad.next + bad.next;
}

bool Packing::may_join(Instant now, const Cluster& cluster, const Job& job, const Unit& from,
                       const Unit& host) const {
  if (host.joined != nullptr || host.jobs.size() >= rules_.most || host.extra() > 0) return false;
  if (!host.running || &from == &host || host.pinned || from.pinned) return false;
  if (host.gpus.size() != job.request.gpus || host.priority() != job.request.priority) return false;
  if (job.busy_per_mille == 0 || !use_known(host)) return false;
  if (use_of(host) + job.busy_per_mille > kMostUse) return false;
  const GpuKind kind = cluster.kind_of(host);
  if ((job.request.kinds >> kind.value & 1) == 0) return false;
  if (job.alone(kind, host.gpus.size()) == nullptr) return false;
  for (const Job* other : host.jobs) {
    const auto bad = bad_.find(pair_of(job, *other));
    if (bad != bad_.end() && now < bad->second.until) return false;
    if (other->alone(kind, host.gpus.size()) == nullptr) return false;
  }
  if (!from.gpus.empty() && from.gpus != host.gpus && (!job.request.migratable || !job.movable)) {
    return false;
  }
  const Group& group = cluster.groups()[cluster.slots()[host.gpus.front()].group];
  const auto in_use = cluster.memory_of(host);
  return in_use && job.memory_bytes > 0 && *in_use + job.memory_bytes <= group.memory_bytes;
}

void Packing::tried(Instant now, Unit& host, Job& job, double before) {
  host.joined = &job;
  host.joined_at = now;
  host.sum_before = before;
}

void Packing::try_more(Instant now, Cluster& cluster, std::span<Unit* const> waiting,
                       Cluster::Out& out) {
  std::vector<Unit*> singles;
  for (Unit* unit : waiting) {
    if (unit->jobs.size() == 1 && unit->first().busy_per_mille > 0) singles.push_back(unit);
  }
  if (singles.empty()) return;
  std::map<std::pair<Priority, size_t>, std::vector<Unit*>> hosts;
  for (Unit* unit : cluster.units()) {
    if (!unit->running || unit->joined != nullptr || !use_known(*unit)) continue;
    if (unit->jobs.size() >= rules_.most || use_of(*unit) >= kMostUse) continue;
    hosts[{unit->priority(), unit->gpus.size()}].push_back(unit);
  }
  const auto by_use = [](const Unit* a, const Unit* b) {
    return std::tuple{use_of(*a), a->id} < std::tuple{use_of(*b), b->id};
  };
  for (auto& [shape, some] : hosts) std::sort(some.begin(), some.end(), by_use);
  std::sort(singles.begin(), singles.end(), by_use);
  for (Unit* single : singles) {
    const auto found = hosts.find({single->priority(), single->size()});
    if (found == hosts.end()) continue;
    auto& some = found->second;
    // The first that it has not been tried with, else the one with which it was best.
    Unit* best = nullptr;
    double best_worth = 0;
    const size_t looked_at = std::min(some.size(), kMostHosts);
    for (size_t i = 0; i < looked_at; ++i) {
      if (use_of(*some[i]) + single->first().busy_per_mille > kMostUse) break;
      if (!may_join(now, cluster, single->first(), *single, *some[i])) continue;
      const double worth = known_worth(single->first(), *some[i]);
      if (best != nullptr && worth > 0 && worth <= best_worth) continue;
      if (some[i]->jobs.size() > 1 && !cluster.sum_of_rates(*some[i])) continue;
      best = some[i];
      best_worth = worth;
      if (worth == 0 && some[i]->jobs.size() == 1) break;
    }
    if (best == nullptr) continue;
    const double before = best->jobs.size() > 1 ? *cluster.sum_of_rates(*best) : 1.0;
    Job& job = single->first();
    const JobId other = best->first().request.job;
    const Why why = best_worth > 1 + rules_.margin ? Why::kKeepPack : Why::kTryPack;
    cluster.pack(now, *single, *best, {why, other}, out);
    tried(now, *best, job, before);
    std::erase(some, best);
  }
}

}  // namespace lull::jobs
