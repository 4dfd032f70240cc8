#include "tools/bench/decisions.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "tools/bench/crowded_device.h"

namespace lull::bench {
namespace {

constexpr uint64_t kWarmUp = 2'000, kBatch = 1'000, kBatches = 50;  // inputs
constexpr uint32_t kMembers[] = {16, 64, 256, 1024};

// Of this thread on its processor: on a busy machine it waits for one, which is not the engine's.
double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

nlohmann::json measure(const CrowdPlan& plan) {
  const double began = processor_us();
  CrowdedDevice device(plan);
  const double joined = processor_us();
  device.run(kWarmUp);
  const uint64_t outputs = device.outputs();
  double sum_us = 0, worst_us = 0;
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    const double from = processor_us();
    device.run(kBatch);
    const double took = processor_us() - from;
    sum_us += took;
    worst_us = std::max(worst_us, took);
  }
  constexpr double kInputs = kBatch * kBatches;
  return {{"members", plan.members},
          {"launching", plan.launching},
          {"quiet_ones", plan.all_launched ? "launched once" : "never launched"},
          {"us_a_record", sum_us / kInputs},
          {"worst_batch_us_a_record", worst_us / kBatch},
          {"outputs_a_record", static_cast<double>(device.outputs() - outputs) / kInputs},
          {"all_join_ms", (joined - began) / 1e3}};
}

}  // namespace

int run_decisions(bool json) {
  nlohmann::json rows = nlohmann::json::array();
  for (const bool all_launched : {true, false}) {
    for (const uint32_t members : kMembers) {
      rows.push_back(measure({.members = members, .all_launched = all_launched}));
    }
  }
  if (json) {
    fmt::print(
        "{}\n",
        nlohmann::json{{"unit", "us of processor time a record, what makes the records included"},
                       {"rows", rows}}
            .dump(2));
    return 0;
  }
  fmt::print("{:>8} {:>10} {:<15} {:>12} {:>16} {:>17} {:>12}\n", "members", "launching",
             "quiet ones", "us a record", "worst thousand", "outputs a record", "all join ms");
  for (const auto& row : rows) {
    fmt::print("{:>8} {:>10} {:<15} {:>12.2f} {:>16.2f} {:>17.2f} {:>12.1f}\n",
               row["members"].get<uint32_t>(), row["launching"].get<uint32_t>(),
               row["quiet_ones"].get<std::string>(), row["us_a_record"].get<double>(),
               row["worst_batch_us_a_record"].get<double>(), row["outputs_a_record"].get<double>(),
               row["all_join_ms"].get<double>());
  }
  return 0;
}

}  // namespace lull::bench
