// The simulated comparison as a whole.
#include <catch2/catch.hpp>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/experiment.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

ExperimentPlan pair_plan(simgpu::Sharing sharing = simgpu::Sharing::kSerial) {
  ExperimentPlan plan;
  plan.node = free_markers();
  plan.node.sharing = sharing;
  plan.high.script = make_script(
      workload("high", {launch(0, 100'000, 100'000), sync_stream(), launch(1, 50'000, 80'000)}, 30'000),
      plan.node.profile);
  plan.high.task = "high";
  plan.high.priority = Priority{2};
  TaskSpec low;
  std::vector<play::Op> ops(100, launch(2, 30'000, 0, 2'000));
  low.script = make_script(workload("low", std::move(ops)), plan.node.profile);
  low.task = "low";
  low.priority = Priority{7};
  plan.lows.push_back(std::move(low));
  plan.policies = {"share", "priority", "fikit"};
  plan.iterations = 40;
  plan.warmup = 5;
  return plan;
}

std::string bytes(const ExperimentPlan& plan) {
  const auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  return command::to_json(result->heading, result->rows).dump();
}

}  // namespace

TEST_CASE("two runs with one seed give identical bytes, another seed does not") {
  for (const auto sharing :
       {simgpu::Sharing::kSerial, simgpu::Sharing::kMps, simgpu::Sharing::kTimeSlice}) {
    ExperimentPlan plan = pair_plan(sharing);
    plan.node.jitter = Duration{20'000};
    plan.load = 0.5;
    plan.seed = 7;
    const std::string first = bytes(plan);
    CHECK(first == bytes(plan));
    plan.seed = 8;
    CHECK(first != bytes(plan));
  }
}

TEST_CASE("alone is alone, share costs the high task most, fikit least, and each fills") {
  const auto result = run_experiment(pair_plan());
  REQUIRE(result.has_value());
  const auto& rows = result->rows;
  REQUIRE(rows.size() == 8);
  CHECK(rows[0].jct_ms_mean == Approx(0.33));
  CHECK(rows[0].slowdown_p50 == Approx(1.0));
  CHECK(rows[1].throughput_ratio == Approx(1.0));
  const PolicyResult& share = result->policies[0];
  const PolicyResult& priority = result->policies[1];
  const PolicyResult& fikit = result->policies[2];
  CHECK(share.high.slowdown_mean >= priority.high.slowdown_mean);
  CHECK(priority.high.slowdown_mean >= fikit.high.slowdown_mean);
  CHECK(priority.high.slowdown_mean < 1.2);
  CHECK(priority.low_work[0] > 0.2);
  CHECK(fikit.low_work[0] > 0.1);
}

TEST_CASE("the timeline is what ran from the first measured request on, one kernel at a time") {
  ExperimentPlan plan = pair_plan();
  CHECK(run_experiment(plan)->policies[0].kernels.empty());
  plan.timeline = Duration{2'000'000};
  const auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  for (const PolicyResult& one : result->policies) {
    INFO(one.policy);
    const Instant from = one.services.front().began;
    size_t of_high = 0;
    REQUIRE(one.kernels.size() > 4);
    for (size_t i = 0; i < one.kernels.size(); ++i) {
      const KernelSpan& span = one.kernels[i];
      CHECK(span.began < span.ended);
      CHECK(span.ended > from);
      CHECK(span.began < from + plan.timeline);
      if (i > 0) CHECK(span.began >= one.kernels[i - 1].ended);
      of_high += span.task == 0 ? 1 : 0;
    }
    CHECK(of_high > 0);
    CHECK(of_high < one.kernels.size());
    // Nothing else depends on whether it was asked for.
    const auto without = run_experiment(pair_plan());
    CHECK(without->policies[0].rows[0].jct_ms_mean == result->policies[0].rows[0].jct_ms_mean);
  }
}

TEST_CASE("several low tasks and several devices have a row each") {
  ExperimentPlan plan = pair_plan();
  plan.node.devices = 2;
  TaskSpec second = plan.lows[0];
  second.task = "second";
  TaskSpec elsewhere = plan.lows[0];
  elsewhere.task = "elsewhere";
  elsewhere.device = 1;
  plan.lows.push_back(second);
  plan.lows.push_back(elsewhere);
  plan.policies = {"priority"};
  const auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  REQUIRE(result->policies[0].rows.size() == 4);
  const auto& work = result->policies[0].low_work;
  CHECK(work[0] == Approx(work[1]).epsilon(0.3));
  // Nobody is before it on its device.
  CHECK(work[2] == Approx(1.0).epsilon(0.01));
}

TEST_CASE("with arrivals the response time holds the wait, the service time does not") {
  ExperimentPlan plan = pair_plan();
  plan.load = 0.7;
  plan.iterations = 400;
  plan.policies = {"priority"};
  const auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  const HighFigures& high = result->policies[0].high;
  CHECK(high.count == 400);
  CHECK(high.response.mean > high.service.mean * 1.3);
  CHECK(high.service.mean < high.alone.mean * 1.2);
}

TEST_CASE("kernels that change their length mid-run do so after as many iterations as asked") {
  ExperimentPlan plan = pair_plan();
  plan.policies = {"fikit"};
  plan.drift = 3;
  plan.drift_after = 20;
  const auto result = run_experiment(plan);
  REQUIRE(result.has_value());
  const auto& services = result->policies[0].services;
  CHECK((services[19].ended - services[19].began).ns < 400'000);
  CHECK((services[20].ended - services[20].began).ns > 600'000);
}

TEST_CASE("a short measurement is made of what there is, of nothing it is an error") {
  ExperimentPlan plan = pair_plan();
  plan.iterations = 300;
  // Fewer iterations alone than the warm-up of both together; with and without idle time.
  for (const double load : {0.0, 0.5}) {
    plan.load = load;
    plan.warmup = 30;
    plan.longest = Duration{7'000'000};
    const auto result = run_experiment(plan);
    REQUIRE(result.has_value());
    CHECK(result->rows[0].jct_ms_mean == Approx(0.33));
    const PolicyResult& priority = result->policies[1];
    CHECK(priority.rows[0].valid);
    CHECK(priority.rows[0].slowdown_p99 == Approx(priority.high.slowdown_p99));
    plan.warmup = 5;
    plan.longest = Duration{1'500'000};  // not even the warm-up alone
    const auto shorter = run_experiment(plan);
    REQUIRE(shorter.has_value());
    CHECK(shorter->rows[0].jct_ms_mean == Approx(0.33));
  }
  plan.longest = Duration{200'000};
  const auto nothing = run_experiment(plan);
  REQUIRE_FALSE(nothing.has_value());
  CHECK(nothing.error().find("high finished nothing alone in 0.0002 s") == 0);
}
