// The predictors against each other in the simulated comparison, on a program where they differ.
#include <catch2/catch.hpp>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/experiment.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;
using policies::Predictor;

namespace {

// Kernel 0 comes twice in a request: behind kernel 1 with a pause of 15 us, behind kernel 2 with one
// of 400 us. The low kernels fit the second only; the mean of both says that they fit either.
ExperimentPlan two_pauses() {
  ExperimentPlan plan;
  plan.node = free_markers();
  plan.high.script = make_script(
      workload("high",
               {launch(1, 5'000), launch(0, 20'000), sync_stream(), launch(2, 5'000, 15'000),
                launch(0, 20'000), sync_stream()},
               400'000),
      plan.node.profile);
  plan.high.task = "high";
  plan.high.priority = Priority{2};
  TaskSpec low;
  low.script = make_script(workload("low", std::vector<play::Op>(50, launch(3, 90'000, 0, 2'000))),
                           plan.node.profile);
  low.task = "low";
  low.priority = Priority{7};
  plan.lows.push_back(std::move(low));
  plan.policies = {"fikit max_hold_ms=0"};
  plan.iterations = 100;
  return plan;
}

}  // namespace

TEST_CASE("fikit told by pairs harms nobody where the mean of two pauses does") {
  ExperimentPlan plan = two_pauses();
  plan.predictors = {Predictor::kMean, Predictor::kQuantile, Predictor::kPair, Predictor::kBest};
  const auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  REQUIRE(result->policies.size() == 4);
  const auto& [mean, quantile, pair, best] =
      std::tie(result->policies[0], result->policies[1], result->policies[2], result->policies[3]);
  CHECK(mean.policy == "fikit max_hold_ms=0 (mean)");
  UNSCOPED_INFO("high, low: mean " << mean.high.slowdown_mean << ", " << mean.low_work[0]
                << "; quantile " << quantile.high.slowdown_mean << ", " << quantile.low_work[0]
                << "; pair " << pair.high.slowdown_mean << ", " << pair.low_work[0] << "; best "
                << best.high.slowdown_mean << ", " << best.low_work[0]);
  CHECK(mean.high.slowdown_mean > 1.3);       // 90 us of low work in a pause of 15
  CHECK(quantile.high.slowdown_mean < 1.02);  // the shorter pause for both: nothing fits
  CHECK(quantile.low_work[0] < 0.05);
  for (const PolicyResult* fine : {&pair, &best}) {
    CHECK(fine->high.slowdown_mean < 1.05);
    CHECK(fine->low_work[0] > 0.5);
  }
}

TEST_CASE("without a predictor asked for, fikit is told means, and says so by nothing") {
  ExperimentPlan plan = two_pauses();
  const auto preset = run_experiment(plan);
  plan.predictors = {Predictor::kMean};
  const auto mean = run_experiment(plan);
  REQUIRE((preset.has_value() && mean.has_value()));
  CHECK(preset->policies[0].policy == "fikit max_hold_ms=0");
  CHECK(preset->policies[0].high.service.mean == mean->policies[0].high.service.mean);
  CHECK(preset->policies[0].low_work == mean->policies[0].low_work);
}
