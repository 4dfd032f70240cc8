// How long the launch at each position of the detected iteration runs, and the pause after it: the
// same kernel in two layers may have one length and two pauses. The engine keeps one for each
// client. It begins anew when the detector gives positions another meaning (`generation`).
// Positions beyond kMostPositions have no profile. It predicts nothing itself.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/prediction/kernel_profile.h"

namespace lull::policies {

class PositionProfiles {
 public:
  static constexpr uint32_t kMostPositions = 4096;

  // An undisturbed measurement of the kernel that has its place there.
  void add(uint64_t generation, uint32_t position, const KernelProfile& kernel, Duration duration,
           Duration gap);
  // Null where nothing is known.
  const KernelProfile* find(uint64_t generation, uint32_t position,
                            const KernelProfile& kernel) const;

 private:
  uint64_t generation_ = 0;
  std::vector<PlaceProfile> profiles_;  // by position, as far as any was seen
};

}  // namespace lull::policies
