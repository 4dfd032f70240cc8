#include "coordinator/daemon/clock.h"

#include <catch2/catch.hpp>

#include "coordinator/channel/ticks.h"
#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

TEST_CASE("ticks read between two readings of the clock are converted to between them") {
  Clock clock = Clock::real();
  for (int n = 0; n < 100; ++n) {
    const Instant before = clock.now();
    const uint64_t ticks = channel::ticks();
    const Instant after = clock.now();
    clock.refine(channel::monotonic_ns());
    const Instant at = clock.at_ticks(ticks, clock.now());
    // The rate is known to far better than one in a thousand of the 50 ms between renewals.
    CHECK(at.ns >= before.ns - 100'000);
    CHECK(at.ns <= after.ns + 100'000);
  }
}

TEST_CASE("ticks out of range become now or ten seconds ago") {
  const Clock clock = Clock::real();
  const Instant now = clock.now();
  CHECK(clock.at_ticks(UINT64_MAX / 4, now) <= now);
  for (const uint64_t ticks : {uint64_t{0}, UINT64_MAX, uint64_t{1} << 63}) {
    const Instant at = clock.at_ticks(ticks, now);
    CHECK(at <= now);
    CHECK(at.ns >= now.ns - 10'000'000'000);
  }
}

TEST_CASE("a length in ticks is as long as the clock says, whatever a client claims") {
  const Clock clock = Clock::real();
  const uint64_t ticks = channel::ticks(), ns = channel::monotonic_ns();
  while (channel::monotonic_ns() < ns + 2'000'000) {
  }
  const uint64_t took_ticks = channel::ticks() - ticks, took_ns = channel::monotonic_ns() - ns;
  const int64_t said_ns = clock.length_of(took_ticks).ns;
  CHECK(said_ns > static_cast<int64_t>(took_ns / 2));
  CHECK(said_ns < static_cast<int64_t>(took_ns * 2));
  CHECK(clock.length_of(0).ns == 0);
  CHECK(clock.length_of(UINT64_MAX).ns > 0);
}

TEST_CASE("a simulated clock stands still until its device is there, then runs slowed down") {
  TempDir dir;
  Clock clock = Clock::simulated(dir.path("device"));
  CHECK(*clock.look_for_device() == false);
  CHECK_FALSE(clock.ready());
  CHECK(clock.now() == Instant{0});
  write_sim_device(dir.path("device"), 1000.0, 10'000);
  CHECK(*clock.look_for_device() == true);
  CHECK(clock.ready());
  CHECK(*clock.look_for_device() == false);
  CHECK(clock.slow_motion() == 1000.0);
  CHECK(clock.control_latency() == Duration{10'000});
  CHECK(clock.sharing() == "time_slice");
  const uint64_t real_before = channel::monotonic_ns();
  const Instant now = clock.now();
  CHECK(clock.monotonic_at(now) <= channel::monotonic_ns());
  CHECK(clock.monotonic_at(now) + 10'000 >= real_before);
  CHECK(clock.monotonic_at(now + Duration{1'000}) >= real_before + 1'000'000 - 10'000);
}

TEST_CASE("a file that is no simulated device is refused by name") {
  TempDir dir;
  write_file(dir.path("device"), std::string(sizeof(channel::sim_device_prefix), '\1'));
  std::string prefix(sizeof(channel::sim_device_prefix), '\0');
  prefix[12] = 1;  // ready, but without the magic
  write_file(dir.path("device"), prefix);
  Clock clock = Clock::simulated(dir.path("device"));
  const auto found = clock.look_for_device();
  REQUIRE_FALSE(found);
  CHECK(found.error() == "cannot use " + dir.path("device") +
                             ": it is no simulated device of this version: remove it or name "
                             "another with --sim");
}

}  // namespace
}  // namespace lull::daemon
