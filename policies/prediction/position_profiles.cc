#include "policies/prediction/position_profiles.h"

namespace lull::policies {

void PositionProfiles::add(uint64_t generation, uint32_t position, Duration duration, Duration gap,
                           bool disturbed) {
  if (generation < generation_ || position >= kMostPositions) return;
  if (generation > generation_) {
    generation_ = generation;
    profiles_.clear();
  }
  if (profiles_.size() <= position) profiles_.resize(position + 1);
  profiles_[position].add(duration, gap, disturbed);
}

const KernelProfile* PositionProfiles::find(uint64_t generation, uint32_t position) const {
  if (generation != generation_ || position >= profiles_.size()) return nullptr;
  return profiles_[position].count() == 0 ? nullptr : &profiles_[position];
}

}  // namespace lull::policies
