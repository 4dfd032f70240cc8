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

struct ThreadWindow {
  uint32_t left;    // units still to be timed in a row
  uint32_t random;  // state of the generator; 0: its seed
};

// How many launches of a kernel there are to its next window: between a half of the mean distance
// and one and a half. The first window, which comes when the kernel `had` fewer samples than the
// warm-up, is at the mean distance. At a period of 64, as shipped, that is further than a device's
// longest queue, so that the warm-up's samples can be read before.
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

// Of a launch that counts down `to_window`, its kernel's: whether it is timed.
inline bool is_timed(uint32_t& to_window, const ThreadWindow& thread) {
  if (to_window == 0) return true;
  to_window -= 1;
  return thread.left != 0;
}

// Called before each launch that is timed; its kernel `had` so many samples. Begins the kernel's
// next window where it is due, and counts down the thread's. Also called for a launch that cannot
// be timed after all: else a window of such launches would never end.
inline void move_window(uint32_t period, uint32_t had, uint32_t& to_window, ThreadWindow& thread) {
  if (to_window == 0 && had + 1 >= kWarmUpSamples) {
    to_window = launches_to_window(period, had, thread.random);
    if (had >= kWarmUpSamples) thread.left = kWindowUnits;
  }
  if (thread.left != 0) thread.left -= 1;
}

}  // namespace lull::channel
