#include "policies/jobs/unit.h"

#include <algorithm>

namespace lull::jobs {

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

uint64_t Unit::least_iterations() const {
  uint64_t least = UINT64_MAX;
  for (const Job* job : jobs) least = std::min(least, job->pace.iterations);
  return least;
}

bool Unit::may_stop() const {
  if (pinned) return false;
  return std::all_of(jobs.begin(), jobs.end(),
                     [](const Job* job) { return job->request.suspendable && job->movable; });
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
