#include "policies/prediction/iteration_times.h"

#include <algorithm>

namespace lull::policies {
namespace {

void push(std::vector<Duration>& ring, Duration value, size_t most) {
  if (ring.size() >= most) ring.erase(ring.begin());
  ring.push_back(value);
}

Duration median(std::vector<Duration> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void IterationTimes::add(uint64_t generation, Duration took, bool disturbed) {
  if (generation != generation_) {
    // What was recalled may belong to the first iteration that is found, but to no later one.
    if (generation_ != 0) recalled_ = Duration{};
    generation_ = generation;
    lately_.clear();
    alone_.clear();
    undisturbed_count_ = 0;
  }
  push(lately_, took, kLately);
  if (disturbed) return;
  push(alone_, took, kUndisturbed);
  undisturbed_count_ += 1;
}

void IterationTimes::recall(Duration undisturbed, uint64_t count) {
  if (undisturbed.ns > 0 && count >= kTrusted) recalled_ = undisturbed;
}

Duration IterationTimes::now() const {
  return lately_.size() < kTrusted ? Duration{} : median(lately_);
}

Duration IterationTimes::undisturbed() const {
  return alone_.size() < kTrusted ? recalled_ : median(alone_);
}

uint32_t IterationTimes::slowdown_per_mille() const {
  const int64_t alone = undisturbed().ns;
  const int64_t current = now().ns;
  if (alone <= 0 || current <= 0) return 0;
  return static_cast<uint32_t>(std::min<int64_t>(current / std::max<int64_t>(1, alone / 1000), 1'000'000));
}

}  // namespace lull::policies
