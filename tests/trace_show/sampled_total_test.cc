#include "tools/lull/trace/sampled_total.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/seed.h"
#include "tests/trace_show/events.h"
#include "tools/lull/trace/analysis.h"

using namespace lull;
using namespace lull::trace;
using namespace lull::trace::testing;

TEST_CASE("one outlier among the samples counts for itself only, and makes the total less sure") {
  // 1000 launches of 6.5 us, 64 of them timed; one took 5 ms.
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "t"));
  analysis.feed(kernel(0, "a"));
  for (uint64_t i = 1; i <= 1000; ++i) analysis.feed(launch(1, 0, 0, i, 100));
  for (uint64_t i = 1; i <= 64; ++i) {
    analysis.feed(timing(1, 0, 0, i, -1, i == 7 ? 5'000'000 : 6500 + static_cast<int64_t>(i % 3)));
  }
  const Report report = analysis.finish();
  const Total& total = report.kernels[0].total;
  CHECK(total.total_ns() == Approx(999 * 6501.0 + 5e6).epsilon(0.01));
  // As many of the others may have been as long.
  CHECK(total.error_ns > 936 / 64.0 * 5e6);
}

TEST_CASE("a sum goes by its kernels, however unevenly they are timed") {
  // A rare long kernel is timed each time, a frequent short one 1 time in 100.
  Analysis analysis{FileInfo{}};
  analysis.feed(started(1, "t"));
  analysis.feed(kernel(0, "long"));
  analysis.feed(kernel(1, "short"));
  uint64_t sequence = 0;
  for (int i = 0; i < 8; ++i) {
    analysis.feed(launch(1, 0, 0, ++sequence, 100));
    analysis.feed(timing(1, 0, 0, sequence, -1, 1'000'000));
  }
  for (int i = 0; i < 10'000; ++i) {
    analysis.feed(launch(1, 0, 1, ++sequence, 100));
    if (i % 100 == 0) analysis.feed(timing(1, 0, 1, sequence, -1, 1000));
  }
  const Report report = analysis.finish();
  for (const Total* total :
       {&report.devices[0].total, &report.clients[0].total, &report.streams[0].total}) {
    CHECK(total->is_estimate());
    CHECK(total->total_ns() == Approx(8e6 + 10'000 * 1000.0).epsilon(0.001));
  }
}

TEST_CASE("of independent samples at least 95 of 100 intervals hold the truth") {
  std::mt19937_64 random(lull::tests::test_seed());
  std::normal_distribution<double> length(20'000, 3000);
  int inside = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    LogHistogram samples;
    double rest = 0;
    constexpr int kTimed = 24, kUntimed = 300;
    for (int i = 0; i < kTimed; ++i) samples.add(static_cast<int64_t>(length(random)));
    for (int i = 0; i < kUntimed; ++i) rest += length(random);
    const SampleMean mean = sample_mean(samples);
    inside += std::abs(mean.mean_ns * kUntimed - rest) <= error_ns(mean, kUntimed);
  }
  CHECK(inside > 0.95 * kRounds);
}

TEST_CASE("few samples are less sure, none say nothing") {
  LogHistogram lengths;
  CHECK(sample_mean(lengths).samples == 0);
  CHECK(error_ns(sample_mean(lengths), 10) == 0);
  lengths.add(1000);
  CHECK(error_ns(sample_mean(lengths), 10) >= 10'000);
  lengths.add(1100);
  CHECK(error_ns(sample_mean(lengths), 10) > 0);
  CHECK(error_ns(sample_mean(lengths), 0) == 0);
}
