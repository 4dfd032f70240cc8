#include "policies/launch/request_length.h"

#include <algorithm>
#include <utility>

namespace lull::policies {

void RequestLength::paused() {
  // Before the first pause there has been part of one.
  const bool whole = std::exchange(paused_, true);
  const uint32_t services = std::exchange(without_pause_, 0);
  if (!whole || services == 0) return;
  lengths_[pauses_ % kRemembered] = services;
  pauses_ += 1;
  const auto end = lengths_.begin() + std::min(pauses_, kRemembered);
  least_ = *std::min_element(lengths_.begin(), end);
}

uint32_t RequestLength::services(size_t round) const {
  const auto in_round = static_cast<uint32_t>(std::max<size_t>(1, round));
  if (pauses_ == 0) return in_round;
  if (round > 0) return std::min(in_round, least_);
  return pauses_ >= kEnough ? least_ : 1;
}

}  // namespace lull::policies
