#include "policies/launch/guarded/model/request_length.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lull::policies {

void RequestLength::served(size_t round) {
  without_pause_ += 1;
  since_round_ = round == 0 ? since_round_ + 1 : 0;
  if (round != 0 || since_round_ >= kBelieved) round_ = static_cast<uint32_t>(round);
}

void RequestLength::paused() {
  // Before the first pause there has been part of one.
  const bool whole = std::exchange(paused_, true);
  const uint32_t services = std::exchange(without_pause_, 0);
  if (!whole || services == 0) return;
  lengths_[pauses_ % kRemembered] = services;
  pauses_ += 1;
  const auto end = lengths_.begin() + std::min(pauses_, kRemembered);
  const auto [least, most] = std::minmax_element(lengths_.begin(), end);
  least_ = *least;
  common_ = *least == *most ? 1 : std::accumulate(lengths_.begin(), end, 0U, std::gcd<uint32_t, uint32_t>);
}

uint32_t RequestLength::services() const {
  if (pauses_ == 0) return std::max(1U, round_);
  if (round_ > 0) return std::min(round_, least_);
  return between_pauses();
}

}  // namespace lull::policies
