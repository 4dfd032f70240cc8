// What long lower kernels cost a client beside which they run.
#include "policies/launch/guarded/observe/kernel_costs.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

Instant us(int64_t us) { return Instant{us * 1000}; }
Duration long_us(int64_t us) { return Duration{us * 1000}; }

constexpr KernelId kKernel{7}, kOther{8};
constexpr ClientId kLow{3};
constexpr StreamSlot kStream{1};
constexpr bool kKnown = true;

// A unit of 10 ms, that the client meets when it has run for 2 ms. Until it is through the client's
// own work goes on at `pace`, and the unit at its own; then what is left of 16 ms of own work.
struct Meeting {
  double own_pace = 0;
  double unit_pace = 1;
  KernelId kernel = kKernel;
  int64_t predicted_us = 10'000;
};
void meet(KernelCosts& costs, int64_t& now_us, const Meeting& meeting) {
  costs.began({kLow, kStream, meeting.kernel, long_us(meeting.predicted_us)}, us(now_us));
  costs.own_begins(us(now_us + 2'000));
  const auto together = static_cast<int64_t>(8'000 / meeting.unit_pace);
  const auto done = static_cast<int64_t>(static_cast<double>(together) * meeting.own_pace);
  if (done > 0) costs.own_done(long_us(done), kKnown, /*more=*/true, us(now_us + 2'000 + together));
  now_us += 2'000 + together;
  costs.ended(kLow, kStream, us(now_us));
  now_us += 16'000 - done;
  costs.own_done(long_us(16'000 - done), kKnown, /*more=*/false, us(now_us));
  now_us += 1'000;
}
int64_t cost_us(const KernelCosts& costs, KernelId kernel = kKernel) {
  return costs.cost(kernel, long_us(10'000)).ns / 1000;
}
// All of its length, but for the 5 us by which the end of own work is seen late.
constexpr int64_t kWhole = 9'990;
// After so many of them.
int64_t cost_after(int meetings, const Meeting& meeting) {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < meetings; ++n) meet(costs, now_us, meeting);
  return cost_us(costs);
}

}  // namespace

TEST_CASE("A lower kernel of which nothing is known costs what it is long") {
  CHECK(cost_us(KernelCosts()) == 10'000);
}

TEST_CASE("Where the device runs one kernel at a time, a lower one costs all of its length") {
  CHECK(cost_after(8, {.own_pace = 0}) == kWhole);
}

TEST_CASE("Where it runs slices of both in turn, too: it takes longer, but is no longer") {
  CHECK(cost_after(8, {.own_pace = 0.5, .unit_pace = 0.5}) == Approx(10'000).epsilon(0.01));
}

TEST_CASE(
    "A narrow kernel costs what it really holds up, once two have been met; after one, half of it "
    "is believed") {
  const Meeting narrow{.own_pace = 0.8};
  CHECK(cost_after(1, narrow) == Approx(6'000).epsilon(0.01));
  CHECK(cost_after(2, narrow) == Approx(2'000).epsilon(0.01));
  CHECK(cost_after(8, narrow) == Approx(2'000).epsilon(0.01));
}

TEST_CASE("What is known of one kernel says nothing of another") {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < 8; ++n) {
    meet(costs, now_us, {.own_pace = 0.8});
    meet(costs, now_us, {.own_pace = 0, .kernel = kOther});
  }
  CHECK(cost_us(costs) == Approx(2'000).epsilon(0.01));
  CHECK(cost_us(costs, kOther) == kWhole);
}

TEST_CASE(
    "One that held up nobody because it waited itself proves nothing; and one that is blamed for "
    "others") {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < 8; ++n) meet(costs, now_us, {.own_pace = n % 4 == 1 ? 1.0 : 0.0});
  CHECK(cost_us(costs) == kWhole);
  for (int n = 0; n < 8; ++n) meet(costs, now_us, {.own_pace = n % 4 == 1 ? 0.0 : 0.8});
  CHECK(cost_us(costs) == Approx(2'000).epsilon(0.01));
}

TEST_CASE("A kernel that becomes wide costs all of its length again at the second meeting") {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < 8; ++n) meet(costs, now_us, {.own_pace = 0.8});
  for (int n = 0; n < 2; ++n) meet(costs, now_us, {.own_pace = 0});
  CHECK(cost_us(costs) == kWhole);
}

TEST_CASE(
    "A unit that comes when the client is there says nothing: what was launched before goes "
    "first") {
  KernelCosts costs;
  for (int64_t now_us = 1'000; now_us < 400'000; now_us += 40'000) {
    costs.own_begins(us(now_us));
    costs.began({kLow, kStream, kKernel, long_us(10'000)}, us(now_us + 100));
    costs.own_done(long_us(10'000), kKnown, /*more=*/true, us(now_us + 10'000));
    costs.ended(kLow, kStream, us(now_us + 13'000));  // shorter than predicted
    costs.own_done(long_us(2'000), kKnown, /*more=*/false, us(now_us + 15'000));
  }
  CHECK(cost_us(costs) == 10'000);
}

TEST_CASE("A unit that the client never met says nothing") {
  KernelCosts costs;
  for (int64_t now_us = 1'000; now_us < 400'000; now_us += 40'000) {
    costs.began({kLow, kStream, kKernel, long_us(10'000)}, us(now_us));
    costs.ended(kLow, kStream, us(now_us + 10'000));
    costs.own_begins(us(now_us + 11'000));
    costs.own_done(long_us(1'000), kKnown, /*more=*/false, us(now_us + 12'000));
  }
  CHECK(cost_us(costs) == 10'000);
}

TEST_CASE("Short units cost what they are long, however narrow") {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < 8; ++n) meet(costs, now_us, {.own_pace = 0.8});
  CHECK(costs.cost(kKernel, long_us(499)) == long_us(499));
  CHECK(costs.cost(kKernel, long_us(500)) < long_us(110));
  for (int n = 0; n < 8; ++n) {
    meet(costs, now_us, {.own_pace = 0.8, .kernel = kOther, .predicted_us = 499});
  }
  for (int n = 0; n < 8; ++n, now_us += 1'000) {  // met at once
    costs.began({kLow, kStream, kOther, long_us(499)}, us(now_us));
    costs.own_begins(us(now_us + 50));
    costs.own_done(long_us(360), kKnown, /*more=*/true, us(now_us + 500));
    costs.ended(kLow, kStream, us(now_us + 500));
    costs.own_done(long_us(100), kKnown, /*more=*/false, us(now_us + 600));
  }
  CHECK(cost_us(costs, kOther) == 10'000);
}

TEST_CASE(
    "What ran beside a client that has left is forgotten, and the next one of its stream counts") {
  KernelCosts costs;
  int64_t now_us = 0;
  for (int n = 0; n < 3; ++n, now_us += 50'000) {
    costs.began({kLow, kStream, kOther, long_us(10'000)}, us(now_us));
    costs.left(kLow);
    costs.own_begins(us(now_us + 2'000));
    costs.own_done(long_us(6'400), kKnown, /*more=*/true, us(now_us + 10'000));
    costs.ended(kLow, kStream, us(now_us + 10'000));
    costs.own_done(long_us(1'000), kKnown, /*more=*/false, us(now_us + 11'000));
  }
  for (int n = 0; n < 3; ++n) meet(costs, now_us, {.own_pace = 0.8});
  CHECK(cost_us(costs) == Approx(2'000).epsilon(0.01));
  CHECK(cost_us(costs, kOther) == 10'000);
}

TEST_CASE("Own work that comes launch by launch is each time seen late, which is nobody's doing") {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < 4; ++n) {
    costs.began({kLow, kStream, kKernel, long_us(10'000)}, us(now_us));
    for (int launch = 0; launch < 200; ++launch, now_us += 50) {
      costs.own_begins(us(now_us));
      costs.own_done(long_us(20), kKnown, /*more=*/false, us(now_us + 25));
    }
    costs.ended(kLow, kStream, us(now_us));
  }
  CHECK(cost_us(costs) == 0);
}

TEST_CASE("A unit beside own work of which nobody knows how long it takes teaches nothing") {
  KernelCosts costs;
  int64_t now_us = 1'000;
  for (int n = 0; n < 8; ++n) meet(costs, now_us, {.own_pace = 0.8});
  for (int n = 0; n < 8; ++n, now_us += 40'000) {
    costs.began({kLow, kStream, kKernel, long_us(10'000)}, us(now_us));
    costs.own_begins(us(now_us + 2'000));
    costs.own_done({}, !kKnown, /*more=*/true, us(now_us + 10'000));
    costs.ended(kLow, kStream, us(now_us + 10'000));
    costs.own_done(long_us(6'000), kKnown, /*more=*/false, us(now_us + 16'000));
  }
  CHECK(cost_us(costs) == Approx(2'000).epsilon(0.01));
}
