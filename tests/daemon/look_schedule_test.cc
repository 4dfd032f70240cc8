#include "coordinator/daemon/look_schedule.h"

#include <catch2/catch.hpp>

#include "coordinator/channel/layout.h"

using namespace lull::daemon;
using Activity = LookSchedule::Activity;
using Doorbell = LookSchedule::Doorbell;

namespace {

constexpr uint64_t kBegin = 1'000'000'000;
constexpr uint64_t kMs = 1'000'000;

struct Bench {
  Bench() { looks.attached(now); }
  Doorbell look(const LookSchedule::Seen& seen, uint64_t after_ns) {
    now += after_ns;
    return looks.looked(seen, kCloseSpacingNs, now);
  }
  uint64_t spacing() const { return looks.next_look_ns() - now; }
  uint64_t now = kBegin;
  LookSchedule looks;
};

}  // namespace

TEST_CASE(
    "a close client is looked at more rarely the longer nothing happens, but not too rarely") {
  CHECK(close_spacing_ns(0, 5'000) == 5'000);
  CHECK(close_spacing_ns(1'000'000, 5'000) == 10'000);
  CHECK(close_spacing_ns(10'000'000'000, 5'000) == kMostSpacingNs);
  // Time that is stretched by 10,000.
  CHECK(close_spacing_ns(0, 50'000'000) == kMostSpacingNs);

  Bench b;
  b.look({.eventful = true, .close = true}, 0);
  CHECK(b.spacing() == 5'000);
  b.look({.close = true}, 600'000);
  CHECK(b.spacing() == 6'000);
  CHECK(b.looks.activity() == Activity::kAwake);
}

TEST_CASE("a quiet client is asked to ring, and is asleep a moment later") {
  Bench b;
  CHECK(b.look({.eventful = true}, 0) == Doorbell::kAsItIs);
  CHECK(b.look({}, 19 * kMs) == Doorbell::kAsItIs);
  CHECK(b.look({}, 1 * kMs) == Doorbell::kArm);
  CHECK(b.looks.activity() == Activity::kArming);
  CHECK(b.spacing() == 50'000);
  CHECK(b.looks.is_thorough(b.now));
  CHECK(b.look({}, 20'000) == Doorbell::kAsItIs);
  CHECK(b.spacing() == 30'000);
  CHECK(b.look({}, 30'000) == Doorbell::kAsItIs);
  CHECK(b.looks.activity() == Activity::kAsleep);
  CHECK(b.looks.woken(b.now) == Doorbell::kDisarm);
  CHECK(b.looks.activity() == Activity::kAwake);
  CHECK(b.looks.is_due(b.now));
}

TEST_CASE("a record that comes while the doorbell is armed disarms it") {
  Bench b;
  b.look({.eventful = true, .close = true}, 0);
  CHECK(b.look({.close = true}, 1 * kMs) == Doorbell::kArm);
  CHECK(b.look({.eventful = true, .close = true}, 50'000) == Doorbell::kDisarm);
  CHECK(b.looks.activity() == Activity::kAwake);
}

TEST_CASE("who has tracked work or is held is not quiet, whose memory is away never rings") {
  Bench b;
  b.look({.eventful = true, .close = true}, 0);
  CHECK(b.look({.close = true, .tracked = true}, 500 * kMs) == Doorbell::kAsItIs);
  CHECK(b.looks.activity() == Activity::kAwake);
  Bench held;
  held.look({.eventful = true, .close = true}, 0);
  CHECK(held.look({.close = true, .held = true}, 19 * kMs) == Doorbell::kAsItIs);
  CHECK(held.look({.close = true, .held = true}, 1 * kMs) == Doorbell::kArm);
  Bench away;
  away.look({.eventful = true}, 0);
  CHECK(away.look({.away = true}, 100 * kMs) == Doorbell::kAsItIs);
  CHECK(away.spacing() == 50 * kMs);
}

TEST_CASE("others are looked at sooner as their rings fill up") {
  constexpr uint32_t kRing = lull::channel::kRingRecords;
  Bench b;
  b.look({.eventful = true, .ring_high_water = 0}, 0);
  CHECK(b.spacing() == 200'000);
  for (int i = 0; i < 10; ++i) b.look({.eventful = true, .ring_high_water = 1}, 1);
  CHECK(b.spacing() == 2 * kMs);
  b.look({.eventful = true, .ring_high_water = kRing / 2}, 1);
  CHECK(b.spacing() == 1 * kMs);
  // A trace wants every record.
  b.look({.eventful = true, .traced = true, .ring_high_water = kRing}, 1);
  CHECK(b.spacing() == 250'000);
  for (int i = 0; i < 3; ++i)
    b.look({.eventful = true, .traced = true, .ring_high_water = kRing}, 1);
  CHECK(b.spacing() == 80'000);
}

TEST_CASE("every thread slot is looked at now and then") {
  LookSchedule looks;
  CHECK(looks.is_thorough(kBegin));
  CHECK_FALSE(looks.is_thorough(kBegin + 199'999));
  CHECK(looks.is_thorough(kBegin + 200'000));
}
