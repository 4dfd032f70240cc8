// What a simulated run says of a policy: the table, the JSON. Pure. Everything it prints says that
// it is simulated.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "tools/measure/text_table.h"
#include "tools/simulate/cluster/simulation.h"

namespace lull::simulate::cluster {

// A mean, median and p99; zeros where there is nothing.
struct Spread {
  size_t count = 0;
  double mean = 0, p50 = 0, p99 = 0;
};
Spread spread_of(std::vector<double> values);

// Jobs of one size, or all.
struct Summary {
  std::string size;  // "all", "1", "2", "3-4", "5-8", "9+"
  size_t jobs = 0;
  Spread jct_s, wait_s, first_100_s;  // of jobs that ended; those that were stopped too
  double moves = 0;                   // suspends and migrations of a job, mean
  // GPU time in which they ran, on GPUs of their own; those that share one have it each.
  double gpu_s = 0;
};
// "all" first, then the sizes that there are.
std::vector<Summary> summaries(const Plan& plan, const Result& result);

struct Run {
  Plan plan;
  Result result;
};
// Two tables for all policies of the same jobs, in lines of at most `width` characters.
std::string show_runs(std::span<const Run> runs, size_t width = command::kAnyWidth);
// One sentence: which policy ended the jobs soonest in the mean, and which latest.
std::string verdict(std::span<const Run> runs);
nlohmann::ordered_json runs_json(std::span<const Run> runs);

}  // namespace lull::simulate::cluster
