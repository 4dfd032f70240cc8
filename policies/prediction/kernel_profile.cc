#include "policies/prediction/kernel_profile.h"

#include <algorithm>

namespace lull::policies {
namespace {

void follow(int64_t& mean_x1024, uint64_t count, int64_t sample) {
  const int64_t weight =
      static_cast<int64_t>(std::min<uint64_t>(count, KernelProfile::kMeanWindow));
  mean_x1024 += (sample * 1024 - mean_x1024) / weight;
}

}  // namespace

void KernelProfile::add(Duration duration, Duration gap, bool disturbed) {
  const int64_t ns = std::clamp<int64_t>(duration.ns, 0, kLongestNs);
  if (gap.ns >= 0 && !(disturbed && gap_count_ >= kTrusted)) {
    gap_count_ += 1;
    last_gap_ = Duration{std::min(gap.ns, kLongestNs)};
    follow(gap_mean_x1024_, gap_count_, last_gap_.ns);
    gaps_.add(last_gap_.ns);
  }
  if (disturbed && count_ >= kTrusted && ns >= mean().ns) return;
  count_ += 1;
  last_ = Duration{ns};
  follow(mean_x1024_, count_, ns);
  durations_.add(ns);
}

KernelProfile::Saved KernelProfile::saved() const {
  return {.count = count_,
          .mean_x1024 = mean_x1024_,
          .last = last_,
          .gap_count = gap_count_,
          .gap_mean_x1024 = gap_mean_x1024_,
          .last_gap = last_gap_,
          .durations = durations_.buckets(),
          .gaps = gaps_.buckets()};
}

KernelProfile KernelProfile::from(const Saved& saved) {
  const auto length = [](int64_t ns, int64_t least) { return std::clamp(ns, least, kLongestNs); };
  KernelProfile profile;
  profile.count_ = saved.count;
  profile.mean_x1024_ = std::clamp<int64_t>(saved.mean_x1024, 0, kLongestNs * 1024);
  profile.last_ = Duration{length(saved.last.ns, 0)};
  profile.gap_count_ = saved.gap_count;
  profile.gap_mean_x1024_ = std::clamp<int64_t>(saved.gap_mean_x1024, 0, kLongestNs * 1024);
  profile.last_gap_ = Duration{length(saved.last_gap.ns, -1)};
  profile.durations_ = QuantileSketch::from(saved.durations);
  profile.gaps_ = QuantileSketch::from(saved.gaps);
  return profile;
}

}  // namespace lull::policies
