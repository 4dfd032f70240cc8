// Which launches sampled timing (lull_control.timing_period above 1) takes. Every one of a kernel
// until it has kWarmUpSamples; then, again and again, a window of kWindowUnits consecutive units of
// the thread, whatever they are, so that the gap behind each is known as well. A kernel's windows
// begin timing_period * kWindowUnits launches of it apart in the mean, at random: at a fixed
// distance a program whose iteration divides that distance would be timed at the same places for
// ever.
//
// Used by shim/kernel_timer, by the simulator's model of it (tools/simulate/timer_model.h) and by
// lull-sampled-totals. Pure; costs nothing but when a window begins.
#pragma once

#include <stdint.h>

namespace lull::channel {

inline constexpr uint32_t kWarmUpSamples = 8;
inline constexpr uint32_t kWindowUnits = 16;

// Launches of a kernel to its next window: from a half of the mean distance to one and a half, and
// to the first one, when it has `had` fewer samples than the warm-up, the mean: at 64, as shipped,
// that is behind the longest queue of a device, so that the warm-up's samples can be read. `random`
// is the thread's, a seed at first; 0 is one as well.
inline uint32_t launches_to_window(uint32_t period, uint32_t had, uint32_t& random) {
  constexpr uint32_t kMostPeriod = UINT32_MAX / kWindowUnits / 2;
  const uint32_t mean = (period < kMostPeriod ? period : kMostPeriod) * kWindowUnits;
  if (had < kWarmUpSamples) return mean;
  if (random == 0) random = 0x9E3779B9;
  random ^= random << 13;  // Marsaglia 2003, xorshift32
  random ^= random >> 17;
  random ^= random << 5;
  return mean / 2 + static_cast<uint32_t>(uint64_t{random} * mean >> 32);
}

}  // namespace lull::channel
