#include "policies/launch/sharing_figures.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

constexpr ClientId kHigh{1}, kLow{2};
Instant at_s(int64_t s) { return Instant{s * 1'000'000'000}; }

// Each second a unit and a room, from .. until s.
void see(SharingFigures& figures, int64_t from, int64_t until, Duration unit, Duration room) {
  for (int64_t s = from; s < until; ++s) {
    figures.unit(kLow, unit, at_s(s));
    figures.room(kHigh, room, at_s(s));
  }
}

}  // namespace

TEST_CASE("nothing is told of a pair before both were seen for ten seconds") {
  SharingFigures figures;
  see(figures, 0, 10, Duration{5}, Duration{3});
  CHECK_FALSE(figures.of(kHigh, kLow));
  see(figures, 10, 11, Duration{5}, Duration{3});
  REQUIRE(figures.of(kHigh, kLow));
  CHECK(figures.of(kHigh, kLow)->longest == Duration{5});
  CHECK(figures.of(kHigh, kLow)->slack == Duration{3});
  CHECK_FALSE(figures.of(kLow, kHigh));
}

TEST_CASE("the longest unit and the largest room count, and are forgotten after twenty seconds") {
  SharingFigures figures;
  see(figures, 0, 5, Duration{5}, Duration{3});
  figures.unit(kLow, Duration{900}, at_s(5));
  figures.room(kHigh, Duration{700}, at_s(5));
  see(figures, 6, 20, Duration{5}, Duration{3});
  CHECK(figures.of(kHigh, kLow)->longest == Duration{900});
  CHECK(figures.of(kHigh, kLow)->slack == Duration{700});
  see(figures, 20, 21, Duration{5}, Duration{3});
  CHECK(figures.of(kHigh, kLow)->longest == Duration{5});
  CHECK(figures.of(kHigh, kLow)->slack == Duration{3});
}

TEST_CASE("after a long silence only what comes then counts") {
  SharingFigures figures;
  see(figures, 0, 11, Duration{900}, Duration{3});
  see(figures, 100, 101, Duration{5}, Duration{3});
  CHECK(figures.of(kHigh, kLow)->longest == Duration{5});
}

TEST_CASE("nothing is told of who has left") {
  SharingFigures figures;
  see(figures, 0, 11, Duration{5}, Duration{3});
  figures.left(kLow);
  CHECK_FALSE(figures.of(kHigh, kLow));
}
