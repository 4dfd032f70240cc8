// What `guarded` keeps of an important task: how its iteration goes undisturbed, and its accounts.
#include "policies/launch/task_guard.h"

#include <catch2/catch.hpp>

#include "policies/launch/own_timeline.h"

using namespace lull;
using namespace lull::policies;

namespace {

Instant us(int64_t us) { return Instant{us * 1000}; }
Duration long_us(int64_t us) { return Duration{us * 1000}; }

// Two launches, at 0 and at 20 us, of 10 and 30 us; the host waits until `end_us`.
Duration iterate(OwnTimeline& timeline, int64_t start_us, int64_t end_us, bool clean) {
  timeline.begin(us(start_us));
  timeline.launched(0, us(start_us), long_us(10));
  timeline.launched(1, us(start_us + 20), long_us(30));
  timeline.synced(us(start_us + end_us));
  return timeline.end(clean);
}

// A task of three launches of 20 us, 50 us apart, then a wait, whose iterations last 150 us and
// `delay_us` more when somebody was in its way.
struct Task {
  explicit Task(GuardLimits limits = {}) : guard(limits) {}
  void iterate(int64_t delay_us = 0) {
    for (uint64_t k = 1; k <= 3; ++k) {
      const Instant at = us(now_us);
      guard.submitted({.client = ClientId{1}, .kernel = KernelId{k * 7919}, .predicted = long_us(20),
                       .at = at},
                      at, /*lower_in_flight=*/false);
      if (k == 2 && delay_us > 0) guard.disturbed();
      now_us += 50 + (k == 3 ? delay_us : 0);
      guard.completed(1, us(now_us), /*idle=*/true);
    }
    guard.synced(us(now_us));
    now_us += 200;
  }
  bool learn() {
    for (int n = 0; n < 200 && !guard.known(); ++n) iterate();
    for (int n = 0; n < 20; ++n) iterate();
    return guard.known();
  }
  TaskGuard guard;
  int64_t now_us = 1000;
};

}  // namespace

TEST_CASE("An iteration's own time is learnt from clean iterations only") {
  OwnTimeline timeline;
  timeline.restart(2);
  for (uint64_t n = 0; n < OwnTimeline::kEnough; ++n) {
    CHECK_FALSE(timeline.known());
    CHECK(iterate(timeline, 1000 * static_cast<int64_t>(n), 60, /*clean=*/true).ns == 60'000);
  }
  CHECK(timeline.known());
  CHECK(timeline.service().ns == 60'000);
  // From the first launch: both works, and the wait's end.
  CHECK(timeline.stretch(0).work.ns == 40'000);
  CHECK(timeline.stretch(0).due.ns == 60'000);
  CHECK(timeline.stretch(1).work.ns == 30'000);
  CHECK(iterate(timeline, 10'000, 90, /*clean=*/false).ns == 90'000);
  CHECK(timeline.service().ns == 60'000);
  // How late the host is, against its own time.
  timeline.begin(us(20'000));
  timeline.launched(0, us(20'000), long_us(10));
  CHECK(timeline.host_late().ns == 0);
  timeline.launched(1, us(20'027), long_us(30));
  CHECK(timeline.host_late().ns == 7'000);
}

TEST_CASE("A task whose clean iterations change is learnt anew") {
  OwnTimeline timeline;
  timeline.restart(2);
  for (int64_t n = 0; n < 8; ++n) iterate(timeline, 1000 * n, 60, /*clean=*/true);
  iterate(timeline, 20'000, 180, /*clean=*/true);  // one may be an accident
  CHECK(timeline.known());
  iterate(timeline, 21'000, 180, /*clean=*/true);
  CHECK_FALSE(timeline.known());
  CHECK(timeline.service().ns == 180'000);
  for (int64_t n = 0; n < 3; ++n) iterate(timeline, 22'000 + 1000 * n, 180, /*clean=*/true);
  CHECK(timeline.known());
}

TEST_CASE("A guard asks for clean iterations until it knows its task, and again when it is over") {
  Task task;
  CHECK_FALSE(task.guard.known());
  CHECK(task.guard.wants_clean());
  REQUIRE(task.learn());
  CHECK_FALSE(task.guard.wants_clean());
  CHECK(task.guard.mean_account().ns > 0);
  // 3 % of 150 us are 4.5 us an iteration: 15 us each is more than it earns.
  for (int n = 0; n < 40 && !task.guard.wants_clean(); ++n) task.iterate(15);
  CHECK(task.guard.wants_clean());
  CHECK(task.guard.mean_account().ns < 0);
  for (int n = 0; n < 200 && task.guard.wants_clean(); ++n) task.iterate();
  CHECK_FALSE(task.guard.wants_clean());
}

TEST_CASE("A delay within the allowance is borne without end") {
  Task task;
  REQUIRE(task.learn());
  for (int n = 0; n < 60; ++n) {
    task.iterate(3);
    CHECK(task.guard.mean_account().ns >= 0);
  }
}

TEST_CASE("A unit longer than every slack is afforded once the accounts hold it, not before") {
  Task task;
  REQUIRE(task.learn());
  const Duration unit = long_us(100);
  task.guard.save_for(unit);
  int waited = 0;
  while (!task.guard.affords(unit, us(task.now_us)) && waited < 1000) {
    task.iterate();
    ++waited;
  }
  CHECK(waited < 1000);
  // A long one, not earned in a thousand iterations, is not.
  CHECK_FALSE(task.guard.affords(long_us(100'000), us(task.now_us)));
  // Nothing at all may be lost: it is never afforded.
  Task strict({.mean_per_mille = 0, .tail_per_mille = 0});
  REQUIRE(strict.learn());
  for (int n = 0; n < 200; ++n) strict.iterate();
  CHECK_FALSE(strict.guard.affords(long_us(500), us(strict.now_us)));
}
