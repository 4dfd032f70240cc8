#include "policies/jobs/multi_job.h"

#include <algorithm>

namespace lull::jobs {
namespace {

// How many ends are remembered, and how many are needed before they tell anything.
constexpr size_t kEndsKept = 32;
constexpr size_t kEndsNeeded = 3;
// Iterations are told of late: a look is taken to come later than was seen, by this factor. A job
// that is stopped just before a look would make its owner wait.
constexpr double kLate = 1.1;

}  // namespace

void MultiJob::ran_alone(GpuKind kind, size_t gpus, uint64_t count, Duration each) {
  auto found = std::ranges::find_if(
      alone_, [&](const Alone& one) { return one.kind == kind && one.gpus == gpus; });
  if (found == alone_.end()) found = alone_.insert(found, {kind, gpus, {}});
  found->pace.add(count, each);
}

void MultiJob::was_busy(uint32_t per_mille) {
  ++loads_;
  load_per_mille_ += per_mille;
}

void MultiJob::ended(uint64_t iterations) {
  ends_.push_back(iterations);
  if (ends_.size() > kEndsKept) ends_.pop_front();
}

void MultiJob::too_many(Instant now, size_t together, Duration first) {
  bad_together = together;
  good_together = std::min(good_together, together - 1);
  bad_for = bad_for.ns == 0 ? first : bad_for + bad_for;
  bad_until = now + bad_for;
}

void MultiJob::expect(Job& job) const {
  if (job.busy_per_mille == 0 && loads_ > 0) {
    job.busy_per_mille = static_cast<uint32_t>(std::max<uint64_t>(1, load_per_mille_ / loads_));
  }
  for (const Alone& one : alone_) {
    if (job.alone(one.kind, one.gpus) != nullptr) continue;
    // As one iteration: what is measured of the job itself soon counts for more.
    job.note_alone(one.kind, one.gpus)
        .add(1, Duration{one.pace.time.ns / static_cast<int64_t>(one.pace.iterations)});
  }
}

uint64_t MultiJob::looks(uint64_t iterations) const {
  if (ends_.size() < kEndsNeeded) return 0;
  // The lower quartile: some may have ended early by a fault of theirs, others at later looks.
  std::vector<uint64_t> sorted(ends_.begin(), ends_.end());
  const auto quarter = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 4);
  std::nth_element(sorted.begin(), quarter, sorted.end());
  return static_cast<uint64_t>(static_cast<double>(iterations) /
                               (kLate * static_cast<double>(std::max<uint64_t>(1, *quarter))));
}

}  // namespace lull::jobs
