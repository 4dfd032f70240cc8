#include "policies/prediction/kernel_profile.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace lull;
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

TEST_CASE("What was measured in company does not lengthen a kernel or change its gap") {
  KernelProfile profile;
  for (uint64_t i = 0; i < KernelProfile::kTrusted; ++i) profile.add(Duration{10'000}, Duration{50'000});
  for (int i = 0; i < 100; ++i) profile.add(Duration{90'000}, Duration{1'000}, /*disturbed=*/true);
  CHECK(profile.mean().ns == 10'000);
  CHECK(profile.mean_gap().ns == 50'000);
  profile.add(Duration{2'000}, Duration{1'000}, /*disturbed=*/true);
  CHECK(profile.mean().ns < 10'000);  // nothing makes a kernel seem shorter than it is
  CHECK(profile.mean_gap().ns == 50'000);
  KernelProfile always_in_company;
  always_in_company.add(Duration{30'000}, Duration{5'000}, /*disturbed=*/true);
  CHECK(always_in_company.mean().ns == 30'000);
}
