#include "shim/patience.h"

#include <catch2/catch.hpp>

using lull::shim::Patience;

namespace {
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kSliceNs = 50'000'000;
}  // namespace

TEST_CASE("a program that runs waits for as long as it was told") {
  Patience patience(kSecondNs, /*now_ns=*/7);
  for (uint64_t slice = 1; slice < 20; ++slice) {
    CHECK(patience.left_ns(7 + slice * kSliceNs) == kSecondNs - slice * kSliceNs);
  }
  CHECK(patience.left_ns(7 + kSecondNs) == 0);
  CHECK(patience.left_ns(7 + 2 * kSecondNs) == 0);
}

TEST_CASE("looks that signals bring early count for what they are") {
  Patience patience(/*bound_ns=*/100, 0);
  CHECK(patience.left_ns(0) == 100);
  CHECK(patience.left_ns(1) == 99);
  CHECK(patience.left_ns(99) == 1);
  CHECK(patience.left_ns(100) == 0);
}

TEST_CASE("a program that was stopped still waits for an answer when it goes on") {
  Patience patience(kSecondNs, 0);
  CHECK(patience.left_ns(3600 * kSecondNs) == 900'000'000);
  CHECK(patience.left_ns(3600 * kSecondNs + kSliceNs) == 850'000'000);
}
