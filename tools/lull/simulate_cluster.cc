// `lull simulate cluster`: job policies on a simulated cluster (tools/simulate/cluster).
#include <chrono>

#include "policies/jobs/registry.h"
#include "tools/lull/command.h"
#include "tools/lull/json_output.h"
#include "tools/simulate/cluster/cases.h"
#include "tools/simulate/cluster/generator.h"
#include "tools/simulate/cluster/report.h"

namespace lull::command {
namespace {

namespace sim = simulate::cluster;

struct Words2 {
  std::string nodes = "13x4:h100,12x4:a100";
  std::string name;
  std::vector<std::string> policies;
  uint64_t seed = 1, generate = 0;
  JsonOutput json;
  bool log = false, speed = false;
};

}  // namespace

int simulate_cluster_main(const Words& words) {
  Words2 w;
  CommandLine line("Simulates a cluster under job policies.", "lull simulate cluster");
  line.option("--nodes", w.nodes);
  line.option("--case", w.name);
  line.option("--policy", w.policies).repeated();
  line.option("--seed", w.seed);
  line.option("--generate", w.generate);
  line.flag("--log", w.log);
  line.flag("--speed", w.speed);
  w.json.add_to(line, true);
  if (const auto code = parse_words(line, words)) return *code;
  auto plan = sim::plan_of_case(w.name, w.seed);
  if (!plan) {
    complain(plan.error());
    return kFailed;
  }
  std::vector<sim::Run> runs;
  for (const std::string& text : w.policies) {
    const auto choice = jobs::parse_job_policy(text);
    if (!choice) {
      complain(choice.error());
      return kUsage;
    }
    sim::Plan one = *plan;
    one.policy = *choice;
    one.keep_log = w.log;
    const auto begun = std::chrono::steady_clock::now();
    sim::Result result = sim::simulate(one);
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    for (const auto& entry : result.log) fmt::print("{}\n", entry);
    if (w.speed) fmt::print(stderr, "{}: {:.2f} s, {} steps, {} decisions\n", text, took, result.steps, result.decisions);
    if (!result.broken.empty()) {
      complain(fmt::format("simulate: cluster: {}: {}", text, result.broken));
      return kFailed;
    }
    if (w.name == "six") {
      const double best = sim::best_static_sum(one), made = sim::measured_sum(one, result);
      fmt::print("seed {} {}: {:.3f} of {:.3f} = {:.3f}\n", w.seed, text, made, best, made / best);
    }
    if (result.aim_s >= 0) fmt::print("seed {} {}: aim {:.0f} s\n", w.seed, text, result.aim_s);
    runs.push_back({std::move(one), std::move(result)});
  }
  if (!w.json.replaces_text()) fmt::print("{}", sim::show_runs(runs));
  return w.json.write("simulate", sim::runs_json(runs)) ? kDone : kFailed;
}

}  // namespace lull::command
