// What others cost an important client at each wait of its host.
#include "policies/launch/guarded/observe/isolated_schedule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>
#include <vector>

using namespace lull;
using namespace lull::policies;

namespace {

// A host that launches more than the driver's queue holds, 1 us apart, and waits. Each launch takes
// the device 1 ms, and the last one comes when there is a place for it.
class Host {
 public:
  static constexpr uint32_t kLaunches = 300;

  // Lower work keeps the device from it for `late` first.
  void stretch(Duration late = {}) {
    const Instant began = now_;
    const bool lower = late.ns > 0;
    schedule.timeline().begin();
    if (lower) schedule.disturbed(/*copy=*/false, now_);
    for (uint32_t n = 0; n + 1 < kLaunches; ++n) launch(n, lower);
    now_ = began + late + kWork;
    if (lower) schedule.lower_ran(began, began + late);
    if (lower) schedule.lower_ended(1, 0, began + late);
    complete();
    launch(kLaunches - 1, false);
    for (uint32_t n = 0; n + 1 < kLaunches; ++n) {
      now_ = now_ + kWork;
      complete();
    }
    host_late = schedule.host_late();
    schedule.synced({.at = now_}, false);
    schedule.settle(false);
  }

  IsolatedSchedule schedule;
  Duration host_late;  // when the host of the last stretch began to wait

 private:
  static constexpr Duration kWork{1'000'000};

  void launch(uint32_t n, bool lower) {
    const Submitted launch{.kernel = KernelId{n + 1}, .predicted = kWork, .at = now_,
                           .place = {.in_step = true, .position = n, .length = kLaunches}};
    schedule.begins_stretch(now_, lower);
    schedule.submitted(launch, /*in_step=*/true, lower);
    now_ = now_ + Duration{1'000};
  }
  void complete() { schedule.completed({.units = 1, .predicted = kWork}, now_, false); }

  Instant now_{0};
};

bool is_about(Duration took, int64_t us) { return std::abs(took.ns - us * 1'000) <= 10'000; }

}  // namespace

TEST_CASE("A host that waits for a place in the driver's queue is late by what others ran before") {
  Host host;
  host.schedule.timeline().restart(Host::kLaunches);
  for (int n = 0; n < 10; ++n) {
    host.stretch();
    CHECK(host.host_late == Duration{});
  }
  host.stretch(Duration{2'000'000});
  CHECK(host.host_late == Duration{2'000'000});
  host.stretch();
  CHECK(host.host_late == Duration{});
}

// Its last two launches are reported together, by the host's return: it waits for 2 ms of lower work, too.
TEST_CASE("What the host still waits for is not complete, however long it is expected to be") {
  constexpr Duration kWork{1'000'000}, kLate{2'000'000};
  IsolatedSchedule schedule;
  schedule.timeline().restart(2);
  Instant now{0};
  std::optional<IsolatedSchedule::Waited> wait;
  for (const bool late : {false, false, false, false, true}) {
    const Instant began = now;
    schedule.timeline().begin();
    schedule.begins_stretch(now, late);
    if (late) schedule.disturbed(/*copy=*/false, now);
    for (uint32_t n = 0; n < 2; ++n) {
      schedule.submitted({.kernel = KernelId{n + 1}, .predicted = kWork, .at = now,
                          .place = {.in_step = true, .position = n, .length = 2}},
                         /*in_step=*/true, late);
    }
    schedule.completed({.units = 2, .reported = false}, now + Duration{2 * kWork.ns}, late);
    CHECK_FALSE(schedule.idle());
    CHECK(schedule.in_flight() == 0);
    now = now + Duration{2 * kWork.ns + (late ? kLate.ns : 0)};
    if (late) schedule.lower_ran(began, began + kLate);
    if (late) schedule.lower_ended(1, 0, began + kLate);
    schedule.synced({.at = now}, false);
    wait = schedule.settle(false);
    CHECK(schedule.idle());
    now = now + kWork;
  }
  REQUIRE(wait.has_value());
  CHECK(wait->delay == kLate);
}

TEST_CASE("What a wait is about to say is known as soon as the device is through, until it has said so") {
  constexpr Duration kWork{1'000'000}, kHostReturns{10'000};
  IsolatedSchedule schedule;
  schedule.timeline().restart(2);
  Instant now{0};
  for (const int64_t late_ns : {0, 0, 0, 0, 0, 0, 700'000, 0, 2'000'000}) {
    const Duration late{late_ns};
    const bool lower = late.ns > 0;
    const Instant began = now;
    schedule.timeline().begin();
    if (lower) schedule.disturbed(/*copy=*/false, now);
    for (uint32_t n = 0; n < 2; ++n) {
      schedule.begins_stretch(now, lower);
      schedule.submitted({.kernel = KernelId{n + 1}, .predicted = kWork, .at = now,
                          .place = {.in_step = true, .position = n, .length = 2}},
                         /*in_step=*/true, lower);
    }
    now = now + late;
    if (lower) schedule.lower_ran(began, now);
    if (lower) schedule.lower_ended(1, 0, now);
    for (int n = 0; n < 2; ++n) {
      CHECK(schedule.about_to_lose(now) == Duration{});
      now = now + kWork;
      CHECK(schedule.about_to_lose(now) == Duration{});
      schedule.completed({.units = 1, .reported = true}, now, false);
    }
    REQUIRE(schedule.idle());
    CHECK(schedule.about_to_lose(now) == (lower ? late - kHostReturns : Duration{}));  // it is no later yet
    now = now + kHostReturns;
    const Duration about = schedule.about_to_lose(now);
    schedule.synced({.at = now}, false);
    CHECK(schedule.about_to_lose(now) == about);
    const auto wait = schedule.settle(false);
    REQUIRE(wait.has_value());
    CHECK(wait->delay == about);
    CHECK(about == late);
    CHECK(schedule.about_to_lose(now) == Duration{});
    now = now + kWork;
    CHECK(schedule.about_to_lose(now) == Duration{});
  }
}

TEST_CASE("Nothing is about to be said of a wait while the host has yet to launch before it") {
  constexpr Duration kWork[] = {Duration{1'000'000}, Duration{10'000}}, kLate{700'000};
  IsolatedSchedule schedule;
  schedule.timeline().restart(2);
  Instant now{0};
  for (const bool lower : {false, false, false, false, false, false, true}) {
    schedule.timeline().begin();
    for (uint32_t n = 0; n < 2; ++n) {
      const bool late = lower && n == 0;
      if (late) schedule.disturbed(/*copy=*/false, now);
      schedule.begins_stretch(now, late);
      schedule.submitted({.kernel = KernelId{n + 1}, .predicted = kWork[n], .at = now,
                          .place = {.in_step = true, .position = n, .length = 2}},
                         /*in_step=*/true, late);
      if (late) schedule.lower_ran(now, now + kLate);
      if (late) schedule.lower_ended(1, 0, now + kLate);
      now = now + kWork[n] + (late ? kLate : Duration{});
      schedule.completed({.units = 1, .reported = true}, now, false);
      if (n == 0) CHECK(schedule.about_to_lose(now) == Duration{});
    }
    schedule.synced({.at = now}, false);
    schedule.settle(false);
    now = now + kWork[0];
  }
}

// Others had the device before it: what it takes longer may be a change of hands that is not known yet.
TEST_CASE("How long own work takes is not learnt where it began behind others") {
  constexpr Duration kWork{1'000'000}, kChange{150'000};
  IsolatedSchedule schedule;
  schedule.timeline().restart(1);
  Instant now{0};
  const auto launch = [&](bool behind) {
    now = now + kWork;
    if (behind) schedule.disturbed(/*copy=*/false, now);
    if (behind) schedule.lower_ended(1, 0, now);
    schedule.timeline().begin();
    schedule.begins_stretch(now, false);
    schedule.submitted({.kernel = KernelId{1}, .predicted = kWork, .at = now,
                        .place = {.in_step = true, .length = 1}},
                       /*in_step=*/true, false);
  };
  const auto run = [&](bool behind, Duration longer) {
    launch(behind);
    now = now + kWork + longer;
    schedule.completed({.units = 1, .reported = true}, now, false);
    schedule.synced({.at = now}, false);
    schedule.settle(false);
  };
  for (int n = 0; n < 20; ++n) run(n % 2 == 0, {});
  REQUIRE(schedule.change() == Duration{});
  for (int n = 0; n < 4; ++n) run(/*behind=*/true, kChange);
  REQUIRE(schedule.change() == Duration{});
  launch(/*behind=*/false);
  CHECK(schedule.work_left() == kWork);
}

// That a change of hands costs nothing is what is known of most devices, and of some it is wrong.
TEST_CASE("What began behind others is not undisturbed, whatever a change of hands is known to cost") {
  constexpr Duration kWork{1'000'000};
  IsolatedSchedule schedule;
  Instant now{0};
  for (const bool behind : {false, true, false}) {
    now = now + kWork;
    if (behind) schedule.disturbed(/*copy=*/false, now);
    if (behind) schedule.lower_ended(1, 0, now);
    schedule.begins_stretch(now, false);
    schedule.submitted({.kernel = KernelId{1}, .predicted = kWork, .at = now}, /*in_step=*/false, false);
    now = now + kWork;
    schedule.completed({.units = 1, .reported = true}, now, false);
    schedule.synced({.at = now}, false);
    const auto wait = schedule.settle(false);
    REQUIRE(wait.has_value());
    CHECK(wait->clean == !behind);
  }
}

TEST_CASE("How long own work takes is not learnt where it may have waited for an own copy") {
  constexpr Duration kWork{1'000'000}, kCopy{400'000};
  IsolatedSchedule schedule;
  schedule.timeline().restart(2);
  Instant now{0};
  const auto launch = [&](uint32_t position, bool copy) {
    schedule.begins_stretch(now, false);
    schedule.submitted({.kernel = KernelId{position + 1}, .predicted = copy ? kCopy : kWork, .at = now,
                        .place = {.in_step = true, .position = position, .length = 2},
                        .stream = StreamSlot{copy ? 1U : 0U}, .copy = copy},
                       /*in_step=*/true, false);
  };
  for (int n = 0; n < 8; ++n) {
    now = now + kWork;
    schedule.timeline().begin();
    launch(0, /*copy=*/true);
    launch(1, /*copy=*/false);
    schedule.completed({.units = 1, .stream = StreamSlot{1}, .reported = true}, now + kCopy, false);
    now = now + kCopy + kWork;
    schedule.completed({.units = 1, .stream = StreamSlot{0}, .reported = true}, now, false);
    schedule.synced({.at = now}, false);
    schedule.settle(false);
  }
  CHECK(schedule.timeline().seen_work(1) < Duration{});
}

TEST_CASE("A change of hands costs at least what others have seen") {
  IsolatedSchedule schedule;
  CHECK(schedule.change() == Duration{});
  schedule.change_costs(Duration{150'000});
  CHECK(schedule.change() == Duration{150'000});
}

// The device runs its streams beside one another.
TEST_CASE("What the host waits for on several streams shares the time by its predicted length") {
  constexpr Duration kWork[] = {Duration{2'000'000}, Duration{1'000'000}};
  IsolatedSchedule schedule;
  schedule.timeline().restart(2);
  Instant now{0};
  for (int n = 0; n < 8; ++n) {
    now = now + Duration{1'000'000};
    schedule.timeline().begin();
    schedule.begins_stretch(now, false);
    for (uint32_t on = 0; on < 2; ++on) {
      schedule.submitted({.kernel = KernelId{on + 1}, .predicted = kWork[on], .at = now,
                          .place = {.in_step = true, .position = on, .length = 2},
                          .stream = StreamSlot{on}},
                         /*in_step=*/true, false);
    }
    const Instant until = now + Duration{3'600'000};
    for (uint32_t on = 0; on < 2; ++on)
      schedule.completed({.units = 1, .stream = StreamSlot{on}, .reported = false}, until, false);
    now = until;
    for (uint32_t on = 0; on < 2; ++on) schedule.synced({.at = now, .stream = StreamSlot{on}}, false);
    schedule.settle(false);
  }
  CHECK(is_about(schedule.timeline().seen_work(0), 2'400));
  CHECK(is_about(schedule.timeline().seen_work(1), 1'200));
}

namespace {

// A launch of 2 ms, beside it one of 1 ms on another stream, and others of 1 ms behind the first.
class TwoStreams {
 public:
  explicit TwoStreams(int launches = 3) : launches_(launches) {
    schedule.timeline().restart(static_cast<uint32_t>(launches));
  }
  // So long after its begin each launch is reported to be through. 1 ms of lower work comes behind
  // the first, or the second; none: -1.
  void request(const std::vector<int64_t>& through_us, int lower_behind = -1) {
    launch(reckoned < 0 ? launches_ : launches_ - 1);
    const Instant began = now_;
    Duration late;
    std::vector<int> order(through_us.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int n) { return through_us[static_cast<size_t>(n)]; });
    for (const int n : order) {
      const Instant now = began + Duration{through_us[static_cast<size_t>(n)] * 1'000} + late;
      schedule.completed({.units = 1, .stream = stream(n), .reported = n != reckoned}, now, false);
      now_ = now;
      if (n == reckoned) launch_next(launches_ - 1);
      if (n != lower_behind) continue;
      late = kLower;
      schedule.disturbed(/*copy=*/false, now);
      schedule.lower_ran(now, now + late);
      schedule.lower_ended(1, 0, now + late);
    }
    for (const uint32_t on : {0, 1}) schedule.synced({.at = now_, .stream = StreamSlot{on}}, false);
    schedule.settle(false);
  }
  void launch(int launches) {
    now_ = now_ + Duration{1'000'000};
    schedule.timeline().begin();
    schedule.begins_stretch(now_, false);
    for (int n = 0; n < launches; ++n) launch_next(n);
  }
  // The next of that launch's stream.
  void complete(int n, bool reported = true) {
    now_ = now_ + Duration{1'000'000};
    schedule.completed({.units = 1, .stream = stream(n), .reported = reported}, now_, false);
  }
  Duration seen(uint32_t position) const { return schedule.timeline().seen_work(position); }

  IsolatedSchedule schedule;
  int reckoned = -1;  // this launch is only taken to be through, before the last one is made

 private:
  const int launches_;
  static constexpr Duration kLower{1'000'000};
  void launch_next(int n) {
    const auto position = static_cast<uint32_t>(n);
    schedule.submitted({.kernel = KernelId{position + 1},
                        .predicted = Duration{n == 0 ? 2'000'000 : 1'000'000}, .at = now_,
                        .place = {.in_step = true, .position = position,
                                  .length = static_cast<uint32_t>(launches_)},
                        .stream = stream(n)},
                       /*in_step=*/true, false);
  }
  static StreamSlot stream(int launch) { return StreamSlot{launch == 1 ? 1U : 0U}; }

  Instant now_{0};
};

}  // namespace

TEST_CASE("Of several streams, what is through next took the time since the launch before it was") {
  TwoStreams host;
  for (int n = 0; n < 8; ++n) host.request({2'400, 3'000, 4'200});
  CHECK(is_about(host.seen(0), 2'400));
  CHECK(is_about(host.seen(1), 600));
  CHECK(is_about(host.seen(2), 1'200));
}

// The second is reported when a later one of the other stream is through, or taken to be through with the first.
TEST_CASE("What another stream is seen to be through with late, or only taken to be, took nothing") {
  for (const bool reckoned : {false, true}) {
    CAPTURE(reckoned);
    TwoStreams host(/*launches=*/4);
    if (reckoned) host.reckoned = 1;
    for (int n = 0; n < 8; ++n) host.request({2'400, reckoned ? 2'300 : 3'500, 3'400, 4'600});
    CHECK(is_about(host.seen(0), 2'400));
    CHECK(host.seen(1) == Duration{});
    CHECK(is_about(host.seen(2), 1'000));
    CHECK(is_about(host.seen(3), 1'200));
  }
}

TEST_CASE("What another stream is at when all others are through took the time since then") {
  TwoStreams host;
  for (int n = 0; n < 8; ++n) host.request({2'000, 4'500, 3'000});
  CHECK(is_about(host.seen(0), 2'000));
  CHECK(is_about(host.seen(1), 1'500));
  CHECK(is_about(host.seen(2), 1'000));
}

// Beside one another, the first two take longer than their share, the third less.
TEST_CASE("What work of several streams takes is not learnt where lower work came between") {
  for (const int lower_behind : {0, 1}) {
    CAPTURE(lower_behind);
    TwoStreams host;
    for (int n = 0; n < 8; ++n) host.request({2'000, 3'000, 4'000});
    for (int n = 0; n < 8; ++n) host.request({2'500, 3'900, 4'000}, lower_behind);
    CHECK(host.seen(0) == Duration{2'000'000});
    CHECK(host.seen(1) == Duration{1'000'000});
    CHECK(host.seen(2) == Duration{1'000'000});
    host.launch(3);
    CHECK(host.schedule.work_left() == Duration{4'000'000});
  }
}

// The second, of another stream, is through before the first; then the first.
TEST_CASE("What is through on one stream is not left to do, however long another takes") {
  TwoStreams host;
  for (int n = 0; n < 8; ++n) host.request({2'000, 3'000, 4'000});
  host.launch(3);
  REQUIRE(host.schedule.work_left() == Duration{4'000'000});
  host.complete(1);
  CHECK(host.schedule.work_left() == Duration{3'000'000});
  host.complete(0);
  CHECK(host.schedule.work_left() == Duration{1'000'000});
}

TEST_CASE("What is only taken to be through on another stream is left to do") {
  TwoStreams host;
  for (int n = 0; n < 8; ++n) host.request({2'000, 3'000, 4'000});
  host.launch(2);
  host.complete(1, /*reported=*/false);
  CHECK(host.schedule.work_left() == Duration{4'000'000});
}
