// `lull simulate`: what `lull compare` measures, in the deterministic simulator: the same engine
// and policies around a model of device, programs and shim (tools/simulate), in one process.
#include <fmt/ranges.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>

#include "policies/launch/registry.h"
#include "tools/lull/command.h"
#include "tools/lull/installed.h"
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/simulate_cluster.h"
#include "tools/measure/values.h"
#include "tools/play/workload.h"
#include "tools/simulate/experiment.h"
#include "tools/simulate/replay.h"
#include "tools/simulate/simulated_policies.h"
#include "tools/simulate/timeline_svg.h"

namespace lull::command {
namespace {

constexpr Duration kPictureLength{21'000'000};
constexpr uint8_t kHighLevel = 2;  // as `--priority high` and `low`
constexpr uint8_t kLowLevel = 7;

struct Words1 {
  std::string high, slowdown;
  SlowdownBound bound;
  std::vector<std::string> lows;
  std::vector<std::string> policies;
  std::vector<std::string> predictors;
  std::string sharing = "serial";
  JsonOutput json;
  std::string replay, picture;
  double load = 0;
  double control_latency_us = -1, jitter_us = 0, max_hold_ms = 0, seconds = 60, drift = 1;
  uint64_t iterations = 300, warmup = 50, seed = 1, devices = 1, drift_after = 0;
  bool greedy = false, speed = false, no_oracle = false, free_markers = false;
};

std::expected<simulate::TaskSpec, std::string> load(const std::string& word, uint8_t level,
                                                    const simgpu::DeviceProfile& profile,
                                                    uint64_t devices) {
  simulate::TaskSpec spec;
  std::string file = word;
  const size_t at = word.rfind('@');
  if (at != std::string::npos && at + 1 < word.size() &&
      word.find_first_not_of("0123456789", at + 1) == std::string::npos) {
    file = word.substr(0, at);
    spec.device = static_cast<uint32_t>(std::strtoul(word.c_str() + at + 1, nullptr, 10));
  }
  if (spec.device >= devices) {
    return std::unexpected(
        fmt::format("{}: there is no device {}: --devices says {}", word, spec.device, devices));
  }
  const auto workload = play::load_workload(play::workload_file(file));
  if (!workload) return std::unexpected(workload.error());
  spec.script = simulate::make_script(*workload, profile);
  spec.task = workload->name.substr(0, 56);
  spec.priority = Priority{level};
  return spec;
}

std::optional<int> read_words(const Words& words, Words1& w) {
  CommandLine line(
      "Simulates two or more programs alone and then together under each policy, and prints the "
      "table of `lull compare`. Without programs: a shipped pair, without "
      "the oracle.\nA program W is a workload file, a "
      "PyTorch profiler trace, or a shipped workload's name, as chatty_inference; W@1 puts it on "
      "device 1.\n"
      "Or, with --replay alone: plays a daemon's decision log through the engine again.",
      "lull simulate");
  line.option("--high", w.high, "the latency-critical program W");
  line.option("--low", w.lows, "another program W; may be repeated").repeated();
  line.option("--max-slowdown", w.slowdown,
              "what the high program may lose under guarded, as for lull run: 3%, or 3%,5%");
  line.option("--policy", w.policies,
              fmt::format("a policy with its options; may be repeated (default: {})",
                          fmt::join(kComparedPolicies, ", ")))
      .repeated();
  line.option("--predictor", w.predictors,
              "what tells the policies how long kernels and pauses are: " +
                  policies::predictor_names() +
                  "; may be repeated: each policy under each (default: the policy's own)")
      .repeated();
  line.option("--sharing", w.sharing, "time_slice, mps or serial (default)");
  line.option("--devices", w.devices, "simulated devices (default 1)").range(1, 16);
  line.option("--iterations", w.iterations, "measured iterations of the high program (300)")
      .range(1, 1'000'000);
  line.option("--warmup", w.warmup, "iterations before them (50)").range(0, 1'000'000);
  line.option("--seconds", w.seconds, "measure at most S seconds of device time (60)")
      .range(1e-3, 1e5);
  line.option("--arrivals", w.load,
              "requests of the high program arrive at random (Poisson), at this share of what "
              "it can serve alone; without: one after the other")
      .range(0.01, 0.99);
  line.option("--control-latency-us", w.control_latency_us,
              "from a decision's cause to the gate (default: the device profile's)")
      .range(0.0, 1e6);
  line.flag("--free-markers", w.free_markers,
            "progress markers take no time, and each launch has one (default: they take what "
            "the device profile says)");
  line.option("--jitter-us", w.jitter_us, "each waking of a host thread is late by 0 to J us")
      .range(0.0, 1e6);
  line.option("--drift", w.drift, "the high program's kernels change their length by this factor")
      .range(0.01, 100.0);
  line.option("--drift-after", w.drift_after, "... after so many measured iterations");
  line.option("--seed", w.seed, "seed of all that is random");
  line.flag("--low-greedy", w.greedy, "play the low programs without their host pauses");
  const Option hold =
      line.option("--max-hold", w.max_hold_ms,
                  "watchdog of the policies that hold by prediction, in ms; 0: off");
  w.json.add_to(line, /*after_blank=*/true);
  line.flag("--no-oracle", w.no_oracle,
            "without the oracle's shares, which can take longer than the rest");
  line.option(
          "--picture", w.picture,
          "draw what ran when under each policy, the first 21 ms, into FILE (SVG; serial sharing)")
      .value_name("FILE");
  line.flag("--speed", w.speed, "say on stderr how many kernel events a second it simulated");
  const Option replay =
      line.option("--replay", w.replay,
                  "play FILE, as `lulld --decision-log` wrote it, through the engine "
                  "and check that it decides the same in the same order");
  describe_simulate_cluster(line);
  if (const auto code = parse_words(line, words)) return code;
  if (replay) {
    if (line.given_count() == 1) return std::nullopt;
    complain("simulate: --replay takes no other option: the log says everything");
    return kUsage;
  }
  if (w.high.empty() && w.lows.empty()) {
    w.high = kShippedHigh;
    w.lows = {kShippedLow};
    w.no_oracle = true;
  }
  if (w.high.empty() || w.lows.empty()) {
    complain("simulate: --high and --low go together: see lull simulate --help");
    return kUsage;
  }
  if (!w.slowdown.empty()) {
    const auto bound = parse_slowdown(w.slowdown);
    if (!bound) {
      complain("simulate: --max-slowdown: " + bound.error());
      return kUsage;
    }
    w.bound = *bound;
  }
  for (const std::string& name : w.predictors) {
    if (policies::predictor_named(name)) continue;
    complain(fmt::format("simulate: --predictor: unknown predictor '{}': one of {}", name,
                         policies::predictor_names()));
    return kUsage;
  }
  if (w.policies.empty()) w.policies.assign(kComparedPolicies.begin(), kComparedPolicies.end());
  for (std::string& policy : w.policies) {
    const auto choice = policies::parse_policy(policy, simulate::simulated_policies());
    if (!choice) {
      complain("simulate: --policy: " + choice.error());
      return kUsage;
    }
    if (hold && choice->row->holding == policies::Holding::kByPrediction &&
        policy.find(policies::kMaxHoldKey) == std::string::npos) {
      policy += fmt::format(" {}={}", policies::kMaxHoldKey, static_cast<int64_t>(w.max_hold_ms));
      if (const auto both = policies::parse_policy(policy, simulate::simulated_policies()); !both) {
        complain("simulate: --max-hold: " + both.error());
        return kUsage;
      }
    }
  }
  return std::nullopt;
}

Duration us(double value) { return Duration{static_cast<int64_t>(value * 1e3)}; }

int replay_main(const std::string& path) {
  const auto report = simulate::replay_decisions(path, LULL_VERSION);
  if (!report) {
    complain("simulate: --replay: " + report.error());
    return kFailed;
  }
  fmt::print("{}\n", report->summary);
  if (!report->note.empty()) complain("simulate: --replay: " + report->note);
  if (report->difference.empty()) {
    fmt::print("every step gave what the log says, in the same order\n");
    return kDone;
  }
  complain("simulate: --replay: not the same decisions: " + report->difference);
  return kFailed;
}

}  // namespace

int simulate_main(const Words& words) {
  if (!words.empty() && words.front() == "cluster") {
    return simulate_cluster_main(Words(words.begin() + 1, words.end()));
  }
  Words1 w;
  if (const auto code = read_words(words, w)) return *code;
  if (!w.replay.empty()) return replay_main(w.replay);
  simulate::ExperimentPlan plan;
  const auto sharing = parse_sharing(w.sharing);
  if (!sharing) {
    complain("simulate: --sharing: " + sharing.error());
    return kUsage;
  }
  plan.node.sharing = static_cast<simgpu::Sharing>(*sharing);
  plan.node.devices = static_cast<uint32_t>(w.devices);
  if (!w.picture.empty()) {
    if (plan.node.sharing != simgpu::Sharing::kSerial || w.devices != 1) {
      complain(
          "simulate: --picture: kernels side by side are not drawn: use --sharing serial and one "
          "device");
      return kUsage;
    }
    plan.timeline = kPictureLength;
  }
  if (w.free_markers) plan.node.profile.marker_ns = plan.node.profile.marker_host_ns = 0;
  auto high = load(w.high, kHighLevel, plan.node.profile, w.devices);
  if (!high) {
    complain("simulate: --high: " + high.error());
    return kFailed;
  }
  plan.high = std::move(*high);
  plan.high.bound = w.bound;
  std::set<std::string> names{plan.high.task};
  for (const std::string& word : w.lows) {
    auto low = load(word, kLowLevel, plan.node.profile, w.devices);
    if (!low) {
      complain("simulate: --low: " + low.error());
      return kFailed;
    }
    low->greedy = w.greedy;
    const std::string name = low->task;
    for (int n = 1; !names.insert(low->task).second; ++n) {
      low->task = name + (n == 1 ? " (low)" : fmt::format(" (low {})", n));
    }
    plan.lows.push_back(std::move(*low));
  }
  plan.policies = w.policies;
  for (const std::string& name : w.predictors) {
    plan.predictors.push_back(*policies::predictor_named(name));
  }
  plan.node.coordinator.control_latency =
      w.control_latency_us >= 0
          ? us(w.control_latency_us)
          : Duration{static_cast<int64_t>(plan.node.profile.control_latency_ns)};
  plan.node.jitter = us(w.jitter_us);
  plan.load = w.load;
  plan.iterations = w.iterations;
  plan.oracle = !w.no_oracle;
  plan.warmup = w.warmup;
  plan.longest = us(w.seconds * 1e6);
  plan.seed = w.seed;
  if (w.drift != 1) {
    plan.drift = w.drift;
    plan.drift_after = w.drift_after;
  }
  const auto begun = std::chrono::steady_clock::now();
  auto result = simulate::run_experiment(plan);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (!result) {
    complain("simulate: " + result.error());
    return kFailed;
  }
  result->heading.low_greedy = w.greedy;
  if (w.load > 0) {
    result->heading.arrivals = fmt::format("Poisson arrivals at {:g} of capacity", w.load);
  }
  if (w.speed) {
    fmt::print(stderr, "lull: simulate: {:.2f} M kernel events in {:.2f} s: {:.2f} M a second\n",
               static_cast<double>(result->kernel_events) / 1e6, took,
               static_cast<double>(result->kernel_events) / 1e6 / took);
  }
  if (!w.picture.empty()) {
    std::ofstream out(w.picture, std::ios::binary);
    if (!(out << simulate::timeline_svg(plan, *result)).flush()) {
      complain(fmt::format("simulate: --picture: {} cannot be written", w.picture));
      return kFailed;
    }
  }
  if (!w.json.replaces_text())
    fmt::print("{}", show_table(result->heading, result->rows, output_width()));
  return w.json.write("simulate", to_json(result->heading, result->rows)) ? kDone : kFailed;
}

}  // namespace lull::command
