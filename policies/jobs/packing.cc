#include "policies/jobs/packing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace lull::jobs {
namespace {

// Use of the GPU by all jobs of a pack, in thousandths, above which a trial is not worth its time:
// Gandiva's table 1 has no gain from 87 % on for two of a kind.
constexpr uint32_t kMostUse = 1750;
// As many siblings are tried together as fill a GPU; their rates then tell how many shall stay.
constexpr uint32_t kFull = 1000;
// A pair that was bad is not tried again for this many turns at first. Moves may make turns longer.
constexpr int64_t kBadTurns = 15;
// Hosts that are looked at for one job, the least used first.
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

bool are_siblings(const Job& a, const Unit& b) {
  return a.request.multi_job.value != 0 && a.request.multi_job == b.multi_job();
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
    Job* last = unit->last_that(&Job::may_stop);
    if (last == nullptr) continue;  // nothing can be undone
    const auto worth = cluster.sum_of_rates(*unit);
    if (!worth) continue;
    const bool measured = unit->least_iterations() >= kTrialIterations;
    if (measured && unit->jobs.size() == 2) {
      worth_[pair_of(unit->first(), *unit->jobs.back())] = *worth;
    }
    if (arrange.keeps(cluster, *unit)) continue;
    if (unit->joined.empty()) {
      if (!measured || *worth >= 1) continue;
      const Job& other = unit->jobs.front() == last ? *unit->jobs.back() : unit->first();
      note_bad(now, cluster, *unit, *last, other);
      cluster.unpack(now, *last,
                     {Why::kBadPack, other.request.job, static_cast<int64_t>(*worth * 1000)}, out);
      continue;
    }
    if (!measured && now - unit->joined_at < rules_.patience) continue;
    const std::vector<Job*> joined = std::exchange(unit->joined, {});
    if (*worth >= std::max(1.0, unit->sum_before) * (1 + rules_.margin)) {
      if (MultiJob* of = cluster.multi_job(*unit)) {
        hold_enough(now, cluster, *of, *unit, *worth, joined, out);
      }
      continue;
    }
    const auto per_mille = static_cast<int64_t>(*worth / std::max(1.0, unit->sum_before) * 1000);
    const Job& host = unit->jobs.front() == joined.front() ? *unit->jobs.back() : unit->first();
    const JobId other = host.request.job;
    note_bad(now, cluster, *unit, *joined.front(), host);
    for (Job* job : joined) {
      if (unit->jobs.size() < 2) break;
      if (!job->may_stop()) continue;
      cluster.unpack(now, *job, {Why::kBadPack, other, per_mille}, out);
    }
  }
}

void Packing::note_bad(Instant now, Cluster& cluster, const Unit& unit, const Job& a,
                       const Job& b) {
  const Duration first{kBadTurns * unit.turn(rules_.patience).ns};
  if (MultiJob* of = cluster.multi_job(unit)) {  // of siblings it counts how many, not which
    of->too_many(now, unit.jobs.size(), first);
    return;
  }
  Bad& bad = bad_.try_emplace(pair_of(a, b), Bad{now, first}).first->second;
  bad.until = now + bad.next;
  bad.next = bad.next + bad.next;
}

// No job is faster than alone: a pack needs at least as many jobs as its sum of rates, rounded up.
void Packing::hold_enough(Instant now, Cluster& cluster, MultiJob& of, Unit& unit, double sum,
                          const std::vector<Job*>& joined, Cluster::Out& out) {
  const size_t enough = std::min(static_cast<size_t>(std::ceil(sum)), unit.jobs.size());
  of.good_together = std::max(of.good_together, enough);
  if (unit.jobs.size() <= of.good_together) return;
  of.too_many(now, of.good_together + 1, Duration{kBadTurns * unit.turn(rules_.patience).ns});
  for (size_t i = joined.size(); i-- > 0 && unit.jobs.size() > of.good_together;) {
    if (!joined[i]->may_stop()) continue;
    cluster.unpack(now, *joined[i], {Why::kTooMany, unit.first().request.job}, out);
  }
}

bool Packing::may_join(Instant now, const Cluster& cluster, const Job& job, const Unit& from,
                       const Unit& host) const {
  if (!host.joined.empty() || host.jobs.size() >= rules_.most || host.extra() > 0) return false;
  if (!host.running || &from == &host || host.pinned || from.pinned) return false;
  if (!job.may_stop()) return false;  // it could not leave again
  if (host.gpus.size() != job.request.gpus || host.priority() != job.request.priority) return false;
  if (!host.of_one_importance()) return false;
  if (job.busy_per_mille == 0 || !use_known(host)) return false;
  if (use_of(host) + job.busy_per_mille > kMostUse) return false;
  const GpuKind kind = cluster.kind_of(host);
  if ((job.request.kinds >> kind.value & 1) == 0) return false;
  if (job.alone(kind, host.gpus.size()) == nullptr) return false;
  const bool siblings = are_siblings(job, host);
  for (const Job* other : host.jobs) {
    const auto bad = bad_.find(pair_of(job, *other));
    if (!siblings && bad != bad_.end() && now < bad->second.until) return false;
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
  host.joined.push_back(&job);
  host.joined_at = now;
  host.sum_before = before;
}

// More on trial: as many as fill the GPU by their use, or half way to the number that was too many.
void Packing::join_siblings(Instant now, Cluster& cluster, std::vector<Unit*>& waiting,
                            bool try_others, Cluster::Out& out) {
  std::map<MultiJobId, std::vector<Unit*>> hosts;
  for (Unit* unit : cluster.units()) {
    const MultiJobId id = unit->multi_job();
    if (unit->running && id.value != 0 && unit->joined.empty()) hosts[id].push_back(unit);
  }
  for (auto& [id, some] : hosts) {
    std::ranges::stable_sort(some, {}, [](const Unit* unit) { return unit->jobs.size(); });
    for (Unit* host : some) {
      const MultiJob& of = *cluster.multi_job(host->first());
      const size_t there = host->jobs.size();
      size_t most = rules_.most;
      if (now < of.bad_until) most = std::min(most, of.bad_together - 1);
      const bool on_trial = there >= of.good_together;
      if (on_trial && !try_others) continue;
      size_t target = on_trial ? most : of.good_together;
      if (on_trial && now < of.bad_until) target = (there + most + 1) / 2;
      target = std::min(target, most);
      const auto before = there == 1 ? 1.0 : cluster.sum_of_rates(*host);
      if (on_trial && !before) continue;
      std::vector<Job*> joined;
      for (size_t i = 0; i < waiting.size() && host->jobs.size() < target;) {
        Unit& single = *waiting[i];
        Job& job = single.first();
        const bool fits =
            !on_trial || joined.empty() || use_of(*host) + job.busy_per_mille <= kFull;
        const bool joins = fits && single.jobs.size() == 1 && job.request.multi_job == id &&
                           may_join(now, cluster, job, single, *host);
        if (!joins) {
          ++i;
          continue;
        }
        waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(i));
        const Why why = on_trial ? Why::kTryPack : Why::kSibling;
        cluster.pack(now, single, *host, {why, host->first().request.job}, out);
        joined.push_back(&job);
      }
      if (!on_trial || joined.empty()) continue;
      host->joined = std::move(joined);
      host->joined_at = now;
      host->sum_before = *before;
    }
  }
}

void Packing::try_more(Instant now, Cluster& cluster, std::vector<Unit*> waiting,
                       Cluster::Out& out) {
  join_siblings(now, cluster, waiting, /*try_others=*/true, out);
  std::vector<Unit*> singles;
  for (Unit* unit : waiting) {
    if (unit->jobs.size() == 1 && unit->first().busy_per_mille > 0) singles.push_back(unit);
  }
  if (singles.empty()) return;
  std::map<std::pair<Priority, size_t>, std::vector<Unit*>> hosts;
  for (Unit* unit : cluster.units()) {
    if (!unit->running || !unit->joined.empty() || !use_known(*unit)) continue;
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
    // The first host that it has not been tried with, else the one with which it made most.
    Unit* best = nullptr;
    double best_worth = 0;
    const size_t looked_at = std::min(some.size(), kMostHosts);
    for (size_t i = 0; i < looked_at; ++i) {
      if (use_of(*some[i]) + single->first().busy_per_mille > kMostUse) break;
      if (are_siblings(single->first(), *some[i])) continue;
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
