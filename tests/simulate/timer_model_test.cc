#include "tools/simulate/timer_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

using namespace lull;
using simulate::TimerModel;

namespace {

// How often each place of a program is timed that launches one kernel `places` times an iteration.
std::vector<uint32_t> timed(uint32_t period, uint32_t places, uint32_t iterations) {
  TimerModel timer(period, /*units=*/1);
  std::vector<uint32_t> count(places);
  const auto ignore = [](const TimerModel::Sample&, Duration, Duration) {};
  for (uint32_t n = 0; n < iterations * places; ++n) {
    const Instant now{static_cast<int64_t>(n) * 1000};
    const uint64_t sample = timer.launch(/*unit=*/0, /*stream=*/0, n + 1, now, ignore);
    if (sample == 0) continue;
    ++count[n % places];
    timer.begun(sample, now);
    timer.ended(sample, now + Duration{500});
  }
  return count;
}

}  // namespace

TEST_CASE("sampled timing meets every place of an iteration, whatever its length, at its rate") {
  constexpr uint32_t kIterations = 6400;
  for (const uint32_t period : {2, 4, 16, 64}) {
    for (const uint32_t places : {2, 4, 32, 33, 64, 65, 130, 257}) {
      const auto count = timed(period, places, kIterations);
      const auto [least, most] = std::minmax_element(count.begin(), count.end());
      CAPTURE(period, places, *least, *most);
      CHECK(*least > kIterations / period / 2);
      CHECK(*most < kIterations / period * 3 / 2 + channel::kWarmUpSamples);
    }
  }
}

TEST_CASE("full timing takes every launch, and timing that is off none") {
  CHECK(timed(1, 3, 100) == std::vector<uint32_t>{100, 100, 100});
  CHECK(timed(0, 3, 100) == std::vector<uint32_t>{0, 0, 0});
}
