// How long the launch at each position of the detected iteration runs, and the pause after it: the
// same kernel in two layers may have one length and two pauses. One of it for each client, kept by
// the engine; begins anew when the detector gives positions another meaning (`generation`).
// Positions beyond kMostPositions have no profile. It predicts nothing itself.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/prediction/kernel_profile.h"

namespace lull::policies {

class PositionProfiles {
 public:
  static constexpr uint32_t kMostPositions = 4096;

  void add(uint64_t generation, uint32_t position, Duration duration, Duration gap,
           bool disturbed);
  // Null where nothing is known.
  const KernelProfile* find(uint64_t generation, uint32_t position) const;

 private:
  uint64_t generation_ = 0;
  std::vector<KernelProfile> profiles_;  // by position, as far as any was seen
};

}  // namespace lull::policies
