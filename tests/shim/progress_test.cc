#include "coordinator/channel/progress.h"

#include <catch2/catch.hpp>

using namespace lull::channel;

TEST_CASE("without a wish no launch has a marker, with every launch all have") {
  for (const uint64_t sequence : {1, 16, 64, 65, 1000}) {
    CHECK_FALSE(takes_marker(kProgressNone, sequence, 0));
    CHECK(takes_marker(kProgressEvery, sequence, 0));
  }
}

TEST_CASE("seldom: the first launches ahead of the device have one each, then one in kMarkEvery") {
  for (const uint64_t done : {0, 5, 4096}) {
    for (uint64_t ahead = 1; ahead <= 1024; ++ahead) {
      const bool near = ahead <= kMarkedAhead;
      CHECK(takes_marker(kProgressSeldom, done + ahead, done) ==
            (near || (done + ahead) % kMarkEvery == 0));
    }
  }
  // What was reported may be further than what this thread knows.
  CHECK(takes_marker(kProgressSeldom, 7, 9));
}

TEST_CASE("seldom: markers take few of a queue's places") {
  constexpr uint64_t kPlaces = 1024;
  uint64_t places = 0, launches = 0;
  for (; places + 2 <= kPlaces; ++launches) {
    places += takes_marker(kProgressSeldom, launches + 1, 0) ? 2 : 1;
  }
  CHECK(launches >= 900);  // it began empty
  uint64_t marked = 0;
  for (uint64_t sequence = 10'000; sequence < 11'024; ++sequence) {
    marked += takes_marker(kProgressSeldom, sequence, sequence - 900) ? 1 : 0;
  }
  CHECK(marked == 64);  // it stays full
}
