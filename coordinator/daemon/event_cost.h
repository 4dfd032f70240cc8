// What the two timing events around a launch take themselves: it is in the duration that the shim
// measures between them, and missing from the gap behind. Pure; called by Session for each timing
// of a real device. The simulated device's events take no time.
//
//   device    B..[====kernel====]..E .. B..[====kernel====]..E
//             |<--- measured --->|<gap>|
//
// Where nobody else is on the device, duration and gap together are from one begin event to the
// next, whatever the events take: so what is taken off the one is added to the other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::daemon {

// Measured on an H100 (docs/hardware, 2026-11-22): the shim's durations of kernels under 10 us were
// longer than CUPTI's by 2.0 us (bert) and 2.3 us (resnet50 training) in the median, of all kernels
// by 1.9 and 1.8 us. With 1.8 us taken off, the median error of those two runs is 9 % and 4 %.
inline constexpr Duration kEventCost{1800};
// No kernel is shorter: the shortest that CUPTI saw there took 0.99 us.
inline constexpr Duration kShortestKernel{900};

struct MeasuredLaunch {
  Duration duration;
  Duration gap;  // negative: not known
};

constexpr MeasuredLaunch without_events(MeasuredLaunch between_events) {
  const Duration longest_cut{std::max<int64_t>(0, between_events.duration.ns - kShortestKernel.ns)};
  const Duration cut{std::min(kEventCost.ns, longest_cut.ns)};
  MeasuredLaunch own{between_events.duration - cut, between_events.gap};
  if (own.gap.ns >= 0) own.gap = own.gap + cut;
  return own;
}

}  // namespace lull::daemon
