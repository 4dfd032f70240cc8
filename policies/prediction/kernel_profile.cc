#include "policies/prediction/kernel_profile.h"

namespace lull::policies {

KernelProfile::Saved KernelProfile::saved() const {
  LengthProfile::Saved durations = durations_.saved();
  LengthProfile::Saved gaps = gaps_.saved();
  return {.count = durations.count,
          .mean_x1024 = durations.mean_x1024,
          .last = durations.last,
          .gap_count = gaps.count,
          .gap_mean_x1024 = gaps.mean_x1024,
          .last_gap = last_gap(),
          .durations = std::move(durations.buckets),
          .gaps = std::move(gaps.buckets)};
}

KernelProfile KernelProfile::from(const Saved& saved) {
  KernelProfile profile;
  profile.durations_.take_up({saved.count, saved.mean_x1024, saved.last, saved.durations});
  profile.gaps_.take_up({saved.gap_count, saved.gap_mean_x1024, saved.last_gap, saved.gaps});
  return profile;
}

void PlaceProfile::add(const KernelProfile& kernel, Duration duration, Duration gap) {
  if (relearnt_ != kernel.relearnt()) {
    profile_ = {};
    relearnt_ = kernel.relearnt();
  }
  if (duration.ns >= 0) profile_.add_duration(duration, false);
  if (gap.ns >= 0) profile_.add_gap(gap, false);
}

}  // namespace lull::policies
