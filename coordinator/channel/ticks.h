// The cheapest clock of the machine, for the launch path: about 6 ns where clock_gettime costs 25.
// The unit is the machine's own; the daemon, on the same machine, converts it (daemon/clock).
#pragma once

#include <stdint.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lull::channel {

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
#error "lull knows no cheap clock for this processor"
#endif
}

}  // namespace lull::channel
