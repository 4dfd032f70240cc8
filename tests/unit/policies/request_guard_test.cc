// The guard of one important client: when requests may be over their limit.
#include "policies/launch/guarded/request_guard.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

// Launches of 1 ms, one behind the other, and a wait behind the last of a request.
class Host {
 public:
  // `late`: lower work of that length was ahead of it; `seen`: it is known to have been.
  void request(uint32_t launches, uint64_t first_kernel, Duration late = {}, bool seen = true) {
    now_ = now_ + Duration{500'000};
    if (late.ns > 0) guard.disturbed(/*copy=*/false, now_);
    for (uint32_t n = 0; n < launches; ++n) {
      guard.submitted({.kernel = KernelId{first_kernel + n}, .predicted = kLength, .at = now_},
                      late.ns > 0);
    }
    if (late.ns > 0) {
      now_ = now_ + late;
      if (seen) guard.lower_ran(now_ + Duration{-late.ns}, now_);
      guard.lower_ended(1, 0, now_);
    }
    for (uint32_t n = 0; n < launches; ++n) {
      now_ = now_ + kLength;
      guard.completed({.units = 1, .predicted = kLength}, now_, false);
    }
    wait();
  }
  // Four launches; the host computes for so long behind the second.
  void request_with_pause(Duration pause) {
    now_ = now_ + Duration{500'000};
    for (const uint64_t first : {1, 3}) {
      for (const uint64_t kernel : {first, first + 1})
        guard.submitted({.kernel = KernelId{kernel}, .predicted = kLength, .at = now_}, false);
      for (int n = 0; n < 2; ++n) {
        now_ = now_ + kLength;
        guard.completed({.units = 1, .predicted = kLength}, now_, false);
      }
      if (first == 1) now_ = now_ + pause;
    }
    wait();
  }
  int64_t exceptions_x1000() { return guard.moment(now_, {}, false, {}).exceptions_x1000; }

  RequestGuard guard{SlowdownBound{30, 50}, Parts{}};

 private:
  void wait() {
    guard.synced({.at = now_}, false);
    guard.settle(false);
  }
  static constexpr Duration kLength{1'000'000};
  Instant now_{0};
};

}  // namespace

TEST_CASE("No request may be over its limit before it is known what requests take") {
  Host host;
  for (int n = 0; n < 6; ++n) host.request(4, 1);
  CHECK(host.exceptions_x1000() == 0);
  for (int n = 0; n < 10; ++n) host.request(4, 1);
  CHECK(host.exceptions_x1000() >= 1'000);
}

TEST_CASE("A program that goes on otherwise has no new error budget") {
  Host host;
  for (int n = 0; n < 20; ++n) host.request(4, 1);
  host.request(4, 1, Duration{2'000'000});
  host.request(4, 1);
  CHECK(host.exceptions_x1000() < 0);
  for (int n = 0; n < 40; ++n) host.request(6, 100);
  CHECK(host.exceptions_x1000() >= 0);
  CHECK(host.exceptions_x1000() < 500);
}

TEST_CASE("A request that takes longer beside lower work is over, whatever its waits say") {
  Host host;
  for (int n = 0; n < 20; ++n) host.request(4, 1);
  host.request(4, 1, Duration{2'000'000}, /*seen=*/false);
  host.request(4, 1);
  CHECK(host.exceptions_x1000() < 0);
}

TEST_CASE("A request that takes no longer beside lower work is not over, whatever its waits say") {
  Host host;
  for (int n = 0; n < 20; ++n) host.request_with_pause(Duration{2'000'000});
  host.request(4, 1, Duration{2'000'000});  // it lost as much as its host was faster
  host.request_with_pause(Duration{2'000'000});
  CHECK(host.exceptions_x1000() >= 1'000);
}

TEST_CASE("Requests that others delay a little all the same tell what they take") {
  Host little, much;
  for (int n = 0; n < 20; ++n) {
    little.request(4, 1, Duration{5'000});
    much.request(4, 1, Duration{500'000});
  }
  CHECK(little.exceptions_x1000() >= 1'000);
  CHECK(much.exceptions_x1000() == 0);
}

TEST_CASE("A client may be at work for 32 of its requests after its last launch, a minute at most") {
  Host host;
  CHECK(host.guard.at_work().ns == 0);
  for (int n = 0; n < 20; ++n) host.request(4, 1);
  CHECK(host.guard.at_work() >= Duration{32 * 4'000'000});
  CHECK(host.guard.at_work() <= Duration{32 * 4'500'000});
}
