#include "policies/jobs/cluster.h"

#include <algorithm>
#include <cassert>

namespace lull::jobs {
namespace {

// A pace of this many iterations is worth comparing with.
constexpr uint64_t kSteady = 20;

template <typename... F>
struct Overload : F... {
  using F::operator()...;
};

}  // namespace

Job* Cluster::find(JobId job) const {
  const auto found = jobs_.find(job.value);
  return found == jobs_.end() ? nullptr : found->second.get();
}

std::optional<GpuIndex> Cluster::index_of(DeviceId device) const {
  const auto found = index_.find(device.value);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

Places Cluster::places(const GpuSet& gpus) const {
  Places out;
  for (const DeviceId device : gpus) {
    const auto index = index_of(device);
    if (!index || !slots_[*index].present) return {};
    out.push_back(*index);
  }
  std::sort(out.begin(), out.end());
  return out;
}

GpuSet Cluster::devices(const Places& gpus) const {
  GpuSet out;
  for (const GpuIndex index : gpus) out.push_back(slots_[index].gpu.device);
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<uint64_t> Cluster::memory_of(const Unit& unit) const {
  uint64_t sum = 0;
  for (const Job* job : unit.jobs) {
    if (job->memory_bytes == 0) return std::nullopt;
    sum += job->memory_bytes;
  }
  return sum;
}

bool Cluster::kind_will_do(const Unit& unit, const Group& group) const {
  uint64_t bytes = 0;
  for (const Job* job : unit.jobs) {
    if ((job->request.kinds >> group.kind.value & 1) == 0) return false;
    bytes += job->memory_bytes;
  }
  return bytes <= group.memory_bytes;
}

double Cluster::served_gpu_ns(const Job& job, Instant now) const {
  const Unit& unit = *job.unit;
  if (!unit.running) return job.served_gpu_ns;
  return job.served_gpu_ns + static_cast<double>((now - unit.settled).ns) *
                                 static_cast<double>(unit.gpus.size()) /
                                 static_cast<double>(unit.jobs.size());
}

double Cluster::served_gpu_ns(const Unit& unit, Instant now) const {
  double least = served_gpu_ns(unit.first(), now);
  for (const Job* job : unit.jobs) least = std::min(least, served_gpu_ns(*job, now));
  return least;
}

std::optional<double> Cluster::sum_of_rates(const Unit& unit) const {
  double sum = 0;
  for (const Job* job : unit.jobs) {
    const double best = job->reference_per_second(kind_of(unit), unit.gpus.size());
    if (best == 0 || !job->pace.known()) return std::nullopt;
    sum += job->pace.per_second() / best;
  }
  return sum;
}

std::optional<double> Cluster::sum_of_rates(NodeId node, uint64_t iterations) const {
  double sum = 0;
  for (const uint32_t group : groups_of_.at(node)) {
    for (const GpuIndex index : groups_[group].gpus) {
      const Unit* unit = slots_[index].unit;
      if (unit == nullptr || unit->gpus.front() != index) continue;
      const auto rates = sum_of_rates(*unit);
      if (!rates || unit->least_iterations() < iterations) return std::nullopt;
      sum += *rates;
    }
  }
  return sum;
}

// ---- events ---------------------------------------------------------------------------------

bool Cluster::apply(Instant now, const Event& event) {
  return std::visit(Overload{
                        [&](const JobArrived& e) {
                          if (find(e.request.job) != nullptr || e.request.gpus == 0) return false;
                          auto job = std::make_unique<Job>();
                          job->request = e.request;
                          job->arrival = arrivals_++;
                          job->arrived = now;
                          job->memory_bytes = e.request.memory_bytes;
                          if (job->request.multi_job.value != 0) {
                            multi_jobs_[job->request.multi_job].members++;
                          }
                          make_unit(*job, now);
                          jobs_.emplace(e.request.job.value, std::move(job));
                          return true;
                        },
                        [&](const JobFinished& e) {
                          const Job* job = leave(now, e.job);
                          if (job == nullptr) return false;
                          if (MultiJob* of = multi_job(*job)) of->ended(job->iterations);
                          forget(*job);
                          return true;
                        },
                        [&](const JobFailed& e) {
                          const Job* job = leave(now, e.job);
                          if (job == nullptr) return false;
                          forget(*job);
                          return true;
                        },
                        [&](const JobLost& e) {
                          Job* job = leave(now, e.job);
                          if (job == nullptr) return false;
                          job->started = false;
                          make_unit(*job, now);
                          return true;
                        },
                        [&](const JobStands& e) {
                          stands(now, e);
                          return true;
                        },
                        [&](const IterationsFinished& e) { return iterations(e); },
                        [&](const MemoryInUse& e) {
                          Job* job = find(e.job);
                          if (job == nullptr || e.bytes <= job->memory_bytes) return false;
                          job->memory_bytes = e.bytes;
                          return job->unit->jobs.size() > 1;
                        },
                        [&](const DeviceLoad& e) {
                          const auto index = index_of(e.device);
                          if (!index) return false;
                          const Slot& slot = slots_[*index];
                          if (slot.unit == nullptr || slot.unit->jobs.size() != 1) return false;
                          if (slot.unit->gpus.front() != *index) return false;
                          Job& job = slot.unit->first();
                          job.busy_per_mille = std::max(e.busy_per_mille, 1u);
                          if (MultiJob* of = multi_job(job)) of->was_busy(job.busy_per_mille);
                          return false;
                        },
                        [&](const DeviceAppeared& e) {
                          appear(e.gpu);
                          return true;
                        },
                        [&](const DeviceVanished& e) {
                          vanish(now, e.device);
                          return true;
                        },
                        [&](const MoveDone& e) {
                          if (Job* job = find(e.job)) job->unit->move_cost = e.took;
                          return false;
                        },
                        [&](const Command&) { return true; },
                        [&](const TimerDue&) { return true; },
                    },
                    event);
}

bool Cluster::iterations(const IterationsFinished& event) {
  Job* job = find(event.job);
  if (job == nullptr || event.count == 0 || event.each.ns <= 0 || !job->unit->running) return false;
  job->pace.add(event.count, event.each);
  job->iterations += event.count;
  if (job->unit->jobs.size() == 1) {
    const GpuKind kind = kind_of(*job->unit);
    const size_t gpus = job->unit->gpus.size();
    job->note_alone(kind, gpus).add(event.count, event.each);
    if (MultiJob* of = multi_job(*job)) of->ran_alone(kind, gpus, event.count, event.each);
    if (job->pace.iterations >= kSteady) job->note_best(kind, gpus, job->pace.per_second());
  }
  return false;
}

void Cluster::appear(const Gpu& gpu) {
  if (const auto index = index_of(gpu.device)) {  // it is back
    Slot& slot = slots_[*index];
    if (slot.present) return;
    slot.present = true;
    groups_[slot.group].present++;
    add_free(groups_[slot.group], 1);
    return;
  }
  const auto index = static_cast<GpuIndex>(slots_.size());
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& one) {
    return one.node == gpu.node && one.kind == gpu.kind;
  });
  if (group == groups_.end()) {
    groups_of_[gpu.node].push_back(static_cast<uint32_t>(groups_.size()));
    groups_.push_back({.node = gpu.node, .kind = gpu.kind, .memory_bytes = gpu.memory_bytes});
    group = std::prev(groups_.end());
  }
  group->memory_bytes = std::min(group->memory_bytes, gpu.memory_bytes);
  group->gpus.push_back(index);
  group->present++;
  add_free(*group, 1);
  slots_.push_back({.gpu = gpu, .group = static_cast<uint32_t>(group - groups_.begin())});
  index_.emplace(gpu.device.value, index);
}

void Cluster::vanish(Instant now, DeviceId device) {
  const auto index = index_of(device);
  if (!index || !slots_[*index].present) return;
  Slot& slot = slots_[*index];
  if (slot.unit != nullptr) stopped(now, *slot.unit);  // JobLost follows
  slot.present = false;
  groups_[slot.group].present--;
  add_free(groups_[slot.group], -1);
}

void Cluster::stands(Instant now, const JobStands& event) {
  Job* job = find(event.job);
  if (job == nullptr) return;
  Unit& unit = job->unit->jobs.size() > 1 ? split(now, *job) : *job->unit;
  if (unit.running) {
    settle(now, unit);
    give(unit);
  }
  job->movable = event.movable;
  job->started = true;
  unit.running = false;
  unit.since = now;
  unit.gpus = places(event.gpus);
  forget_pace(unit);
  if (!event.running || unit.gpus.empty()) return;
  Unit* there = slots_[unit.gpus.front()].unit;
  if (there != nullptr && there->gpus == unit.gpus) {  // it runs beside those
    settle(now, *there);
    remove_unit(unit);
    there->jobs.push_back(job);
    there->pinned = there->any_pinned();
    there->unasked = true;
    job->unit = there;
    forget_pace(*there);
    return;
  }
  for (const GpuIndex index : unit.gpus) {
    if (Unit* other = slots_[index].unit) stopped(now, *other);
  }
  unit.running = true;
  unit.settled = now;
  take(unit);
}

// ---- units ----------------------------------------------------------------------------------

Unit& Cluster::make_unit(Job& job, Instant now) {
  auto made = std::make_unique<Unit>();
  Unit& unit = *made;
  unit.id = made_units_++;
  unit.jobs = {&job};
  unit.since = now;
  job.unit = &unit;
  owned_.emplace(unit.id, std::move(made));
  units_.push_back(&unit);  // ids ascend
  return unit;
}

void Cluster::remove_unit(Unit& unit) {
  const auto at = std::lower_bound(units_.begin(), units_.end(), unit.id,
                                   [](const Unit* one, uint64_t id) { return one->id < id; });
  units_.erase(at);
  owned_.erase(unit.id);
}

Job* Cluster::leave(Instant now, JobId id) {
  Job* job = find(id);
  if (job == nullptr) return nullptr;
  Unit& unit = *job->unit;
  if (unit.running) settle(now, unit);
  if (unit.jobs.size() == 1) {
    if (unit.running) give(unit);
    remove_unit(unit);
  } else {
    take_out(unit, *job);
  }
  job->unit = nullptr;
  job->pace = {};
  return job;
}

void Cluster::forget(const Job& job) {
  const auto of = multi_jobs_.find(job.request.multi_job);
  if (of != multi_jobs_.end() && --of->second.members == 0) multi_jobs_.erase(of);
  std::erase_if(wishes_, [&](const Command& wish) { return wish.job == job.request.job; });
  jobs_.erase(job.request.job.value);
}

MultiJob* Cluster::multi_job(const Job& job) {
  const auto found = multi_jobs_.find(job.request.multi_job);
  return found == multi_jobs_.end() ? nullptr : &found->second;
}

MultiJob* Cluster::multi_job(const Unit& unit) {
  return unit.multi_job().value == 0 ? nullptr : multi_job(unit.first());
}

void Cluster::expect_of_siblings() {
  if (multi_jobs_.empty()) return;
  for (const Unit* unit : units_) {
    for (Job* job : unit->jobs) {
      if (job->busy_per_mille > 0 && job->profiled()) continue;
      if (const MultiJob* of = multi_job(*job)) of->expect(*job);
    }
  }
}

Unit& Cluster::split(Instant now, Job& job) {
  Unit& old = *job.unit;
  if (old.running) settle(now, old);
  take_out(old, job);
  Unit& unit = make_unit(job, now);
  unit.pinned = job.pinned;
  if (job.pinned) unit.wanted = old.wanted;
  unit.gpus = old.gpus;
  unit.move_cost = old.move_cost;
  job.pace = {};
  return unit;
}

void Cluster::take_out(Unit& pack, Job& job) {
  std::erase(pack.jobs, &job);
  std::erase(pack.joined, &job);
  forget_pace(pack);
  pack.pinned = pack.any_pinned();
  if (pack.jobs.size() > 1) return;
  pack.joined.clear();
  pack.unasked = false;
}

// Only a pack that a decision has made waits as one, to go on together.
void Cluster::stopped(Instant now, Unit& unit) {
  settle(now, unit);
  give(unit);
  unit.running = false;
  unit.since = now;
  forget_pace(unit);
  if (unit.unasked || unit.pinned || !unit.of_one_importance()) dissolve(now, unit);
}

// A packed job is charged its share of what the unit has had.
void Cluster::settle(Instant now, Unit& unit) {
  const double had = static_cast<double>((now - unit.settled).ns) *
                     static_cast<double>(unit.gpus.size()) / static_cast<double>(unit.jobs.size());
  for (Job* job : unit.jobs) job->served_gpu_ns += had;
  unit.settled = now;
}

void Cluster::add_free(Group& group, int gpus) {
  group.free += static_cast<uint32_t>(gpus);
  free_gpus_ += static_cast<uint32_t>(gpus);
  free_of_kind_[group.kind] += static_cast<uint32_t>(gpus);
}

void Cluster::take(Unit& unit) {
  size_t taken = 0;
  for (const GpuIndex index : unit.gpus) {
    Slot& slot = slots_[index];
    assert(slot.unit == nullptr);
    slot.unit = &unit;
    slot.extra = taken++ >= unit.size();
    add_free(groups_[slot.group], -1);
  }
}

void Cluster::give(Unit& unit) {
  for (const GpuIndex index : unit.gpus) {
    Slot& slot = slots_[index];
    if (slot.unit != &unit) continue;
    slot.unit = nullptr;
    slot.extra = false;
    add_free(groups_[slot.group], 1);
  }
}

void Cluster::forget_pace(Unit& unit) {
  for (Job* job : unit.jobs) job->pace = {};
}

}  // namespace lull::jobs
