#include "tools/play/lateness.h"

#include <catch2/catch.hpp>

using lull::play::Lateness;

TEST_CASE("lateness of nothing is zero") {
  const Lateness late;
  CHECK(late.count() == 0);
  CHECK(late.quantile_ns(0.99) == 0);
  CHECK(late.max_ns() == 0);
}

TEST_CASE("quantiles of lateness are right within three and a half percent") {
  Lateness late;
  for (uint64_t i = 1; i <= 10'000; ++i) late.add(i * 37);
  for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = q * 10'000 * 37;
    const auto got = static_cast<double>(late.quantile_ns(q));
    CHECK(got >= exact * 0.999);
    CHECK(got <= exact * 1.035);
  }
  CHECK(late.max_ns() == 370'000);
}

TEST_CASE("small and huge values have a bucket") {
  Lateness late;
  late.add(0);
  CHECK(late.quantile_ns(0.99) == 0);
  late.add(UINT64_MAX);
  CHECK(late.max_ns() == UINT64_MAX);
  CHECK(late.quantile_ns(0.5) == 0);
  late.clear();
  CHECK(late.count() == 0);
  for (uint64_t value = 1; value != 0 && value < (1ULL << 43); value *= 2) {
    Lateness one;
    one.add(value);
    CHECK(one.quantile_ns(0.99) == value);
  }
}
