#include "policies/jobs/unit.h"

#include <algorithm>

namespace lull::jobs {
namespace {

// Iterations after which an older pace counts half: a job's speed may change over its life.
constexpr uint64_t kPaceMemory = 2000;

}  // namespace

void Pace::add(uint64_t count, Duration each) {
  if (iterations > kPaceMemory) {
    iterations /= 2;
    time.ns /= 2;
  }
  iterations += count;
  time.ns += static_cast<int64_t>(count) * each.ns;
}

const Pace* Job::alone(GpuKind kind, size_t gpus) const {
  for (const Alone& one : alone_) {
    if (one.kind == kind && one.gpus == gpus) return &one.pace;
  }
  return nullptr;
}

Pace& Job::note_alone(GpuKind kind, size_t gpus) {
  for (Alone& one : alone_) {
    if (one.kind == kind && one.gpus == gpus) return one.pace;
  }
  return alone_.emplace_back(kind, gpus, Pace{}, 0.0).pace;
}

double Job::best_per_second(GpuKind kind, size_t gpus) const {
  for (const Alone& one : alone_) {
    if (one.kind == kind && one.gpus == gpus) return one.best_per_second;
  }
  return 0;
}

double Job::reference_per_second(GpuKind kind, size_t gpus) const {
  const Pace* pace_alone = alone(kind, gpus);
  if (pace_alone == nullptr) return 0;
  return std::max(best_per_second(kind, gpus), pace_alone->per_second());
}

void Job::note_best(GpuKind kind, size_t gpus, double per_second) {
  for (Alone& one : alone_) {
    if (one.kind != kind || one.gpus != gpus) continue;
    one.best_per_second = std::max(one.best_per_second, per_second);
  }
}

bool Job::profiled() const {
  return std::any_of(alone_.begin(), alone_.end(),
                     [](const Alone& one) { return one.pace.known(); });
}

Duration Unit::turn(Duration quantum) const {
  return std::max(quantum, Duration{100 * move_cost.ns});
}

uint64_t Unit::least_iterations() const {
  uint64_t least = UINT64_MAX;
  for (const Job* job : jobs) least = std::min(least, job->pace.iterations);
  return least;
}

MultiJobId Unit::multi_job() const {
  const MultiJobId of = first().request.multi_job;
  if (of.value == 0) return of;
  const bool all =
      std::ranges::all_of(jobs, [&](const Job* job) { return job->request.multi_job == of; });
  return all ? of : MultiJobId{};
}

bool Unit::of_one_importance() const {
  return std::ranges::all_of(jobs,
                             [&](const Job* job) { return job->request.priority == priority(); });
}

bool Unit::may_leave() const {
  return std::all_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->may_leave(); });
}

bool Unit::may_stop() const { return !pinned && may_leave(); }

Job* Unit::last_that(bool (Job::*may)() const) const {
  for (size_t i = jobs.size(); i-- > 0;) {
    if ((jobs[i]->*may)()) return jobs[i];
  }
  return nullptr;
}

bool Unit::may_move() const {
  return may_stop() && std::all_of(jobs.begin(), jobs.end(),
                                   [](const Job* job) { return job->request.migratable; });
}

bool Unit::started() const {
  return std::any_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->started; });
}

bool Unit::any_pinned() const {
  return std::any_of(jobs.begin(), jobs.end(), [](const Job* job) { return job->pinned; });
}

}  // namespace lull::jobs
