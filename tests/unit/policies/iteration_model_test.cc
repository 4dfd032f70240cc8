// How an iteration goes when nobody is in its way.
#include "policies/launch/guarded/model/iteration_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

using namespace lull;
using namespace lull::policies;

// 700 launches at once, then 100 of a slow host: the device is through with the first ones long before.
TEST_CASE("Launches need not be done early where the driver's queue has held as many") {
  constexpr uint32_t kLaunches = 800, kAtOnce = 700;
  constexpr Duration kWork{10'000};
  IterationModel model;
  model.restart(kLaunches);
  Instant now{0};
  for (int iteration = 0; iteration < 4; ++iteration) {
    model.begin();
    for (uint32_t n = 0; n < kLaunches; ++n) {
      now = now + Duration{n < kAtOnce ? 1'000 : 100'000};
      model.launched(n, now, Duration{}, /*ahead=*/n < kAtOnce ? n : 0);
      model.worked(model.index(n), kWork, /*seen=*/true);
    }
    now = now + Duration{1'000'000};
    model.waited(now, Duration{}, /*plain=*/true);
  }
  model.begin();
  CHECK(model.work(model.index(150)) == Duration{650 * kWork.ns});
}

namespace {

// 1,000 launches of 10 us as soon as 533 or fewer are in flight, then 100 of a slow host, and a wait.
constexpr uint32_t kFast = 1'000, kSlow = 100, kPlaces = 533;
constexpr Duration kFull{10'000}, kSlowPause{100'000};

IterationModel full_queue(uint32_t slow, uint32_t many = kFast, uint32_t places = kPlaces) {
  IterationModel model;
  model.restart(many + slow);
  Instant now{0};
  for (int iteration = 0; iteration < 4; ++iteration) {
    model.begin();
    const Instant began = now;
    for (uint32_t n = 0; n < many + slow; ++n) {
      const bool fast = n < many;
      const uint32_t ahead = fast ? std::min(n, places) : 0;
      now = fast ? began + Duration{(n - ahead) * kFull.ns}
                 : began + Duration{many * kFull.ns + (n - many + 1) * kSlowPause.ns};
      model.launched(n, now, Duration{ahead * kFull.ns}, ahead);
      model.worked(model.index(n), kFull, /*seen=*/true);
    }
    now = began + Duration{many * kFull.ns + slow * (kSlowPause.ns + kFull.ns)};
    model.waited(now, Duration{}, /*plain=*/true);
  }
  model.begin();
  model.launched(0, now, Duration{}, 0);
  return model;
}

}  // namespace

// An eighth of the places may be held by markers, but these launches have found as many in flight.
TEST_CASE("A host whose queue is full to the end leaves the device's work to do, and no more") {
  const IterationModel model = full_queue(0);
  CHECK(model.work(model.index(0)) == Duration{kFast * kFull.ns});
}

// Markers and measurements take places, too: at another time the queue may be full with seven eighths as many.
TEST_CASE("A host is taken to be held by seven eighths of the launches that were in flight at most") {
  constexpr uint32_t kMany = 3'000, kMost = 1'000;
  const IterationModel model = full_queue(kSlow, kMany, kMost);
  const auto beyond = [&](uint32_t from) {
    return model.work(model.index(from)).ns - (kMany + kSlow - from) * kFull.ns;
  };
  const int64_t idle = kSlow * kSlowPause.ns;
  CHECK(beyond(kMany - 880) >= idle - kFull.ns * kMost / 4);
  CHECK(beyond(kMany - 870) <= idle / 2);
}

// The launches that found the queue full come late if the device does, and so do the slow ones behind them.
TEST_CASE("A host whose queue was full idles as long as ever behind that") {
  const IterationModel model = full_queue(kSlow);
  const int64_t alone = kFast * kFull.ns + kSlow * (kSlowPause.ns + kFull.ns);
  CHECK(model.work(model.index(0)).ns >= alone - kFull.ns * kPlaces / 8);
  CHECK(model.work(model.index(0)).ns <= alone);
}

// One launch an iteration, and the host waits for it.
TEST_CASE("A pause that varied as arrivals do is relied on after eight in a row that did not") {
  IterationModel model;
  model.restart(1);
  Instant now{0};
  const auto iterate = [&](Duration pause) {
    now = now + pause;
    model.begin();
    model.launched(0, now, Duration{}, 0);
    now = now + Duration{100'000};
    model.waited(now, Duration{}, /*plain=*/true);
  };
  constexpr Duration kPause{1'000'000};
  for (int n = 0; n < 9; ++n) {  // the first has no pause before it
    CHECK(model.begins_at_random());
    CHECK(model.sure_pause() == Duration{});
    iterate(kPause);
  }
  CHECK_FALSE(model.begins_at_random());
  CHECK(model.sure_pause() == kPause);
  for (const int64_t ns : {100'000, 3'000'000, 50'000, 2'000'000, 10'000, 4'000'000})
    iterate(Duration{ns});
  REQUIRE(model.begins_at_random());
  CHECK(model.random_pause() > Duration{});
  int alike = 0;
  for (; model.begins_at_random(); ++alike) iterate(kPause);
  CHECK(alike >= 8);
  CHECK(alike < 40);
}

// Two launches, each waited for; most requests queue, so the pause before the first is mostly short.
TEST_CASE("A request begins where its pattern says so, however short the usual pause there is") {
  for (const bool surely : {false, true}) {
    IterationModel model;
    model.restart(2, /*begins_request=*/true);
    Instant now{0};
    for (int n = 0; n < 40; ++n) {
      for (const uint32_t position : {0U, 1U}) {
        const int64_t first_ns = n % 4 == 0 ? 50'000'000 : 10'000;
        now = now + Duration{position == 0 ? first_ns : 300'000};
        if (position == 0) model.begin(surely);
        model.launched(position, now, Duration{}, 0);
        now = now + Duration{position == 0 ? 1'500'000 : 1'000'000};
        model.waited(now, Duration{}, /*plain=*/true);
      }
    }
    CHECK(model.service_start() == (surely ? 0U : 1U));
  }
}

// Three launches of 1, 2 and 3 ms; the host waits behind the second and the third.
TEST_CASE("What is to be launched is told up to the next wait, and to the service's end") {
  IterationModel model;
  model.restart(3, /*begins_request=*/true);
  Instant now{0};
  for (int n = 0; n < 8; ++n) {
    model.begin(/*surely=*/true);
    for (const uint32_t position : {0U, 1U, 2U}) {
      model.worked(model.index(position), Duration{1'000'000 * (position + 1)}, /*seen=*/true);
      model.launched(position, now, Duration{}, 0);
      now = now + Duration{1'000'000 * (position + 1)};
      if (position > 0) model.waited(now, Duration{}, /*plain=*/true);
    }
  }
  const auto left = [&] { return std::pair(model.to_launch(false).ns, model.to_launch(true).ns); };
  CHECK(left() == std::pair<int64_t, int64_t>(3'000'000, 6'000'000));
  model.begin(/*surely=*/true);
  model.launched(0, now, Duration{}, 0);
  CHECK(left() == std::pair<int64_t, int64_t>(2'000'000, 5'000'000));
  model.launched(1, now, Duration{}, 0);
  CHECK(left() == std::pair<int64_t, int64_t>(0, 3'000'000));
  model.waited(now, Duration{}, /*plain=*/true);
  CHECK(left() == std::pair<int64_t, int64_t>(3'000'000, 3'000'000));
  model.launched(2, now, Duration{}, 0);
  CHECK(left() == std::pair<int64_t, int64_t>(0, 0));
}

namespace {

// How long until a launch's wait ends by itself, where it took so long each time before. Nobody was in the way.
Duration due_after(const std::vector<int64_t>& took_ns) {
  IterationModel model;
  model.restart(1);
  Instant now{0};
  const auto launch = [&] {
    model.begin();
    now = now + Duration{1'000'000};
    model.launched(0, now, Duration{}, 0);
  };
  for (const int64_t ns : took_ns) {
    launch();
    now = now + Duration{ns};
    model.waited(now, Duration{}, /*plain=*/true);
  }
  launch();
  return model.due(now) - now;
}

}  // namespace

// A full queue holds the host, which then launches later and so waits for less.
TEST_CASE("Two times in a row that are alike and unlike all before them count alone") {
  constexpr int64_t kHeld = 5'000'000, kFree = 10'000'000;
  std::vector<int64_t> took(20, kHeld);
  took.push_back(kFree);
  CHECK(due_after(took) == Duration{kHeld});  // one may be slow by itself
  took.push_back(kFree);
  CHECK(due_after(took) == Duration{kFree});
  took.push_back(kHeld);
  CHECK(due_after(took) == Duration{kFree});
  took.push_back(kFree);  // so it was one, which tells how they vary
  CHECK(due_after(took) < Duration{kFree});
  CHECK(due_after(took) > Duration{kHeld});
}

TEST_CASE("Of the first few times those that are alike count, though no deviation is known") {
  constexpr int64_t kHeld = 5'000'000, kFree = 10'000'000;
  CHECK(due_after({kHeld, kFree, kFree, kFree}) == Duration{kFree});
}
