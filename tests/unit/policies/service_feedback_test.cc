// What others really cost one task's services, learnt from how long they take with them and without.
#include "policies/launch/service_feedback.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
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
  for (int n = 0; n < count; ++n) feedback.undisturbed(us(10'000 + (n % 2 == 0 ? off_us : -off_us)), true);
  return feedback;
}

int kept_of_10000(ServiceFeedback& feedback, Duration precision) {
  int kept = 0;
  for (int n = 0; n < 10'000; ++n) kept += feedback.draws_undisturbed(precision) ? 1 : 0;
  return kept;
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
  int64_t before = slow;
  for (int n = 0; n < 50; ++n) {
    serve_alone(feedback, {9'900, 10'100});
    CHECK(feedback.spread().ns <= before + 2'000);  // the mean moves, too
    before = feedback.spread().ns;
  }
  CHECK(before < slow / 2);
  CHECK(before >= 95'000);
}

TEST_CASE("As long as nothing is known a service costs what its waits say") {
  ServiceFeedback feedback;
  CHECK(feedback.cost(us(10'000), us(70)) == us(70));
  skip_first(feedback, 500);
  serve_alone(feedback, {500, 500});
  CHECK_FALSE(feedback.known());
  CHECK(feedback.cost(us(10'000), us(70)) == us(70));
  CHECK(feedback.cost(us(10'000), us(0)).ns == 0);
  CHECK(feedback.scale_x1024() == 1024);
}

TEST_CASE("Where services all take the same they cost what they are late, whatever their waits say") {
  for (const double delay_per_cost : {0.0, 0.5, 1.0, 5.0}) {
    ServiceFeedback feedback = learnt(0);
    INFO("delay of " << delay_per_cost);
    for (int n = 0; n < 100; ++n) {
      const int64_t late = 250 * (n % 5);
      const Duration delay{static_cast<int64_t>(delay_per_cost * static_cast<double>(late) * 1000)};
      CHECK(feedback.cost(us(10'000 + late), delay).ns == Approx(late * 1000).margin(2'000));
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
      const Duration cost = feedback.cost(us(random() % 30'000), us(random() % 1'000));
      CHECK(cost.ns >= -least * 102 / 100);
    }
    // Where they vary much, a time of nothing is hardly believed.
    feedback = learnt(off);
    const int64_t nothing = feedback.cost(us(0), us(0)).ns;
    CHECK(nothing < -least / 5);
    if (off < 1'000) CHECK(nothing == Approx(-least).epsilon(0.02));
  }
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
