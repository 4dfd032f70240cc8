#include "policies/jobs/arrange.h"

#include <algorithm>
#include <tuple>

namespace lull::jobs {
namespace {

// A job alone below this share of its best has something to gain.
constexpr double kSlow = 0.9;
// The search does not go on from arrangements below this share of the best.
constexpr double kNearly = 0.9;
// The most trials for one set of jobs, and the most of these with all GPUs in use. Six jobs have
// 195 arrangements on four GPUs in use, and more that leave one free: the rest is for those.
constexpr size_t kMostTrials = 192;
constexpr size_t kMostInUse = 128;
// GPUs are left free only where the same jobs have run for this long: that takes more trials, which
// have to pay. Without this time jobs took 1 % longer in 20 simulated draws of `hundred`.
constexpr Duration kSettled{7'200'000'000'000};
// Iterations of each job that tell that an arrangement is below kNearly. Two and four were
// about as good in 1000 simulated draws.
constexpr uint64_t kFewIterations = 3;

bool may_leave(const Job& job) {
  const Unit& unit = *job.unit;
  return job.request.suspendable && job.request.migratable && job.movable && !unit.pinned &&
         unit.extra() == 0;
}

uint64_t mixed(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3; }

uint64_t hash_of(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint64_t value : values) hash = mixed(hash, value + 1);
  return hash ^ hash >> 29;
}

}  // namespace

std::optional<Arrange::Arrangement> Arrange::arrangement_of(const Cluster& cluster,
                                                            const Group& group) {
  Arrangement out;
  for (const GpuIndex index : group.gpus) {
    const Slot& slot = cluster.slots()[index];
    const Unit* unit = slot.unit;
    if (unit == nullptr && slot.present) out.push_back({{index}, {}});
    if (unit == nullptr || unit->gpus.front() != index) continue;
    if (!unit->joined.empty()) return std::nullopt;
    Placement placement{unit->gpus, {}};
    for (const Job* job : unit->jobs) placement.jobs.push_back(job->request.job.value);
    std::sort(placement.jobs.begin(), placement.jobs.end());
    out.push_back(std::move(placement));
  }
  return out;
}

// The same for arrangements that differ only in the order of equal switches and sockets.
uint64_t Arrange::signature(const Cluster& cluster, const Arrangement& how) {
  struct At {
    uint32_t socket, pcie_switch;
    uint64_t pack;
  };
  std::vector<At> all;
  for (const Placement& placement : how) {
    for (const GpuIndex index : placement.gpus) {
      const Gpu& gpu = cluster.slots()[index].gpu;
      all.push_back({gpu.socket, gpu.pcie_switch, hash_of(placement.jobs)});
    }
  }
  std::sort(all.begin(), all.end(), [](const At& a, const At& b) {
    return std::tie(a.socket, a.pcie_switch) < std::tie(b.socket, b.pcie_switch);
  });
  std::vector<uint64_t> sockets;
  for (size_t i = 0; i < all.size();) {
    const uint32_t socket = all[i].socket;
    std::vector<uint64_t> switches;
    while (i < all.size() && all[i].socket == socket) {
      const uint32_t one = all[i].pcie_switch;
      std::vector<uint64_t> packs;
      for (; i < all.size() && all[i].socket == socket && all[i].pcie_switch == one; ++i) {
        packs.push_back(all[i].pack);
      }
      switches.push_back(hash_of(packs));
    }
    sockets.push_back(hash_of(switches));
  }
  return hash_of(sockets);
}

bool Arrange::may_gain(const Cluster& cluster, const Group& group) {
  const Unit* one = nullptr;
  const bool badly = std::ranges::any_of(group.gpus, [&](GpuIndex index) {
    const Unit* unit = cluster.slots()[index].unit;
    if (unit == nullptr) return false;
    one = unit;
    return unit->jobs.size() > 1 || cluster.sum_of_rates(*unit).value_or(1) < kSlow;
  });
  if (!badly || one->multi_job().value == 0) return badly;
  // Jobs of one multi-job are alike: it makes no difference who is beside whom.
  return std::ranges::any_of(group.gpus, [&](GpuIndex index) {
    const Unit* unit = cluster.slots()[index].unit;
    return unit != nullptr && unit->multi_job() != one->multi_job();
  });
}

Arrange::Measured Arrange::measure(const Cluster& cluster, const Arrangement& here) {
  Measured out{.how = here};
  for (const Placement& placement : here) {
    auto& rates = out.per_second.emplace_back();
    for (const uint64_t id : placement.jobs) {
      rates.push_back(cluster.find(JobId{id})->pace.per_second());
    }
  }
  return out;
}

double Arrange::worth(const Cluster& cluster, const Group& group, const Measured& measured,
                      size_t placement) {
  const Placement& there = measured.how[placement];
  double sum = 0;
  for (size_t k = 0; k < there.jobs.size(); ++k) {
    const Job& job = *cluster.find(JobId{there.jobs[k]});
    const double best = job.reference_per_second(group.kind, there.gpus.size());
    if (best > 0) sum += measured.per_second[placement][k] / best;
  }
  return sum;
}

double Arrange::worth(const Cluster& cluster, const Group& group, const Measured& measured) {
  double sum = 0;
  for (size_t i = 0; i < measured.per_second.size(); ++i) sum += worth(cluster, group, measured, i);
  return sum;
}

bool Arrange::far_below(const Cluster& cluster, const Group& group, const Search& search,
                        const Measured& trial) {
  const double here = worth(cluster, group, trial);
  return std::ranges::any_of(search.measured, [&](const Measured& one) {
    return here < kNearly * worth(cluster, group, one);
  });
}

bool Arrange::fits(const Cluster& cluster, const Group& group, const Placement& placement) const {
  if (placement.jobs.size() < 2) return true;
  if (placement.jobs.size() > rules_.most) return false;
  const Priority priority = cluster.find(JobId{placement.jobs.front()})->request.priority;
  uint64_t bytes = 0;
  for (const uint64_t id : placement.jobs) {
    const Job& job = *cluster.find(JobId{id});
    if (job.request.priority != priority || job.memory_bytes == 0 || job.busy_per_mille == 0) {
      return false;
    }
    bytes += job.memory_bytes;
  }
  return bytes <= group.memory_bytes;
}

std::optional<Arrange::Arrangement> Arrange::untried_neighbour(const Cluster& cluster,
                                                               const Group& group,
                                                               const Arrangement& of,
                                                               Search& search) const {
  const auto may_go = [&](const Placement& placement) {
    return std::all_of(placement.jobs.begin(), placement.jobs.end(),
                       [&](uint64_t id) { return may_leave(*cluster.find(JobId{id})); });
  };
  const auto is_new = [&](const Arrangement& how) {
    return search.seen.insert(signature(cluster, how)).second;
  };
  const auto empties = [&](const Placement& placement) {
    return search.frees && placement.jobs.size() == 1 && placement.gpus.size() == 1;
  };
  for (size_t a = 0; a < of.size(); ++a) {  // a packed job, or a single one, joins another unit
    if (of[a].jobs.size() < 2 && !empties(of[a])) continue;
    for (const uint64_t id : of[a].jobs) {
      if (!may_leave(*cluster.find(JobId{id}))) continue;
      for (size_t b = 0; b < of.size(); ++b) {
        if (b == a || of[b].jobs.empty() || of[b].gpus.size() != of[a].gpus.size()) continue;
        const Unit& host = *cluster.find(JobId{of[b].jobs.front()})->unit;
        if (host.pinned || host.extra() > 0) continue;
        Arrangement how = of;
        std::erase(how[a].jobs, id);
        how[b].jobs.insert(std::lower_bound(how[b].jobs.begin(), how[b].jobs.end(), id), id);
        if (fits(cluster, group, how[b]) && is_new(how)) return how;
      }
    }
  }
  for (size_t a = 0; a < of.size(); ++a) {  // two jobs of two packs change places
    for (size_t b = a + 1; b < of.size(); ++b) {
      if (of[a].jobs.size() < 2 || of[b].jobs.size() < 2) continue;
      if (of[a].gpus.size() != of[b].gpus.size()) continue;
      for (const uint64_t one : of[a].jobs) {
        if (!may_leave(*cluster.find(JobId{one}))) continue;
        for (const uint64_t other : of[b].jobs) {
          if (!may_leave(*cluster.find(JobId{other}))) continue;
          Arrangement how = of;
          std::ranges::replace(how[a].jobs, one, other);
          std::ranges::replace(how[b].jobs, other, one);
          std::ranges::sort(how[a].jobs);
          std::ranges::sort(how[b].jobs);
          if (!fits(cluster, group, how[a]) || !fits(cluster, group, how[b])) continue;
          if (is_new(how)) return how;
        }
      }
    }
  }
  for (size_t a = 0; a < of.size(); ++a) {  // two units change places, or one and a free GPU
    for (size_t b = a + 1; b < of.size(); ++b) {
      if (of[a].gpus.size() != of[b].gpus.size()) continue;
      if (!search.frees && (of[a].jobs.empty() || of[b].jobs.empty())) continue;
      if (!may_go(of[a]) || !may_go(of[b])) continue;
      Arrangement how = of;
      std::swap(how[a].jobs, how[b].jobs);
      if (is_new(how)) return how;
    }
  }
  return std::nullopt;
}

std::optional<Arrange::Arrangement> Arrange::next_trial(Instant now, const Cluster& cluster,
                                                        const Group& group, const Arrangement& here,
                                                        Search& search) const {
  if (search.measured.size() > kMostTrials) return std::nullopt;
  const auto same_gpus = [&](const Arrangement& how) {
    return std::ranges::equal(how, here, {}, &Placement::gpus, &Placement::gpus);
  };
  std::vector<double> worths;
  for (const Measured& one : search.measured) worths.push_back(worth(cluster, group, one));
  const double best = std::ranges::max(worths);
  while (true) {
    Measured* from = nullptr;
    double most = 0;
    for (size_t i = 0; i < worths.size(); ++i) {
      Measured& one = search.measured[i];
      if (one.expanded || !same_gpus(one.how) || (from != nullptr && worths[i] <= most)) continue;
      from = &one;
      most = worths[i];
    }
    const bool enough = !search.frees && search.measured.size() > kMostInUse;
    if (from == nullptr || enough || most < best * (search.frees ? 1 : kNearly)) {
      if (search.frees || now - search.begun < kSettled) return std::nullopt;
      search.frees = true;
      for (Measured& one : search.measured) one.expanded = false;
      continue;
    }
    if (auto how = untried_neighbour(cluster, group, from->how, search)) return how;
    from->expanded = true;
  }
}

// All who leave go first, then all who come: a job's new GPUs may be another's old ones.
void Arrange::carry_out(Instant now, Cluster& cluster, const Arrangement& from,
                        const Arrangement& to, std::optional<int64_t> no_better,
                        Cluster::Out& out) {
  const auto has = [](const Placement& placement, uint64_t id) {
    return std::binary_search(placement.jobs.begin(), placement.jobs.end(), id);
  };
  struct Mover {
    Job* job;
    size_t placement;
    Reason reason;
  };
  std::vector<Mover> movers;
  for (size_t i = 0; i < to.size(); ++i) {
    for (const uint64_t id : to[i].jobs) {
      if (has(from[i], id)) continue;
      const auto another = [&](const Placement& placement) -> std::optional<JobId> {
        const auto other =
            std::ranges::find_if(placement.jobs, [&](uint64_t one) { return one != id; });
        return other == placement.jobs.end() ? std::nullopt : std::optional(JobId{*other});
      };
      // `other`: one to run beside, else one whose place the job takes, else one that it leaves.
      const Placement& left =
          *std::ranges::find_if(from, [&](const Placement& one) { return has(one, id); });
      const auto beside = another(to[i]);
      const auto instead = another(from[i]);
      const auto other = beside ? beside : instead ? instead : another(left);
      Reason reason{Why::kFreeGpus};
      if (beside) reason = {Why::kTryPack, *beside};
      if (!beside && instead) reason = {Why::kTryPlace, *instead};
      if (no_better && other) reason = {Why::kNoBetter, *other, *no_better};
      movers.push_back({cluster.find(JobId{id}), i, reason});
    }
  }
  for (const Mover& mover : movers) {
    if (!mover.job->unit->running) continue;
    if (mover.job->unit->jobs.size() > 1) {
      cluster.unpack(now, *mover.job, mover.reason, out);
    } else {
      cluster.stop(now, *mover.job->unit, mover.reason, out);
    }
  }
  for (const Mover& mover : movers) {
    const Places& gpus = to[mover.placement].gpus;
    Unit* host = cluster.slots()[gpus.front()].unit;
    if (host == nullptr) {
      cluster.start(now, *mover.job->unit, gpus, mover.reason, out);
    } else {
      cluster.pack(now, *mover.job->unit, *host, mover.reason, out);
    }
  }
}

void Arrange::step(Instant now, Cluster& cluster, Cluster::Out& out) {
  calm_ = true;
  searches_.resize(cluster.groups().size());
  for (size_t g = 0; g < searches_.size(); ++g) {
    const Group& group = cluster.groups()[g];
    if (group.present - group.free < 2) continue;
    Search& search = searches_[g];
    const bool rests = !search.trial && search.measured.empty();
    if (rests && !may_gain(cluster, group)) continue;
    const auto here = arrangement_of(cluster, group);
    if (!here) continue;
    std::vector<uint64_t> jobs;
    for (const Placement& placement : *here)
      jobs.insert(jobs.end(), placement.jobs.begin(), placement.jobs.end());
    std::sort(jobs.begin(), jobs.end());
    if (search.jobs != jobs) {
      search = {};
      search.jobs = std::move(jobs);
      search.begun = now;
    }
    // Somebody else has moved the jobs: this arrangement is measured as any other.
    const bool moved = search.trial ? *search.trial != *here
                                    : search.over && search.measured[search.best].how != *here;
    if (moved && search.measured.size() <= kMostTrials) {
      search.trial = here;
      search.since = now;
      search.over = false;
    }
    if (search.over && !search.frees && now - search.begun >= kSettled) search.over = false;
    if (search.over || moved) continue;
    const bool known = cluster.sum_of_rates(group.node).has_value();
    if (search.trial) {
      Measured trial = measure(cluster, *here);
      const bool over = known || (cluster.sum_of_rates(group.node, kFewIterations) &&
                                  far_below(cluster, group, search, trial));
      if (!over && now - search.since < Duration{4 * rules_.patience.ns}) continue;
      search.measured.push_back(over ? std::move(trial) : Measured{.how = *here});
      search.trial.reset();
    } else if (search.measured.empty()) {
      if (!known || !may_gain(cluster, group)) continue;
      search.measured.push_back(measure(cluster, *here));
      search.seen.insert(signature(cluster, *here));
    }
    if (auto next = next_trial(now, cluster, group, *here, search)) {
      carry_out(now, cluster, *here, *next, std::nullopt, out);
      search.trial = std::move(next);
      search.since = now;
      continue;
    }
    search.over = true;
    search.best = 0;
    const double first = worth(cluster, group, search.measured.front());
    double most = first;
    for (size_t i = 1; i < search.measured.size(); ++i) {
      const double one = worth(cluster, group, search.measured[i]);
      if (one < first + rules_.margin || one <= most) continue;
      search.best = i;
      most = one;
    }
    const Measured& best = search.measured[search.best];
    const bool same_gpus =
        std::ranges::equal(best.how, *here, {}, &Placement::gpus, &Placement::gpus);
    if (best.how == *here || !same_gpus) continue;
    const double last = worth(cluster, group, search.measured.back());
    carry_out(now, cluster, *here, best.how,
              most > 0 ? static_cast<int64_t>(last / most * 1000) : 0, out);
  }
}

const Arrange::Measured* Arrange::found(const Cluster& cluster, size_t group) const {
  if (group >= searches_.size() || !searches_[group].over) return nullptr;
  const Search& search = searches_[group];
  const Measured& best = search.measured[search.best];
  return arrangement_of(cluster, cluster.groups()[group]) == best.how ? &best : nullptr;
}

bool Arrange::keeps(const Cluster& cluster, const Unit& pack) const {
  const size_t index = cluster.slots()[pack.gpus.front()].group;
  if (index < searches_.size() && searches_[index].trial) return true;
  const Measured* best = calm_ ? found(cluster, index) : nullptr;
  if (best == nullptr) return false;
  const auto placement = std::ranges::find(best->how, pack.gpus, &Placement::gpus);
  const auto at = static_cast<size_t>(placement - best->how.begin());
  return at < best->per_second.size() && worth(cluster, cluster.groups()[index], *best, at) < 1;
}

bool Arrange::keeps_free(const Cluster& cluster, size_t group) const {
  if (group >= searches_.size() || searches_[group].measured.empty()) return false;
  const Search& search = searches_[group];
  const auto free_in = [](const Arrangement& how) {
    return std::ranges::count_if(how,
                                 [](const Placement& placement) { return placement.jobs.empty(); });
  };
  const auto first = free_in(search.measured.front().how);
  if (search.trial) {
    return free_in(*search.trial) > first &&
           arrangement_of(cluster, cluster.groups()[group]) == search.trial;
  }
  const Measured* best = found(cluster, group);
  return best != nullptr && free_in(best->how) > first;
}

void Arrange::drop() {
  calm_ = false;
  for (Search& search : searches_) search.trial.reset();
}

}  // namespace lull::jobs
