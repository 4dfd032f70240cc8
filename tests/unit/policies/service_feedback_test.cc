// What others really cost one task's services, learnt from how long they take with them and without.
#include "policies/launch/guarded/model/service_feedback.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

using namespace lull;
using namespace lull::policies;

namespace {

constexpr Duration us(int64_t us) { return {us * 1000}; }

constexpr int kFirst = 4;   // after a restart, do not count
constexpr int kEnough = 3;  // for the mean
constexpr int kVaried = 8;  // for how they vary

void serve_alone(ServiceFeedback& feedback, const std::vector<int64_t>& took_us, bool kept = true) {
  for (const int64_t took : took_us) feedback.undisturbed(us(took), kept);
}
void skip_first(ServiceFeedback& feedback, int64_t took_us) {
  serve_alone(feedback, std::vector<int64_t>(kFirst, took_us));
}

// `count` undisturbed services count, by turns so much shorter and longer than 10 ms.
ServiceFeedback learnt(int64_t off_us, int count = 64) {
  ServiceFeedback feedback;
  skip_first(feedback, 10'000);
  for (int n = 0; n < count; ++n) serve_alone(feedback, {10'000 + (n % 2 == 0 ? off_us : -off_us)});
  return feedback;
}

int kept_of_10000(ServiceFeedback& feedback, Duration precision) {
  int kept = 0;
  for (int n = 0; n < 10'000; ++n) kept += feedback.draws_undisturbed(precision) ? 1 : 0;
  return kept;
}

// A task whose services vary and are disturbed, but for those that are drawn: what guarded makes of
// it, service after service.
struct Served {
  ServiceFeedback feedback;
  int64_t really_ns = 0;  // what others cost the second half of the services
  int64_t cost_ns = 0;    // ... as told
  int disturbed = 0, kept = 0;
};
Served serve(uint32_t seed, double deviation, double delay_per_cost, int services = 6'000) {
  Served served;
  std::mt19937 random(seed);
  std::normal_distribution<double> own(10e6, deviation * 10e6);
  std::uniform_real_distribution<double> others(0, 600e3);  // 3 % in the mean
  bool kept = false, keeps_next = true;
  for (int n = 0; n < services; ++n) {
    const double alone = own(random);
    const double cost = others(random);
    if (kept) {
      served.feedback.undisturbed({static_cast<int64_t>(alone)}, true);
      served.kept += 1;
    } else {
      const Duration told = served.feedback.cost({static_cast<int64_t>(alone + cost)},
                                                 {static_cast<int64_t>(delay_per_cost * cost)}).likely;
      if (n >= services / 2) {
        served.really_ns += static_cast<int64_t>(cost);
        served.cost_ns += told.ns;
        served.disturbed += 1;
      }
    }
    kept = std::exchange(keeps_next, served.feedback.draws_undisturbed(us(75)));
  }
  return served;
}

}  // namespace

TEST_CASE("How long undisturbed services take is known after three, how they vary after eight") {
  ServiceFeedback feedback;
  skip_first(feedback, 100);
  for (int n = 0; n < kVaried; ++n) {
    CHECK(feedback.known() == (n >= kEnough));
    CHECK_FALSE(feedback.varied());
    CHECK(feedback.spread().ns == 0);
    feedback.undisturbed(us(n % 2 == 0 ? 90 : 110), true);
  }
  CHECK(feedback.varied());
  CHECK(feedback.mean().ns == Approx(100'000).margin(1));
  CHECK(feedback.error().ns == Approx(10'000 / std::sqrt(8.0)).epsilon(0.1));
  CHECK(feedback.spread().ns == Approx(10'000).epsilon(0.1));
  // Only of those that were drawn; the slowest of all.
  serve_alone(feedback, {80, 80, 80, 120}, /*kept=*/false);
  CHECK(feedback.mean().ns == Approx(100'000).margin(1));
  CHECK(feedback.spread().ns == Approx(20'000).margin(1));
}

TEST_CASE("Services that all take the same are known to after three") {
  ServiceFeedback feedback;
  skip_first(feedback, 10'000);
  serve_alone(feedback, {10'000, 10'010, 9'990});
  CHECK(feedback.known());
  CHECK(feedback.varied());
  CHECK(feedback.spread().ns == Approx(10'000).margin(1'000));
  CHECK(feedback.error() < us(20));
}

TEST_CASE("The first services after a restart do not count") {
  ServiceFeedback feedback;
  for (int restarts = 0; restarts < 2; ++restarts) {
    serve_alone(feedback, {9'000, 8'000, 7'000, 9'000});
    CHECK_FALSE(feedback.known());
    CHECK(feedback.mean().ns == 0);
    serve_alone(feedback, {100, 100, 100});
    CHECK(feedback.known());
    CHECK(feedback.mean() == us(100));
    CHECK(feedback.spread().ns == 0);
    feedback.restart();
    CHECK_FALSE(feedback.known());
    CHECK(feedback.mean().ns == 0);
    CHECK(feedback.scale_x1024() == 1024);
  }
}

TEST_CASE("The slowest is forgotten by and by") {
  ServiceFeedback feedback = learnt(100);
  feedback.undisturbed(us(10'300), true);
  const int64_t slow = feedback.spread().ns;
  CHECK(slow == Approx(300'000).epsilon(0.1));
  Duration before = feedback.mean() + feedback.spread();
  for (int n = 0; n < 50; ++n) {
    serve_alone(feedback, {9'900, 10'100});
    CHECK(feedback.mean() + feedback.spread() <= before);
    before = feedback.mean() + feedback.spread();
  }
  CHECK(feedback.spread().ns < slow / 2);
  CHECK(feedback.spread().ns >= 95'000);
}

TEST_CASE("As long as nothing is known a service costs what its waits say") {
  ServiceFeedback feedback;
  CHECK(feedback.cost(us(10'000), us(70)).likely == us(70));
  skip_first(feedback, 500);
  serve_alone(feedback, {500, 500});
  CHECK_FALSE(feedback.known());
  CHECK(feedback.cost(us(10'000), us(70)).likely == us(70));
  CHECK(feedback.cost(us(10'000), us(0)).likely.ns == 0);
  CHECK(feedback.scale_x1024() == 1024);
}

TEST_CASE("Where services all take the same they cost what they are late, whatever their waits say") {
  for (const double delay_per_cost : {0.0, 0.5, 1.0, 5.0}) {
    ServiceFeedback feedback = learnt(0);
    INFO("delay of " << delay_per_cost);
    for (int n = 0; n < 100; ++n) {
      const int64_t late = 250 * (n % 5);
      const Duration delay{static_cast<int64_t>(delay_per_cost * static_cast<double>(late) * 1000)};
      CHECK(feedback.cost(us(10'000 + late), delay).likely.ns == Approx(late * 1000).margin(2'000));
    }
  }
}

// The error that is left is that of the mean of undisturbed services, and of the scale that for safety
// is taken for more where that is uncertain, and for nearer to 1 as long as little is known.
TEST_CASE("What a delay of one costs is found where services vary, and the sum is right") {
  struct {
    double deviation;  // of a service
    double scale, sum, mean_sum;  // may be so far off: in one run, and the sum in the mean of runs
  } const kCases[] = {{0.002, 0.05, 0.05, 0.01}, {0.01, 0.25, 0.15, 0.03}};
  for (const auto& one : kCases) {
    for (const double delay_per_cost : {5.0, 1.0, 0.5}) {
      constexpr int kSeeds = 20;
      double sums = 0;
      for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
        const Served served = serve(seed, one.deviation, delay_per_cost);
        const double scale = static_cast<double>(served.feedback.scale_x1024()) / 1024;
        const double sum = static_cast<double>(served.cost_ns) / static_cast<double>(served.really_ns);
        sums += sum / kSeeds;
        INFO("deviation " << one.deviation << ", delay of " << delay_per_cost << ", seed " << seed
                          << ", kept " << served.kept);
        CHECK(scale * delay_per_cost == Approx(1).margin(one.scale));
        CHECK(sum == Approx(1).margin(one.sum));
      }
      INFO("deviation " << one.deviation << ", delay of " << delay_per_cost);
      CHECK(sums == Approx(1).margin(one.mean_sum));
    }
  }
}

TEST_CASE("A changed program is noticed within a few services and forgotten") {
  for (const int64_t off : {0, 500}) {
    for (const int64_t becomes : {30'000, 3'333}) {
      INFO("by turns " << off << " us off, from 10000 to " << becomes << " us");
      // By undisturbed services, drawn or not.
      for (const bool kept : {true, false}) {
        ServiceFeedback feedback = learnt(off);
        feedback.undisturbed(us(becomes), kept);
        CHECK(feedback.known());
        feedback.undisturbed(us(becomes), kept);
        CHECK_FALSE(feedback.known());
        CHECK(feedback.scale_x1024() == 1024);
      }
      // By disturbed ones: the next are kept undisturbed, and say so.
      ServiceFeedback feedback = learnt(off);
      for (int n = 0; n < 2; ++n) feedback.cost(us(becomes + 100), us(100));
      CHECK(kept_of_10000(feedback, us(75)) == 10'000);
      CHECK(feedback.known());
      feedback.undisturbed(us(becomes), true);
      CHECK_FALSE(feedback.known());
      skip_first(feedback, becomes);
      serve_alone(feedback, {becomes, becomes, becomes});
      CHECK(feedback.mean().ns == Approx(becomes * 1000).epsilon(0.001));
    }
  }
}

TEST_CASE("One strange service is not a changed program") {
  ServiceFeedback feedback = learnt(500);
  for (int n = 0; n < 20; ++n) {
    feedback.undisturbed(us(30'000), false);
    serve_alone(feedback, {9'500, 10'500});
    feedback.cost(us(30'000), us(0));
    feedback.cost(us(10'000), us(0));
    CHECK(feedback.known());
  }
  CHECK(feedback.mean().ns == Approx(10'000'000).epsilon(0.01));
  CHECK(kept_of_10000(feedback, us(75)) < 5'000);
}

TEST_CASE("A cost is never less than minus what services vary by") {
  for (const int64_t off : {0, 100, 1'000}) {
    const int64_t least = std::max<int64_t>(off, 5) * 1000;  // no variation is taken for less
    std::mt19937 random(7);
    ServiceFeedback feedback = learnt(off);
    for (int n = 0; n < 1'000; ++n) {
      const Duration cost = feedback.cost(us(random() % 30'000), us(random() % 1'000)).likely;
      CHECK(cost.ns >= -least * 102 / 100);
    }
    // Where they vary much, a time of nothing is hardly believed.
    feedback = learnt(off);
    const int64_t nothing = feedback.cost(us(0), us(0)).likely.ns;
    CHECK(nothing < -least / 5);
    if (off < 1'000) CHECK(nothing == Approx(-least).epsilon(0.02));
  }
}

TEST_CASE("Where services vary much, what one costs is what its waits say, and not how they vary") {
  for (const int64_t off : {-900, 0, 900}) {
    ServiceFeedback feedback = learnt(1'000);
    CHECK(feedback.cost(us(10'000 + off), us(100)).likely.ns == Approx(100'000).margin(45'000));
  }
}

TEST_CASE("The mean follows a program that becomes slower by and by") {
  ServiceFeedback feedback = learnt(100, 1'000);
  for (int n = 0; n < 200; ++n) serve_alone(feedback, {10'100, 10'300});
  CHECK(feedback.known());
  CHECK(feedback.mean().ns == Approx(10'200'000).margin(20'000));
}

TEST_CASE("How many services are kept undisturbed depends on what is known") {
  ServiceFeedback unknown;
  CHECK(kept_of_10000(unknown, us(75)) == 10'000);
  ServiceFeedback few = learnt(500, kEnough);
  CHECK(kept_of_10000(few, us(75)) == 5'000);
  CHECK(kept_of_10000(few, us(1'000'000)) == 5'000);  // how they vary is not known yet
  ServiceFeedback imprecise = learnt(1'000, kVaried);
  CHECK(imprecise.error() > us(75));
  CHECK(kept_of_10000(imprecise, us(75)) == Approx(10'000 / 8).margin(100));
  CHECK(kept_of_10000(imprecise, us(1'000)) == Approx(10'000 / 128).margin(27));
  ServiceFeedback precise = learnt(500);
  CHECK(precise.error() < us(75));
  CHECK(kept_of_10000(precise, us(75)) == Approx(10'000 / 128).margin(27));
  ServiceFeedback same = learnt(0, kEnough);
  CHECK(kept_of_10000(same, {}) == Approx(10'000 / 128).margin(27));
}

TEST_CASE("Services that only looked as if they took the same are kept as if they never had") {
  ServiceFeedback feedback = learnt(0, kEnough);
  CHECK(kept_of_10000(feedback, us(75)) < 200);
  feedback.undisturbed(us(10'250), true);
  CHECK_FALSE(feedback.varied());
  CHECK(kept_of_10000(feedback, us(75)) == 5'000);
}

// The two longer ones of the round are kept more often than the others, and the pattern has learnt
// one of them wrong.
TEST_CASE("What services that differ by turns take is their mean, and no variation") {
  const std::vector<int64_t> round_us{10'000, 10'000, 10'000, 12'000, 11'000, 10'000};
  ServicePattern pattern;
  for (int n = 0; n < 60; ++n) {
    pattern.add(us(round_us[static_cast<size_t>(n) % 6] + (n % 6 == 3 ? 400 : 0)));
  }
  REQUIRE(pattern.round() == 6);
  ServiceFeedback feedback;
  skip_first(feedback, 10'000);
  for (int n = 0; n < 90; ++n) {
    const int64_t own_us = round_us[static_cast<size_t>(n) % 6];
    if (own_us > 10'000 || n % 5 == 0) {
      feedback.undisturbed(us(own_us), /*kept=*/true, pattern);
    }
    if (n >= 60) {
      const int64_t told = feedback.cost(us(own_us + 300), us(0), pattern).likely.ns / 1'000;
      CHECK(told > 200);
    }
    pattern.add(us(own_us + (n % 6 == 3 ? 400 : 0)));
  }
  CHECK(std::abs(feedback.mean().ns - 10'500'000) < 5'000);
  CHECK(feedback.error().ns < 5'000);
  CHECK(feedback.spread().ns > 1'400'000);  // of the slowest, all the same
}

namespace {

// Delays cost half of what waits say.
ServiceFeedback with_scale(int64_t off_us) {
  ServiceFeedback feedback = learnt(off_us);
  for (int n = 0; n < 200; ++n)
    feedback.cost(us(10'150 + (n % 2 == 0 ? off_us : -off_us)), us(300));
  CHECK(feedback.scale_x1024() == Approx(512).epsilon(0.15));
  return feedback;
}

}  // namespace

TEST_CASE("After a strange while two services as before bring back all that was known") {
  for (const int slow : {2, 3, 6, 40}) {  // nothing is known of them, little, all
    INFO("strange ones " << slow);
    ServiceFeedback feedback = with_scale(100);
    const Duration mean = feedback.mean(), error = feedback.error();
    const int64_t scale = feedback.scale_x1024();
    for (int n = 0; n < slow; ++n) feedback.undisturbed(us(13'000), /*kept=*/false);
    CHECK(feedback.scale_x1024() == 1024);
    CHECK(feedback.known() == (slow >= 1 + kFirst + kEnough));
    feedback.undisturbed(us(9'900), true);
    CHECK(feedback.mean() != mean);  // one may be by chance
    feedback.undisturbed(us(10'100), true);
    CHECK(feedback.known());
    CHECK(feedback.varied());
    CHECK(feedback.mean().ns == Approx(mean.ns).margin(10'000));
    CHECK(feedback.error().ns == Approx(error.ns).epsilon(0.1));
    CHECK(feedback.scale_x1024() == scale);
    CHECK(kept_of_10000(feedback, us(75)) < 200);
  }
}

TEST_CASE("Two services as before count in a row only") {
  ServiceFeedback feedback = learnt(100);
  serve_alone(feedback, {13'000, 13'000}, /*kept=*/false);
  for (int n = 0; n < 2; ++n) serve_alone(feedback, {10'000, 13'000}, /*kept=*/false);
  CHECK_FALSE(feedback.known());
  serve_alone(feedback, {10'000, 10'000});
  CHECK(feedback.known());
  CHECK(feedback.mean().ns == Approx(10'000'000).margin(10'000));
}

TEST_CASE("What was known of a strange while is not lost, either") {
  ServiceFeedback feedback = learnt(100);
  serve_alone(feedback, {13'000}, /*kept=*/false);
  serve_alone(feedback, std::vector<int64_t>(40, 13'000));
  serve_alone(feedback, {9'900, 10'100}, /*kept=*/false);
  CHECK(feedback.mean().ns == Approx(10'000'000).margin(10'000));
  serve_alone(feedback, {13'000, 13'000}, /*kept=*/false);
  CHECK(feedback.known());
  CHECK(feedback.mean().ns == Approx(13'000'000).margin(10'000));
}

TEST_CASE("A while too short to learn anything of does not take the place of what was known") {
  ServiceFeedback feedback = learnt(100);
  serve_alone(feedback, {13'000, 13'000, 17'000, 17'000, 25'000, 25'000});
  CHECK_FALSE(feedback.known());
  serve_alone(feedback, {9'900, 10'100});
  CHECK(feedback.known());
}

TEST_CASE("How slow services were in a strange while may come again") {
  ServiceFeedback feedback = learnt(100);
  CHECK(feedback.spread().ns == Approx(100'000).epsilon(0.1));
  serve_alone(feedback, {12'000, 12'000}, /*kept=*/false);
  serve_alone(feedback, std::vector<int64_t>(20, 13'000));
  serve_alone(feedback, {9'900, 10'100}, /*kept=*/false);
  CHECK(feedback.spread().ns == Approx(3'000'000).epsilon(0.05));
}

TEST_CASE("A restart leaves nothing of what was known before") {
  ServiceFeedback feedback = learnt(100);
  serve_alone(feedback, {13'000, 13'000});
  feedback.restart();
  serve_alone(feedback, {10'000, 10'000});
  CHECK_FALSE(feedback.known());
}

TEST_CASE("Where undisturbed services are far off at times, one that is hardly changes what a delay costs") {
  for (const int64_t took_us : {60'000, 0}) {
    ServiceFeedback feedback = with_scale(100);
    for (int n = 0; n < 40; ++n) {  // of a hundred two are slow by themselves
      serve_alone(feedback, {60'000, 9'900, 10'100, 9'900, 10'100}, /*kept=*/false);
    }
    const int64_t scale = feedback.scale_x1024();
    feedback.cost(us(took_us), us(300));
    INFO(took_us);
    CHECK(feedback.scale_x1024() == Approx(scale).epsilon(0.05));
  }
}

// What varies more has room for the services of what varies less, near it: these are as before all
// the time, whichever of the two is known now.
TEST_CASE("Services that are like both kinds stay with one of them") {
  ServiceFeedback feedback = learnt(0);
  serve_alone(feedback, {10'900, 10'900}, /*kept=*/false);
  for (int n = 0; n < 40; ++n) serve_alone(feedback, {n % 2 == 0 ? 10'500 : 11'100});
  CHECK(feedback.mean().ns == Approx(10'800'000).margin(10'000));
  for (int n = 0; n < 30; ++n) {
    serve_alone(feedback, {10'000}, /*kept=*/false);
    INFO("service " << n);
    if (n > 2) CHECK(feedback.mean().ns == Approx(10'000'000).margin(10'000));
  }
}

TEST_CASE("The first strange service is no part of what was known before it") {
  for (const int64_t strange_us : {13'000, 30'000}) {
    INFO(strange_us);
    ServiceFeedback feedback = learnt(100);
    serve_alone(feedback, {strange_us, strange_us, 9'900, 10'100});
    CHECK(feedback.mean().ns == Approx(10'000'000).margin(10'000));
    CHECK(feedback.error().ns == Approx(12'500).epsilon(0.1));
  }
}

TEST_CASE("What was known before a while that becomes strange once more is not lost") {
  ServiceFeedback feedback = learnt(100);
  serve_alone(feedback, std::vector<int64_t>(10, 13'000));
  serve_alone(feedback, std::vector<int64_t>(10, 17'000));
  serve_alone(feedback, {9'900, 10'100, 9'900, 10'100}, /*kept=*/false);
  CHECK(feedback.known());
  CHECK(feedback.mean().ns == Approx(10'000'000).margin(50'000));
}

// chatty_inference alone on an H100, 2026-11-22 (docs/hardware): services as the coordinator saw them,
// in steps of 10 us. Its machine was busy for a tenth of a second.
TEST_CASE("A tenth of a second of a busy host, as recorded, changes nothing that was known before") {
  const std::vector<int64_t> took_us = {
    3590, 3600, 3590, 3580, 3780, 3590, 3670, 3570, 3560, 3570, 3570, 3580, 3590, 3600, 3590,
    3580, 3580, 3640, 3580, 3570, 3570, 3580, 3570, 3580, 3600, 3600, 3570, 3570, 3590, 3570,
    3570, 3590, 3570, 3590, 3610, 3690, 3600, 3580, 3590, 3610, 4670, 4920, 5100, 4920, 4980,
    5230, 4900, 4900, 4060, 4010, 3850, 3740, 3760, 3800, 5090, 5860, 4840, 4920, 4110, 4020,
    3950, 3870, 3870, 3790, 3690, 3660, 3650, 3610, 3590, 3600, 3680, 3660, 3730, 3570, 3570,
    3580, 3660, 3560, 3550, 3560, 3560, 3570, 3550, 3570, 3570, 3560, 3570, 3610, 3660, 3670,
    3770, 3560, 3570, 3570, 3560, 3580, 3600, 3630, 3580, 3640, 3570, 3570, 3590, 3590, 3590,
    3570, 3580, 3570, 3570, 3580, 3590, 3570, 3560, 3570, 3590, 3580, 3590, 3680, 3570, 3570,
    3670, 3670, 3570, 3580, 3580, 3570, 3580, 3600, 3620, 3620, 3630, 3590,
  };
  ServiceFeedback feedback;
  serve_alone(feedback, std::vector<int64_t>(took_us.begin(), took_us.begin() + 40));
  const Duration before = feedback.mean();
  CHECK(before.ns == Approx(3'590'000).epsilon(0.005));
  // While nothing tells otherwise few are kept.
  for (size_t n = 40; n < took_us.size(); ++n) {
    const bool kept = !feedback.known() || n % 8 == 0;
    serve_alone(feedback, {took_us[n]}, kept);
  }
  CHECK(feedback.mean().ns == Approx(before.ns).epsilon(0.02));
  CHECK(feedback.spread().ns > 1'000'000);  // such services come by themselves
}
