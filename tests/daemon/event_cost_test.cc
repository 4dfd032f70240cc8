#include "coordinator/daemon/event_cost.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::daemon;

TEST_CASE("what the events take is taken off the duration and added to the gap") {
  const MeasuredLaunch own = without_events({Duration{24'014}, Duration{960}});
  CHECK(own.duration == Duration{24'014 - 1800});
  CHECK(own.gap == Duration{960 + 1800});
}

TEST_CASE("an unknown gap stays unknown") {
  const MeasuredLaunch own = without_events({Duration{24'014}, Duration{-1}});
  CHECK(own.gap == Duration{-1});
}

TEST_CASE("no kernel gets shorter than the shortest, and its gap gets no more than was taken off") {
  const MeasuredLaunch own = without_events({Duration{1500}, Duration{0}});
  CHECK(own.duration == kShortestKernel);
  CHECK(own.gap == Duration{600});
  const MeasuredLaunch shorter = without_events({Duration{500}, Duration{40}});
  CHECK(shorter.duration == Duration{500});
  CHECK(shorter.gap == Duration{40});
}

TEST_CASE("duration and gap together stay what was measured") {
  for (const int64_t duration : {0, 899, 900, 2700, 1'000'000}) {
    const MeasuredLaunch own = without_events({Duration{duration}, Duration{100}});
    CHECK(own.duration.ns + own.gap.ns == duration + 100);
  }
}
