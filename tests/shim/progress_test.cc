#include "coordinator/channel/progress.h"

#include <catch2/catch.hpp>

using namespace lull::channel;

namespace {

// How many of so many launches have a marker, where the host waits behind each `stretch` of them.
int marked(uint32_t every, int launches, int stretch) {
  int markers = 0;
  uint64_t since = 0;
  for (int launch = 0; launch < launches; ++launch) {
    if (!takes_marker(every, ++since, launch % stretch == 0)) continue;
    markers += 1;
    since = 0;
  }
  return markers;
}

}  // namespace

TEST_CASE("without a wish no launch has a marker, with every launch all have") {
  for (const uint64_t since : {1, 16, 64, 65, 1000}) {
    CHECK_FALSE(takes_marker(0, since, /*behind_wait=*/true));
    CHECK(takes_marker(1, since, /*behind_wait=*/false));
  }
}

TEST_CASE("one launch in so many has a marker while the host waits for none") {
  for (const uint32_t every : {1, 2, 4, 8, 16}) {
    CHECK(marked(every, 1024, 10'000) == static_cast<int>(1024 / every));
  }
}

TEST_CASE("the first launch behind a wait has a marker, unless half as many have not gone by") {
  CHECK(takes_marker(16, 8, /*behind_wait=*/true));
  CHECK_FALSE(takes_marker(16, 7, /*behind_wait=*/true));
  CHECK_FALSE(takes_marker(16, 8, /*behind_wait=*/false));
  CHECK(marked(16, 1201, 12) == 100);  // each stretch's first
  CHECK(marked(16, 1201, 4) == 150);   // every other one's
  CHECK(marked(16, 1201, 1) == 150);
}
