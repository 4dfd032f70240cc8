#include "policies/prediction/kernel_profile.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

using namespace lull;
namespace policies = lull::policies;
using lull::policies::KernelProfile;

TEST_CASE("A profile without samples knows nothing") {
  const KernelProfile profile;
  CHECK(profile.count() == 0);
  CHECK(profile.mean().ns == 0);
  CHECK(profile.quantile(990).ns == 0);
  CHECK(profile.mean_gap().ns == -1);
}

TEST_CASE("The mean is the mean, and the gap's counts only where a gap is known") {
  KernelProfile profile;
  profile.add(Duration{100}, Duration{-1});
  profile.add(Duration{300}, Duration{1000});
  profile.add(Duration{200}, Duration{0});
  CHECK(profile.count() == 3);
  CHECK(profile.mean().ns == 200);
  CHECK(profile.last().ns == 200);
  CHECK(profile.gap_count() == 2);
  CHECK(profile.mean_gap().ns == 500);
}

TEST_CASE("Quantiles are within a bucket of the truth") {
  KernelProfile profile;
  std::vector<int64_t> samples;
  for (int64_t i = 1; i <= 1000; ++i) samples.push_back(i * i * 10);
  for (int64_t sample : samples) profile.add(Duration{sample}, Duration{-1});
  for (uint32_t per_mille : {1U, 100U, 500U, 900U, 990U, 1000U}) {
    const int64_t truth = samples[per_mille - 1];
    const int64_t seen = profile.quantile(per_mille).ns;
    CHECK(seen >= truth);
    CHECK(seen <= truth + truth / 15 + 1);
  }
}

TEST_CASE("A profile follows a program that changes") {
  KernelProfile profile;
  for (int i = 0; i < 2000; ++i) profile.add(Duration{10'000}, Duration{-1});
  for (int i = 0; i < 2000; ++i) profile.add(Duration{20'000}, Duration{-1});
  CHECK(profile.mean().ns > 19'900);
  for (int i = 0; i < 20'000; ++i) profile.add(Duration{20'000}, Duration{-1});
  CHECK(profile.quantile(100).ns >= 20'000);
}

TEST_CASE("Absurd samples are bounded") {
  KernelProfile profile;
  profile.add(Duration{INT64_MAX}, Duration{INT64_MAX});
  profile.add(Duration{-5}, Duration{-5});
  CHECK(profile.mean().ns == KernelProfile::kLongestNs / 2);
  CHECK(profile.quantile(1000).ns >= KernelProfile::kLongestNs);
  CHECK(profile.mean_gap().ns == KernelProfile::kLongestNs);
}

namespace {

KernelProfile trusted(int64_t ns = 10'000, int64_t gap_ns = 50'000) {
  KernelProfile profile;
  for (uint64_t i = 0; i < KernelProfile::kTrusted; ++i) profile.add(Duration{ns}, Duration{gap_ns});
  return profile;
}

}  // namespace

TEST_CASE("What was measured in company does not lengthen a kernel or shorten its gap") {
  KernelProfile profile = trusted();
  // It mostly waits for others, now and then it does not.
  for (int64_t i = 0; i < 1000; ++i) {
    const bool waits = i % 20 != 0;
    profile.add(Duration{waits ? 15'000 + i * 97 % 90'000 : 10'100}, Duration{waits ? 1'000 : 49'000},
                /*disturbed=*/true);
  }
  CHECK(profile.mean().ns == 10'000);
  CHECK(profile.mean_gap().ns == 50'000);
  CHECK(profile.relearnt() == 0);
  KernelProfile always_co_running;
  always_co_running.add(Duration{30'000}, Duration{5'000}, /*disturbed=*/true);
  CHECK(always_co_running.mean().ns == 30'000);
}

TEST_CASE("A kernel measured in company only takes as long as the shortest, until one was alone") {
  KernelProfile profile;
  const auto add = [&](int64_t us, int64_t gap_us, bool disturbed) {
    profile.add(Duration{us * 1'000}, Duration{gap_us * 1'000}, disturbed);
  };
  add(9'000, 10, true);
  add(400, 80, true);
  add(5'000, 30, true);
  CHECK(profile.mean() == Duration{400'000});
  CHECK(profile.gaps().mean() == Duration{40'000});  // pauses count as they come
  add(500, 80, false);  // it is longer by itself, at times
  CHECK(profile.mean() == Duration{500'000});
  CHECK(profile.gaps().mean() == Duration{50'000});
  for (int n = 0; n < 6; ++n) add(30'000, 50, true);
  CHECK(profile.mean() == Duration{500'000});
}

TEST_CASE("Disturbed samples do not bias the mean of varied lengths to either side") {
  std::mt19937_64 random(4);
  KernelProfile clean;
  KernelProfile mixed;
  for (int i = 0; i < 20'000; ++i) {
    const int64_t own = 8'000 + static_cast<int64_t>(random() % 4'000);
    const int64_t wait = static_cast<int64_t>(random() % 3'000);
    const bool disturbed = random() % 4 != 0;
    if (!disturbed) clean.add(Duration{own}, Duration{20'000});
    mixed.add(Duration{disturbed ? own + wait : own}, Duration{disturbed ? 20'000 - wait : 20'000}, disturbed);
  }
  CHECK(mixed.relearnt() == 0);
  CHECK(mixed.mean().ns == Approx(clean.mean().ns).epsilon(0.01));
  CHECK(mixed.mean().ns == Approx(10'000).epsilon(0.02));
  CHECK(mixed.mean_gap().ns == Approx(20'000).epsilon(0.01));
}

TEST_CASE("A kernel that changes its length is relearnt within eight undisturbed samples") {
  for (const int64_t now_ns : {30'000, 3'333}) {
    KernelProfile profile;
    for (int i = 0; i < 3'000; ++i) profile.add(Duration{10'000}, Duration{50'000});
    for (int i = 0; i < 7; ++i) profile.add(Duration{now_ns}, Duration{50'000});
    CHECK(profile.mean().ns == 10'000);
    profile.add(Duration{now_ns}, Duration{50'000});
    CHECK(profile.mean().ns == now_ns);
    CHECK(profile.durations().at_most().ns == Approx(now_ns).epsilon(0.07));
    CHECK(profile.relearnt() == 1);
    CHECK(profile.mean_gap().ns == 50'000);
  }
}

TEST_CASE("A kernel that is never alone is relearnt too, from what company has moved least") {
  std::mt19937_64 random(9);
  const auto feed = [&random](KernelProfile& profile, int64_t own_ns, int64_t wait_ns, int samples) {
    for (int i = 0; i < samples; ++i) {
      const int64_t wait = static_cast<int64_t>(random() % static_cast<uint64_t>(wait_ns));
      profile.add(Duration{own_ns + wait}, Duration{-1}, /*disturbed=*/true);
    }
  };
  KernelProfile longer = trusted();
  feed(longer, 30'000, 30'000, 31);
  CHECK(longer.mean().ns == 10'000);
  feed(longer, 30'000, 30'000, 1);
  CHECK(longer.mean().ns >= 30'000);
  CHECK(longer.mean().ns < 33'000);
  KernelProfile waits_long = trusted();
  feed(waits_long, 30'000, 60'000, 64);
  CHECK(waits_long.mean().ns >= 30'000);
  CHECK(waits_long.mean().ns < 33'000);
  // Shorter shows where co-running work leaves it so: here in a third of the samples.
  KernelProfile shorter = trusted(30'000);
  feed(shorter, 10'000, 45'000, 48);
  CHECK(shorter.mean().ns >= 10'000);
  CHECK(shorter.mean().ns < 13'000);
  // It always waits, for 40 us at least: believed until the first time that it does not.
  KernelProfile waits = trusted();
  for (int i = 0; i < 100; ++i) feed(waits, 50'000, 20'000, 1);
  CHECK(waits.mean().ns < 52'000);
  for (int i = 0; i < 8; ++i) feed(waits, 10'000, 100, 1);
  CHECK(waits.mean().ns < 10'100);
}

TEST_CASE("A kernel that always waits for others, now longer and now shorter, has not drifted") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    KernelProfile profile = trusted(5'000);
    for (int i = 0; i < 2'000; ++i) {
      profile.add(Duration{5'000 + static_cast<int64_t>(random() % 50'000)}, Duration{-1},
                  /*disturbed=*/true);
    }
    CHECK(profile.relearnt() == 0);
    CHECK(profile.mean().ns == 5'000);
  }
}

TEST_CASE("A gap in company is relearnt from the longest, and longer gaps as they come") {
  KernelProfile profile = trusted();
  for (int i = 0; i < 32; ++i) {
    profile.add(Duration{10'000}, Duration{i % 4 == 0 ? 16'000 : 2'000}, /*disturbed=*/true);
  }
  CHECK(profile.mean_gap().ns == 16'000);
  for (int i = 0; i < 8; ++i) profile.add(Duration{10'000}, Duration{48'000}, /*disturbed=*/true);
  CHECK(profile.mean_gap().ns == 48'000);
  CHECK(profile.mean().ns == 10'000);
}

TEST_CASE("Two lengths in long turns are no drift: both are kept") {
  KernelProfile profile;
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 50; ++i) profile.add(Duration{turn % 2 == 0 ? 10'000 : 100'000}, Duration{-1});
  }
  CHECK(profile.relearnt() == 1);  // the first time could not be told
  CHECK(profile.mean().ns == Approx(55'000).epsilon(0.3));
  CHECK(profile.quantile(400).ns < 11'000);
  CHECK(profile.durations().at_most().ns >= 100'000);
}

TEST_CASE("An odd long sample is no drift, and counts") {
  KernelProfile profile = trusted();
  for (int i = 0; i < 80; ++i) profile.add(Duration{i % 8 == 7 ? 10'000 : 40'000}, Duration{-1});
  CHECK(profile.relearnt() == 0);
  CHECK(profile.quantile(990).ns >= 40'000);
}

TEST_CASE("What was learnt of one place is forgotten when the kernel drifts") {
  KernelProfile kernel = trusted();
  policies::PlaceProfile place;
  CHECK(place.of(kernel) == nullptr);
  for (int i = 0; i < 5; ++i) place.add(kernel, Duration{10'000}, Duration{7'000});
  REQUIRE(place.of(kernel) != nullptr);
  CHECK(place.of(kernel)->mean_gap().ns == 7'000);
  for (int i = 0; i < 8; ++i) kernel.add(Duration{30'000}, Duration{50'000});
  CHECK(place.of(kernel) == nullptr);
  place.add(kernel, Duration{30'000}, Duration{9'000});
  CHECK(place.of(kernel)->mean().ns == 30'000);
}

TEST_CASE("What is saved and taken up again says the same") {
  KernelProfile profile;
  for (int64_t i = 0; i < 500; ++i) profile.add(Duration{9'000 + i * 7 % 2'000}, Duration{i * 100});
  const KernelProfile again = KernelProfile::from(profile.saved());
  CHECK(again.mean() == profile.mean());
  CHECK(again.durations().at_most() == profile.durations().at_most());
  CHECK(again.gaps().at_least() == profile.gaps().at_least());
}
