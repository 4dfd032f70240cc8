// How long requests take undisturbed, and what others cost one.
#include "policies/launch/guarded/observe/request_times.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

Duration us(int64_t us) { return Duration{us * 1000}; }

}  // namespace

TEST_CASE(
    "What others cost a request is its time less that of undisturbed ones, off by as much as they "
    "vary") {
  RequestTimes times;
  CHECK(times.cost(us(120), us(7)) == us(7));  // nothing is known yet: the waits' word
  for (int n = 0; n < 12; ++n) times.undisturbed(us(n % 2 == 0 ? 99 : 101), /*kept=*/true);
  CHECK(times.known());
  CHECK(times.well_known());
  CHECK(times.usual() == us(100));
  CHECK(times.cost(us(120), us(7)) == us(20));
  CHECK(times.cost(us(98), us(7)) == us(-2));
  CHECK(times.spread() == us(1));
}

TEST_CASE("Requests that nobody happened to disturb do not count for the mean") {
  RequestTimes times;
  for (int n = 0; n < 12; ++n) times.undisturbed(us(100), /*kept=*/true);
  for (int n = 0; n < 100; ++n) times.undisturbed(us(97), /*kept=*/false);
  CHECK(times.usual() == us(100));
}

TEST_CASE("Two undisturbed requests of another length are another phase of the program") {
  RequestTimes times;
  for (int n = 0; n < 12; ++n) times.undisturbed(us(100), /*kept=*/true);
  times.undisturbed(us(150), /*kept=*/true);
  CHECK(times.known());
  times.undisturbed(us(150), /*kept=*/true);
  CHECK_FALSE(times.known());
  CHECK(times.draw(us(1), /*whole=*/true));
}

TEST_CASE("Single requests that take much longer by themselves are slow ones, not another phase") {
  RequestTimes times;
  for (int n = 0; n < 40; ++n) times.undisturbed(us(n % 8 == 5 ? 150 : 100), /*kept=*/true);
  CHECK(times.known());
  CHECK(times.usual() == us(100));
  CHECK(times.spread() == us(50));
}

// Work in flight from before the program came made the first ones take half as long again, each a little otherwise.
TEST_CASE("What took longer than the first that nobody was in the way of was not undisturbed") {
  RequestTimes times;
  for (const int64_t took : {483, 491, 500, 508, 504})
    times.undisturbed(us(took), /*kept=*/true, /*surely=*/false);
  for (const int64_t took : {486, 345, 345, 345, 345, 346, 345, 345, 345, 345, 345})
    times.undisturbed(us(took), /*kept=*/true);
  CHECK(times.usual() <= us(346));
  CHECK(times.spread() <= us(1));
}

TEST_CASE("Slow requests are forgotten where earlier work may have delayed them, and all where most are slow") {
  const auto after = [](std::initializer_list<int64_t> took) {
    RequestTimes times;
    for (int n = 0; n < 3; ++n) {
      for (const int64_t one : took) times.undisturbed(us(one), /*kept=*/true);
    }
    REQUIRE(times.known());
    return times;
  };
  RequestTimes times = after({137, 101, 103, 103});
  RequestTimes before = times;
  CHECK(times.usual() > us(110));
  CHECK(times.spread() > us(20));
  times.forget_slow();
  CHECK(times.known());
  CHECK(times.usual() > us(102));  // of 101 and 103, which are within a 32nd
  CHECK(times.usual() < us(103));
  CHECK(times.spread() == us(0));
  for (int n = 0; n < 30; ++n) {
    for (RequestTimes* seen : {&times, &before}) seen->undisturbed(us(102), /*kept=*/true);
  }
  CHECK(times.spread() <= us(1));
  CHECK(before.spread() > us(20));

  RequestTimes beyond = after({105, 105, 101, 101});  // by more than a 32nd
  beyond.forget_slow();
  CHECK(beyond.usual() == us(101));
  RequestTimes most = after({137, 137, 101, 137, 103});
  most.forget_slow();
  CHECK_FALSE(most.known());
  RequestTimes none;
  none.forget_slow();
  CHECK(none == RequestTimes());
}

// One of another length may be the first of another phase: the next one tells.
TEST_CASE("A slow request that nothing is made of yet is forgotten, too") {
  const auto beside = [] {
    RequestTimes times;
    for (int n = 0; n < 12; ++n) times.undisturbed(us(n % 2 == 0 ? 99 : 101), /*kept=*/true);
    times.undisturbed(us(150), /*kept=*/true);
    times.forget_slow();
    return times;
  };
  RequestTimes again = beside();
  again.undisturbed(us(150), /*kept=*/true);
  CHECK(again.known());
  again.undisturbed(us(150), /*kept=*/true);
  CHECK_FALSE(again.known());
  RequestTimes slow = beside();  // a single slow one is not believed
  for (int n = 0; n < 20; ++n) slow.undisturbed(us(n == 10 ? 150 : 100), /*kept=*/true);
  CHECK(slow.spread() <= us(1));
}

// They vary, so that none of them is of another phase.
TEST_CASE("Where three kept requests in a row are shorter than any before, those were not undisturbed") {
  const auto known = [](RequestTimes& times) {
    for (int n = 0; n < 12; ++n) times.undisturbed(us(n % 2 == 0 ? 104 : 100), /*kept=*/true);
    REQUIRE(times.known());
  };
  RequestTimes three, two, not_kept, by_little;
  for (RequestTimes* times : {&three, &two, &not_kept, &by_little}) known(*times);
  for (const int64_t took : {96, 96, 95}) {
    CHECK(three.known());
    three.undisturbed(us(took), /*kept=*/true);
  }
  CHECK_FALSE(three.known());
  for (int n = 0; n < 8; ++n) three.undisturbed(us(96), /*kept=*/true);
  CHECK(three.usual() == us(96));

  for (const int64_t took : {96, 96, 100, 93, 93}) two.undisturbed(us(took), /*kept=*/true);
  CHECK(two.known());
  for (int n = 0; n < 4; ++n) not_kept.undisturbed(us(96), /*kept=*/false);
  CHECK(not_kept.known());
  not_kept.undisturbed(us(96), /*kept=*/true);
  not_kept.undisturbed(us(100), /*kept=*/false);
  not_kept.undisturbed(us(96), /*kept=*/true);
  not_kept.undisturbed(us(96), /*kept=*/false);
  CHECK(not_kept.known());
  not_kept.undisturbed(us(96), /*kept=*/true);
  CHECK_FALSE(not_kept.known());
  for (int n = 0; n < 8; ++n) by_little.undisturbed(us(98), /*kept=*/true);
  CHECK(by_little.known());
}

TEST_CASE("Requests of any length tell what they take where nobody was in their way") {
  RequestTimes times;
  for (const int64_t took : {400, 500, 600, 480, 440, 400, 360}) times.undisturbed(us(took), /*kept=*/true);
  CHECK(times.known());
}

TEST_CASE("Requests that all take the same are known after four, others after seven") {
  for (const int64_t varies : {0, 2}) {
    RequestTimes times;
    int known_after = 0;
    for (int n = 1; n <= 10 && known_after == 0; ++n) {
      times.undisturbed(us(100 + varies * (n % 2)), /*kept=*/true);
      if (times.known()) known_after = n;
    }
    CHECK(known_after == (varies == 0 ? 4 : 7));
  }
}

TEST_CASE("Few requests are kept undisturbed once their mean is known") {
  RequestTimes times;
  int first = 0, then = 0;
  for (int n = 0; n < 10; ++n) first += times.draw(us(1), true) ? 1 : 0;
  CHECK(first == 10);
  for (int n = 0; n < 40; ++n) times.undisturbed(us(100), /*kept=*/true);
  for (int n = 0; n < 12'800; ++n) then += times.draw(us(1), true) ? 1 : 0;
  CHECK(then > 50);
  CHECK(then < 200);
}
