#include "policies/prediction/position_profiles.h"

namespace lull::policies {

void PositionProfiles::add(uint64_t generation, uint32_t position, const KernelProfile& kernel,
                           Duration duration, Duration gap) {
  if (generation < generation_ || position >= kMostPositions) return;
  if (generation > generation_) {
    generation_ = generation;
    profiles_.clear();
  }
  if (profiles_.size() <= position) profiles_.resize(position + 1);
  profiles_[position].add(kernel, duration, gap);
}

const KernelProfile* PositionProfiles::find(uint64_t generation, uint32_t position,
                                            const KernelProfile& kernel) const {
  if (generation != generation_ || position >= profiles_.size()) return nullptr;
  return profiles_[position].of(kernel);
}

}  // namespace lull::policies
