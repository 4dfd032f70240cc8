// How far from its mean a sample may be by chance.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace lull::policies {

// Five mean deviations, which are four sigmas of a normal distribution, and a 32nd of the mean.
inline constexpr int64_t kMostDeviations = 5, kMostOffPart = 32;

inline int64_t most_off_ns(int64_t mean_ns, int64_t deviation_ns) {
  return kMostDeviations * deviation_ns + std::abs(mean_ns) / kMostOffPart;
}

}  // namespace lull::policies
