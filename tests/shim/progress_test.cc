#include "coordinator/channel/progress.h"

#include <catch2/catch.hpp>

using namespace lull::channel;

namespace {

// How many of so many launches have a marker, where the host waits behind each `stretch` of them.
int marked(uint32_t every, uint64_t launches, uint64_t stretch) {
  int markers = 0;
  uint64_t last = 0;
  for (uint64_t launch = 1; launch <= launches; ++launch) {
    if (!takes_marker(every, launch, last, launch % stretch == 1)) continue;
    markers += 1;
    last = launch;
  }
  return markers;
}

}  // namespace

TEST_CASE("without a wish no launch has a marker, with every launch all have") {
  for (const uint64_t launch : {1, 16, 64, 65, 1000}) {
    CHECK_FALSE(takes_marker(0, launch, 0, /*behind_wait=*/true));
    CHECK(takes_marker(1, launch, launch - 1, /*behind_wait=*/false));
  }
}

TEST_CASE("one launch in so many has a marker while the host waits for none") {
  for (const uint32_t every : {1, 2, 4, 8, 16}) {
    CHECK(marked(every, 1024, 10'000) == static_cast<int>(1024 / every));
  }
}

TEST_CASE("behind a wait a launch has one sooner, but never behind less than a quarter of so many") {
  for (uint64_t last = 1; last < 1'000; ++last) {
    CHECK_FALSE(takes_marker(16, last + 3, last, /*behind_wait=*/true));
    CHECK_FALSE(takes_marker(16, last + 15, last, /*behind_wait=*/false));
    CHECK(takes_marker(16, last + 16, last, /*behind_wait=*/true));
  }
  CHECK(marked(16, 16'000, 4) > 1'200);
  CHECK(marked(16, 16'000, 4) < 2'000);  // half of them at most
  CHECK(marked(32, 32'000, 1'000) < 1'100);
}

// Requests of four waits, of which the last stretch is short: by a fixed rule the first launch of a
// request never had one.
TEST_CASE("whatever the waits of a request, each is told of") {
  constexpr uint64_t kStretches[] = {20, 20, 20, 3};
  int told[4] = {};
  uint64_t launch = 0, last = 0;
  for (int request = 0; request < 1'000; ++request) {
    for (int wait = 0; wait < 4; ++wait) {
      for (uint64_t n = 0; n < kStretches[wait]; ++n) {
        if (!takes_marker(32, ++launch, last, n == 0)) continue;
        told[wait] += n == 0;
        last = launch;
      }
    }
  }
  for (const int times : told) CHECK(times > 100);
}
