#include "tools/lull/trace/log_histogram.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

using lull::trace::LogHistogram;

TEST_CASE("quantiles are those of the samples, within half a bucket") {
  const auto seed = GENERATE(1, 2, 3);
  const double spread = GENERATE(0.1, 1.0, 4.0);
  INFO("seed " << seed << ", spread " << spread);
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::lognormal_distribution<double> lengths(10, spread);
  LogHistogram histogram;
  std::vector<int64_t> samples;
  for (int i = 0; i < 5000; ++i) {
    samples.push_back(static_cast<int64_t>(std::min(lengths(random), 1e12)));
    histogram.add(samples.back());
  }
  std::sort(samples.begin(), samples.end());
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = static_cast<size_t>(std::ceil(share * 5000));
    const auto exact = static_cast<double>(samples[rank - 1]);
    CHECK(histogram.quantile_ns(share) == Approx(exact).epsilon(0.008).margin(1));
  }
  CHECK(histogram.min_ns() == samples.front());
  CHECK(histogram.max_ns() == samples.back());
  CHECK(histogram.total_ns() == std::accumulate(samples.begin(), samples.end(), int64_t{0}));
  CHECK(histogram.kept_bytes() < 40'000);
}

TEST_CASE("one value is its own quantile, and none is zero") {
  LogHistogram histogram;
  CHECK(histogram.quantile_ns(0.5) == 0);
  for (int i = 0; i < 3; ++i) histogram.add(123'457);
  for (const double share : {0.0, 0.5, 1.0}) CHECK(histogram.quantile_ns(share) == 123'457);
}

TEST_CASE("lengths out of range count as the nearest in range") {
  LogHistogram histogram;
  histogram.add(-5);
  histogram.add(INT64_MAX);
  CHECK(histogram.count() == 2);
  CHECK(histogram.min_ns() == 0);
  CHECK(histogram.max_ns() == LogHistogram::kLongestNs);
}

TEST_CASE("the buckets hold every sample and lie side by side") {
  LogHistogram histogram;
  for (int64_t ns = 1; ns < 1'000'000; ns = ns * 5 / 4 + 1) histogram.add(ns);
  uint64_t samples = 0;
  int64_t before = 0;
  histogram.for_each([&](int64_t low, int64_t high, uint32_t count) {
    CHECK(low >= before);
    CHECK(high > low);
    before = high;
    samples += count;
  });
  CHECK(samples == histogram.count());
}
