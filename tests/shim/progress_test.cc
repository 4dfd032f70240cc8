#include "coordinator/channel/progress.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace lull::channel;

namespace {

// How many of so many launches have a marker, where the host waits behind each `stretch` of them.
int marked(uint32_t every, uint64_t launches, uint64_t stretch) {
  int markers = 0;
  uint64_t last = 0;
  for (uint64_t launch = 1; launch <= launches; ++launch) {
    if (!takes_marker(every, launch, last, launch % stretch == 1 % stretch)) continue;
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

TEST_CASE("markers are at most so many launches apart, and little less while the host waits for none") {
  for (const uint32_t every : {1, 2, 4, 8, 16, 32}) {
    for (uint64_t last = 0; last < 1'000; ++last)
      CHECK(takes_marker(every, last + every, last, /*behind_wait=*/false));
    CHECK(marked(every, 32'000, 100'000) >= static_cast<int>(32'000 / every));
    CHECK(marked(every, 32'000, 100'000) <= static_cast<int>(32'000 / every * 4 / 3));
  }
}

TEST_CASE("behind a wait a launch has one sooner, but never behind less than half of so many") {
  for (uint64_t last = 1; last < 1'000; ++last) {
    CHECK_FALSE(takes_marker(32, last + 15, last, /*behind_wait=*/true));
    CHECK_FALSE(takes_marker(32, last + 19, last, /*behind_wait=*/false));
    CHECK(takes_marker(32, last + 28, last, /*behind_wait=*/true));
  }
  CHECK(marked(32, 32'000, 1) <= 2'000);
}

// By a fixed rule markers keep step with the requests of some programs, and some waits never have one.
TEST_CASE("whatever the waits of a request, each is told of") {
  using Request = std::vector<uint64_t>;  // launches up to each wait
  for (const Request& request : {Request{20, 20, 20, 3}, Request{33, 31}, Request{30, 2}, Request{7, 9, 40}, Request{10, 10, 5},
                                 Request{17, 15, 32}, Request{64, 3}, Request{16, 16}}) {
    std::vector<int> told(request.size());
    uint64_t launch = 0, last = 0;
    for (int n = 0; n < 1'000; ++n) {
      for (size_t wait = 0; wait < request.size(); ++wait) {
        for (uint64_t of = 0; of < request[wait]; ++of) {
          if (!takes_marker(32, ++launch, last, of == 0)) continue;
          told[wait] += of == 0;
          last = launch;
        }
      }
    }
    for (const int times : told) CHECK(times > 50);
  }
}
