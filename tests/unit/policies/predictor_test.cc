// The predictors on made-up sequences where it is known which of them must see what.
#include "policies/prediction/predictor.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace lull;
using namespace lull::policies;

namespace {

// One kernel at several places, as the engine keeps it.
struct Learner {
  KernelProfile kernel;
  std::vector<PlaceProfile> pairs{4};
  std::vector<PlaceProfile> positions{8};
  PredictorChoice choice;

  Known known(size_t before, size_t position) const {
    return {&kernel, pairs[before].of(kernel), positions[position].of(kernel)};
  }
  void measure(size_t before, size_t position, int64_t ns, int64_t gap_ns) {
    choice.add(known(before, position), Duration{ns}, Duration{gap_ns});
    kernel.add(Duration{ns}, Duration{gap_ns});
    pairs[before].add(kernel, Duration{ns}, Duration{gap_ns});
    positions[position].add(kernel, Duration{ns}, Duration{gap_ns});
  }
};

}  // namespace

TEST_CASE("Predictors have names, and a name finds its predictor") {
  for (size_t i = 0; i <= kPlainPredictors; ++i) {
    const auto predictor = static_cast<Predictor>(i);
    CHECK(predictor_named(name_of(predictor)) == predictor);
  }
  CHECK(predictor_named("best") == Predictor::kBest);
  CHECK_FALSE(predictor_named("Mean").has_value());
  CHECK(predictor_names() == "mean, quantile, pair, position, best");
}

TEST_CASE("A kernel whose length depends on its position is told by the position") {
  Learner learner;
  for (int i = 0; i < 40; ++i) {
    learner.measure(0, 0, 10'000, 100'000);
    learner.measure(0, 1, 50'000, 5'000);
  }
  const Known first = learner.known(0, 0);
  const Known second = learner.known(0, 1);
  CHECK(predicted_length(Predictor::kPosition, first).ns == Approx(10'000).epsilon(0.07));
  CHECK(predicted_length(Predictor::kPosition, second).ns == Approx(50'000).epsilon(0.07));
  CHECK(expected_length(Predictor::kPosition, second).ns == 50'000);
  CHECK(predicted_gap(Predictor::kPosition, first).ns == Approx(100'000).epsilon(0.07));
  CHECK(predicted_gap(Predictor::kPosition, second).ns <= 5'000);
  // The pair is the same for both, so it knows no more than the kernel.
  CHECK(predicted_length(Predictor::kPair, first) == predicted_length(Predictor::kQuantile, second));
  CHECK(predicted_length(Predictor::kQuantile, first).ns >= 50'000);
  CHECK(predicted_gap(Predictor::kQuantile, first).ns <= 5'000);
  CHECK(expected_length(Predictor::kQuantile, first).ns == Approx(30'000).epsilon(0.02));
  CHECK(predicted_length(Predictor::kMean, first).ns == Approx(30'000).epsilon(0.02));
  CHECK(predicted_gap(Predictor::kMean, first).ns == Approx(52'500).epsilon(0.02));
  CHECK(learner.choice.length() == Predictor::kPosition);
  CHECK(learner.choice.gap() == Predictor::kPosition);
}

TEST_CASE("A kernel whose length depends on the one before is told by the pair, in any order") {
  std::mt19937_64 random(3);
  Learner learner;
  for (int i = 0; i < 400; ++i) {
    const size_t before = random() % 2;
    learner.measure(before, random() % 4, before == 0 ? 10'000 : 50'000, 20'000);
  }
  CHECK(predicted_length(Predictor::kPair, learner.known(0, 0)).ns == Approx(10'000).epsilon(0.07));
  CHECK(predicted_length(Predictor::kPair, learner.known(1, 0)).ns == Approx(50'000).epsilon(0.07));
  CHECK(learner.choice.length() == Predictor::kPair);
  CHECK(learner.choice.gap() == Predictor::kMean);  // always the same: the simplest will do
}

TEST_CASE("A noisy kernel is told by its quantile, whatever its place") {
  std::mt19937_64 random(5);
  Learner learner;
  int over = 0;
  for (int i = 0; i < 2'000; ++i) {
    const auto noise = static_cast<int64_t>(random() % 8'000);
    if (i >= 1'000) {
      over += predicted_length(Predictor::kQuantile, learner.known(0, 0)).ns < 8'000 + noise ? 1 : 0;
    }
    learner.measure(random() % 4, random() % 8, 8'000 + noise, 30'000 - noise);
  }
  CHECK(over < 70);  // one in twenty is wanted, or what a bucket's upper edge leaves of it
  CHECK(over > 5);
  CHECK(learner.choice.length() == Predictor::kQuantile);
  CHECK(learner.choice.gap() == Predictor::kQuantile);
}

TEST_CASE("The choice changes when the program does") {
  Learner learner;
  for (int i = 0; i < 100; ++i) learner.measure(0, 0, 10'000, 20'000);
  CHECK(learner.choice.length() == Predictor::kMean);
  int needed = 0;
  for (; learner.choice.length() != Predictor::kPosition && needed < 200; ++needed) {
    learner.measure(0, 0, 10'000, 20'000);
    learner.measure(0, 1, 50'000, 20'000);
  }
  CHECK(needed <= 40);
  CHECK(learner.choice.gap() == Predictor::kMean);
  for (needed = 0; learner.choice.length() == Predictor::kPosition && needed < 1000; ++needed) {
    learner.measure(0, 0, 20'000, 20'000);
    learner.measure(0, 1, 20'000, 20'000);
  }
  CHECK(needed <= 100);
}

TEST_CASE("Finer predictors fall back where they know too little") {
  Learner learner;
  for (int i = 0; i < 20; ++i) learner.measure(0, 0, 10'000, 40'000);
  const Known elsewhere = learner.known(1, 1);
  CHECK(elsewhere.pair == nullptr);
  CHECK(elsewhere.position == nullptr);
  for (const Predictor how : {Predictor::kPair, Predictor::kPosition}) {
    CHECK(predicted_length(how, elsewhere) == predicted_length(Predictor::kQuantile, elsewhere));
    CHECK(predicted_gap(how, elsewhere) == predicted_gap(Predictor::kQuantile, elsewhere));
  }
  // Two samples are no knowledge yet.
  for (int i = 0; i < 2; ++i) learner.measure(0, 1, 90'000, 40'000);
  const Known seldom = learner.known(0, 1);
  CHECK(predicted_length(Predictor::kPosition, seldom) == predicted_length(Predictor::kPair, seldom));
  learner.measure(0, 1, 90'000, 40'000);
  CHECK(predicted_length(Predictor::kPosition, learner.known(0, 1)).ns >= 90'000);
}

TEST_CASE("Before there is a score the cautious one speaks") {
  PredictorChoice choice;
  CHECK(choice.length() == Predictor::kQuantile);
  CHECK(choice.gap() == Predictor::kQuantile);
  KernelProfile kernel;
  choice.add({&kernel}, Duration{5'000}, Duration{5'000});  // nothing was said of it
  CHECK(choice.length() == Predictor::kQuantile);
  kernel.add(Duration{5'000}, Duration{-1});
  CHECK(predicted_gap(Predictor::kQuantile, {&kernel}).ns == -1);
  CHECK(predicted_gap(Predictor::kMean, {&kernel}).ns == -1);
}
