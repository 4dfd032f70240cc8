#include "shim/idle_start.h"

#include <catch2/catch.hpp>

using namespace lull::shim;

namespace {
MeasuredUnit idle(uint64_t measured, uint64_t lead, uint64_t trail,
                  uint64_t shortest = UINT64_MAX) {
  return {measured, true, false, lead, trail, shortest};
}
}  // namespace

TEST_CASE("a unit behind other work is as long as its events say") {
  const SettledUnit unit = settle({5000, false, false, 900, 900, 100});
  CHECK(unit.duration_ns == 5000);
  CHECK(unit.start_shift_ns == 0);
  CHECK(unit.end_shift_ns == 0);
  CHECK(unit.trusted);
}

TEST_CASE("on an idle stream the lead is no part of the duration, and moves the start") {
  const SettledUnit unit = settle(idle(12'000, 2000, 1000));
  CHECK(unit.duration_ns == 10'000);
  CHECK(unit.start_shift_ns == 2000);
  CHECK(unit.end_shift_ns == 0);
  CHECK(unit.trusted);
}

TEST_CASE("a host that was held up after the launch leaves the shortest run known, not nothing") {
  const SettledUnit known = settle(idle(12'000, 4'000'000, 1000, 9500));
  CHECK(known.duration_ns == 9500);
  CHECK(known.start_shift_ns == 2500);
  CHECK_FALSE(known.trusted);
  const SettledUnit unknown = settle(idle(12'000, 4'000'000, 1000));
  CHECK(unknown.duration_ns == 12'000);
  CHECK_FALSE(unknown.trusted);
}

TEST_CASE("an implausible lead takes nothing below the shortest run") {
  // A first launch that loads its module: long, and all of it before the kernel.
  CHECK(settle(idle(5'010'000, 5'000'000, 1000)).duration_ns == 10'000);
  const SettledUnit floored = settle(idle(5'004'000, 5'000'000, 1000, 10'000));
  CHECK(floored.duration_ns == 10'000);
  CHECK(floored.start_shift_ns == 4'994'000);
  CHECK_FALSE(floored.trusted);
}

TEST_CASE("a unit that ended before its end event was submitted is bounded by shorter ones") {
  const SettledUnit unit = settle(idle(4000, 1500, 2400, 1200));
  CHECK(unit.duration_ns == 1200);
  CHECK(unit.end_shift_ns == 1300);
  CHECK(unit.start_shift_ns == 1500);
  const SettledUnit alone = settle(idle(4000, 1500, 2400));
  CHECK(alone.duration_ns == 2500);  // all that is known
  CHECK_FALSE(alone.trusted);
}

TEST_CASE(
    "a busy stream that ran dry while the host was held up leaves bounds, and nothing to learn "
    "from") {
  const auto dry = [](uint64_t measured, uint64_t lead, uint64_t shortest = UINT64_MAX) {
    MeasuredUnit unit;
    unit.measured_ns = measured;
    unit.ran_dry = true;
    unit.lead_ns = lead;
    unit.shortest_ns = shortest;
    return settle(unit);
  };
  // A first launch that loads its module behind other work: no shorter than what the lead leaves.
  CHECK(dry(5'010'000, 5'000'000).duration_ns == 10'000);
  CHECK(dry(5'010'000, 5'000'000).start_shift_ns == 5'000'000);
  // Seen before: as short as the shortest, inside the bounds.
  CHECK(dry(60'000, 40'000, 21'000).duration_ns == 21'000);
  CHECK(dry(60'000, 40'000, 3'000).duration_ns == 20'000);
  CHECK(dry(60'000, 40'000, 90'000).duration_ns == 60'000);
  // The stream ran dry late in the lead: only the upper bound is known.
  CHECK(dry(9'000, 40'000).duration_ns == 9'000);
  CHECK(dry(9'000, 40'000, 7'000).duration_ns == 7'000);
  CHECK_FALSE(dry(60'000, 40'000, 21'000).trusted);
}

TEST_CASE("start shift, duration and end shift always make up what was measured") {
  for (uint64_t measured : {0ULL, 1ULL, 700ULL, 20'000ULL}) {
    for (uint64_t lead : {0ULL, 1ULL, 699ULL, 150'000ULL}) {
      for (uint64_t trail : {0ULL, 500ULL, 30'000ULL}) {
        for (uint64_t shortest : {uint64_t{1}, uint64_t{650}, UINT64_MAX}) {
          const SettledUnit unit = settle(idle(measured, lead, trail, shortest));
          CHECK(unit.start_shift_ns + unit.duration_ns + unit.end_shift_ns == measured);
          const SettledUnit dry = settle({measured, false, true, lead, trail, shortest});
          CHECK(dry.start_shift_ns + dry.duration_ns + dry.end_shift_ns == measured);
        }
      }
    }
  }
}
