#include "shim/silence.h"

#include <catch2/catch.hpp>

using lull::shim::Silence;

namespace {
constexpr uint64_t kSliceNs = 50'000'000;
}

TEST_CASE("a second without a look of lulld is too long") {
  Silence silence(/*looks=*/7, /*now_ns=*/0);
  for (uint64_t slice = 1; slice < 20; ++slice)
    CHECK_FALSE(silence.lasts_too_long(7, slice * kSliceNs));
  CHECK(silence.lasts_too_long(7, 20 * kSliceNs));
}

TEST_CASE("each look of lulld begins the second anew, however rarely it comes") {
  Silence silence(0, 0);
  for (uint64_t slice = 1; slice < 1000; ++slice) {
    CHECK_FALSE(silence.lasts_too_long(static_cast<uint32_t>(slice / 15), slice * kSliceNs));
  }
}

TEST_CASE("a thread that was stopped itself does not take lulld for stopped") {
  Silence silence(0, 0);
  CHECK_FALSE(silence.lasts_too_long(0, 3'600'000'000'000));
  CHECK_FALSE(silence.lasts_too_long(0, 3'600'050'000'000));
  CHECK_FALSE(silence.lasts_too_long(1, 3'600'100'000'000));
}

TEST_CASE("what lulld looked before a thread was held is no sign of life") {
  Silence silence(123, 10'000'000'000);
  bool silent = false;
  for (uint64_t slice = 1; slice <= 20; ++slice) {
    silent = silence.lasts_too_long(123, 10'000'000'000 + slice * kSliceNs);
  }
  CHECK(silent);
}
