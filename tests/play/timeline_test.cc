#include "tools/play/timeline.h"

#include <catch2/catch.hpp>

using lull::play::HostTimeline;

TEST_CASE("deadlines follow each other by pause and call length when every call is on time") {
  HostTimeline timeline;
  timeline.restart(1000);
  const uint64_t first = timeline.deadline_ns(50);
  CHECK(first == 1050);
  timeline.async_call(first, 5, 1050, 1052);
  CHECK(timeline.deadline_ns(10) == 1065);  // 1050 + 5 + 10: the call was shorter than recorded
}

TEST_CASE("a late wake-up does not move the calls that follow") {
  HostTimeline timeline;
  timeline.restart(0);
  uint64_t now = 0;
  uint64_t deadline = 0;
  for (int i = 0; i < 10; ++i) {
    deadline = timeline.deadline_ns(100);
    now = std::max(now, deadline) + (i == 3 ? 70 : 0);  // one wake-up is 70 late
    timeline.async_call(deadline, 20, now, now + 1);
    now += 1;
  }
  CHECK(deadline == 100 + 9 * 120);
}

TEST_CASE("calls that were overtaken by lateness are made at once until the timeline is reached") {
  HostTimeline timeline;
  timeline.restart(0);
  uint64_t now = 500;  // the first call is 490 late
  std::vector<uint64_t> made;
  for (int i = 0; i < 6; ++i) {
    const uint64_t deadline = timeline.deadline_ns(100);
    now = std::max(now, deadline);
    made.push_back(now);
    timeline.async_call(deadline, 0, now, now);
  }
  CHECK(made == std::vector<uint64_t>{500, 500, 500, 500, 500, 600});
}

TEST_CASE("a call that is held up inside the driver moves the rest of the timeline") {
  HostTimeline timeline;
  timeline.restart(0);
  const uint64_t deadline = timeline.deadline_ns(100);
  timeline.async_call(deadline, 5, 100, 30'100);  // held for 30 us
  CHECK(timeline.deadline_ns(50) == 30'150);
}

TEST_CASE("a blocking call starts the timeline anew at its return") {
  HostTimeline timeline;
  timeline.restart(0);
  const uint64_t deadline = timeline.deadline_ns(100);
  CHECK(deadline == 100);
  timeline.blocking_call(9'000);
  CHECK(timeline.ready_ns() == 9'000);
  CHECK(timeline.deadline_ns(7) == 9'007);
}
