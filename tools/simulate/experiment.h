// One comparison in the simulator: the high task and the low ones each alone, then together under
// each policy, as `lull compare` does with real processes. Called by `lull simulate`, the matrix
// and tests. Each policy gets a node of its own, on which every task has run alone for a little
// while first, so that what is known of the kernels does not depend on the order of the policies.
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "tools/measure/measure.h"
#include "tools/simulate/node.h"
#include "tools/simulate/oracle/oracle.h"

namespace lull::simulate {

struct TaskSpec {
  Script script;
  std::string task;
  uint32_t device = 0;
  Priority priority;
  SlowdownBound bound = {};
  bool greedy = false;
};

struct ExperimentPlan {
  TaskSpec high;
  std::vector<TaskSpec> lows;
  NodeOptions node;                   // its policy and predictor are set from what follows
  std::vector<std::string> policies;  // whole texts
  // Each policy under each of them; none: under its own.
  std::vector<policies::Predictor> predictors;
  double load = 0;                    // Poisson arrivals at this share of the capacity; 0: closed
  uint64_t iterations = 300;          // of the high task, measured
  uint64_t warmup = 50;
  Duration longest{60'000'000'000};   // measuring ends here at the latest
  uint64_t seed = 1;
  uint64_t drift_after = UINT64_MAX;  // measured iterations after which the high kernels change ...
  double drift = 1;                   // ... by this factor
  CoordinatorModel::Watch watch;      // of the joint phases
  // So much of each joint phase is kept in PolicyResult::kernels, from the first measured request on.
  Duration timeline;
  bool oracle = true;                 // compares each policy with it; takes about as long as the policy
};

// How the high task did, in ns of service time (and response time, for arrivals).
struct HighFigures {
  uint64_t count = 0;
  command::Spread alone, service, response, response_alone;
  double slowdown_mean = 0;  // of the mean
  double slowdown_p99 = 0;   // p99 against p99 alone
  bool p99_counts = false;   // at least kCountForP99 requests
};
inline constexpr uint64_t kCountForP99 = 1000;

// A kernel on a device that runs one at a time.
struct KernelSpan {
  size_t task = 0;  // 0: the high one, else a low one's number
  Instant began, ended;
};

struct PolicyResult {
  std::string policy;                 // as in the table: with the predictor, where one was asked for
  std::vector<command::Row> rows;     // high, then each low
  HighFigures high;
  std::vector<double> low_work;       // of each low: kernel ns per ns while the high task ran
  // The same by the oracle, within the bound that the high task states (else the policy's, else
  // `guarded`'s preset), and without any; and what share of it the policy gave. All of the first low
  // task; the others' shares are in their rows.
  double oracle_work = 0, oracle0_work = 0;
  double oracle_reached = 0;          // of oracle_work, by a schedule that was found
  std::optional<double> oracle_share, oracle0_share;
  std::vector<Service> services;      // of the high task, measured
  std::vector<KernelSpan> kernels;    // where a timeline was asked for; by completion
  std::vector<std::string> notices;
  uint64_t steps = 0;
};

struct ExperimentResult {
  command::Heading heading;
  std::vector<command::Row> rows;     // alone first
  std::vector<PolicyResult> policies;
  uint64_t kernel_events = 0;
};

// The error is one line.
std::expected<ExperimentResult, std::string> run_experiment(const ExperimentPlan& plan);

}  // namespace lull::simulate
