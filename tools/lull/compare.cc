// `lull compare`: two programs alone and together under each policy, as real processes under the
// preloaded library and a daemon of their own, measured and printed as one table.
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "policies/launch/registry.h"
#include "tools/lull/command.h"
#include "tools/lull/compare/phase.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/installed.h"
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/progress_line.h"
#include "tools/measure/values.h"
#include "tools/play/workload.h"
#include "tools/simgpu/device/inspect.h"

namespace lull::command {
namespace {

// Slow enough that a machine of two cores plays both tasks and the device in time.
constexpr double kDefaultSlowMotion = 20;
constexpr std::chrono::milliseconds kDaemonUpWait{60000};
constexpr std::chrono::milliseconds kDaemonEndWait{2000};
constexpr uint64_t kMinIterations = 5;  // fewer: the row is not valid
constexpr uint64_t kMinCommandIterations = 2;
constexpr int kSignalExit = 128;

struct Wishes {
  TaskPlan high, low;
  std::vector<std::string> policies;      // as they go to the daemon
  std::vector<std::string> policy_names;  // as they are printed
  Goal goal;
  std::optional<uint64_t> warmup;
  bool simulate = false;
  simgpu::SimParameters sim;
  JsonOutput json;
};

std::string task_name(const std::string& workload, const std::string& loaded) {
  if (!loaded.empty()) return loaded.substr(0, 56);
  std::string command = workload.substr(std::strlen(kCommandPrefix));
  const std::string program = command.substr(0, command.find(' '));
  return std::filesystem::path(program).filename().string().substr(0, 56);
}

// Reads the workload once, so that a malformed one is said before anything starts.
std::expected<void, std::string> check_workload(TaskPlan& plan) {
  std::string loaded;
  if (plan.is_command()) {
    if (plan.workload.size() == std::strlen(kCommandPrefix)) {
      return std::unexpected(fmt::format("--{}: cmd: has no command behind it", plan.role));
    }
  } else {
    plan.workload = play::workload_file(plan.workload);
    const auto workload = play::load_workload(plan.workload);
    if (!workload) return std::unexpected(fmt::format("--{}: {}", plan.role, workload.error()));
    loaded = workload->name;
  }
  plan.task = task_name(plan.workload, loaded);
  return {};
}

// What is going on: rewritten in place on a terminal, one line a phase elsewhere.
class Progress {
 public:
  void phase(const std::string& text) {
    text_ = text;
    if (!line_.is_shown()) complain("compare: " + text_);
    show("starting");
  }
  void show(const std::string& detail) { line_.show(fmt::format("compare: {}: {}", text_, detail)); }
  void clear() { line_.clear(); }

 private:
  std::string text_;
  ProgressLine line_;
};

std::expected<std::unique_ptr<ChildProcess>, std::string> start_daemon(const Lab& lab) {
  ChildStart start;
  start.words = {lab.bin + "/lulld", "--socket", lab.socket, "--policy", "share"};
  start.unset_prefixes = {"LULL_", "SIMGPU_"};
  if (!lab.sim_device.empty()) {
    start.words.insert(start.words.end(), {"--sim", lab.sim_device});
    start.set["SIMGPU_DEVICE"] = lab.sim_device;
  }
  start.output_file = lab.scratch->file("lulld.out");
  auto daemon = ChildProcess::start(start);
  if (!daemon) return daemon;
  const auto deadline = std::chrono::steady_clock::now() + kDaemonUpWait;
  for (;;) {
    if (ask_daemon(lab.socket, {{"op", "ping"}})) return daemon;
    if (StopSignals::seen()) return std::unexpected("");
    if ((*daemon)->ended()) return std::unexpected("lulld: " + (*daemon)->how_it_ended());
    if (std::chrono::steady_clock::now() > deadline) {
      return std::unexpected(fmt::format("lulld does not answer within {} s: {}",
                                         kDaemonUpWait.count() / 1000, (*daemon)->last_words()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Runs all phases. The error is one line, empty after a stop signal.
std::expected<std::pair<Heading, std::vector<Row>>, std::string> measure(const Wishes& wishes,
                                                                         Progress& progress) {
  auto scratch = ScratchFolder::make();
  if (!scratch) return std::unexpected(scratch.error());
  Lab lab;
  lab.bin = installed().bin;
  lab.scratch = scratch->get();
  lab.socket = lab.scratch->file("lulld.sock");

  Heading heading;
  heading.simulated = wishes.simulate;
  heading.low_greedy = wishes.low.greedy;
  heading.bound = wishes.high.bound;
  if (wishes.simulate) {
    lab.sim_device = lab.scratch->file("device");
    if (const auto made = simgpu::create_device(lab.sim_device, wishes.sim); !made) {
      return std::unexpected(made.error());
    }
    channel::sim_device_prefix prefix{};
    std::ifstream in(lab.sim_device, std::ios::binary);
    in.read(reinterpret_cast<char*>(&prefix), sizeof prefix);
    lab.clock = {prefix.origin_ns, prefix.slow_motion};
    heading.device = wishes.sim.profile.name;
    heading.sharing = sharing_name(prefix.sharing);
    heading.slow_motion = prefix.slow_motion;
    heading.control_latency_us = static_cast<double>(prefix.control_latency_ns) / 1e3;
  } else {
    const char* told = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
    const bool mps =
        access(fmt::format("{}/control", told ? told : "/tmp/nvidia-mps").c_str(), F_OK) == 0;
    heading.sharing = mps ? "mps" : "time_slice";
  }
  auto daemon = start_daemon(lab);
  if (!daemon) return std::unexpected(daemon.error());

  const size_t warm = kWarmupIterations, warm_command = kCommandWarmupIterations;
  const size_t warm_high = wishes.high.is_command() ? warm_command : warm;
  const Side high{wishes.high.task, wishes.warmup.value_or(warm_high),
                  std::min(wishes.high.is_command() ? kMinCommandIterations : kMinIterations,
                           wishes.goal.iterations.value_or(UINT64_MAX))};
  const Side low{wishes.low.task, wishes.low.is_command() ? warm_command : kLowWarmupIterations, 1};
  const size_t phases = 2 + wishes.policies.size();
  int serial = 0;
  const auto run = [&](const std::string& what, const std::string& policy, bool with_high,
                       bool with_low) -> std::expected<PhaseRecord, std::string> {
    progress.phase(fmt::format("[{}/{}] {}", ++serial, phases, what));
    if (const auto set = ask_daemon(lab.socket, {{"op", "policy"}, {"policy", policy}}); !set) {
      return std::unexpected(fmt::format("policy '{}': {}", policy, set.error().text));
    }
    PhasePlan plan;
    if (with_high) plan.high = wishes.high;
    if (with_low) plan.low = wishes.low;
    plan.high_warmup = high.warmup;
    plan.low_warmup = low.warmup;
    plan.goal = wishes.goal;
    // Iterations are those of the high task; the low one alone is only a baseline.
    if (!with_high) plan.goal.iterations.reset();
    auto record = run_phase(
        plan, lab, serial, [&](const std::string& text) { progress.show(text); }, heading.device);
    if (!record && (*daemon)->ended()) {
      return std::unexpected("lulld: " + (*daemon)->how_it_ended());
    }
    return record;
  };

  const auto alone_high = run(high.task + " alone", "share", true, false);
  if (!alone_high) return std::unexpected(alone_high.error());
  const auto alone_low = run(low.task + " alone", "share", false, true);
  if (!alone_low) return std::unexpected(alone_low.error());
  std::vector<Row> rows;
  const auto keep = [&](const std::string& policy, const PhaseRecord& phase) {
    for (Row& row : make_rows(policy, phase, high, low, *alone_high, *alone_low)) {
      rows.push_back(std::move(row));
    }
    if (phase.high) {
      heading.player_late_p99_us =
          std::max(heading.player_late_p99_us, phase.high->late_p99_ns / 1e3);
    }
  };
  keep("alone", *alone_high);
  keep("alone", *alone_low);
  for (size_t n = 0; n < wishes.policies.size(); ++n) {
    const auto together =
        run("both under " + wishes.policy_names[n], wishes.policies[n], true, true);
    if (!together) return std::unexpected(together.error());
    keep(wishes.policy_names[n], *together);
  }
  (*daemon)->end(kDaemonEndWait);
  return std::pair{heading, rows};
}

// Reads the command line into `wishes`; an exit code when that is all there is to do.
std::optional<int> read_wishes(const Words& words, Wishes& wishes) {
  std::vector<std::string> policies;
  std::string sim, slowdown;
  double slow_motion = kDefaultSlowMotion, seconds = 0, max_hold_ms = 0;
  uint64_t iterations = 0, warmup = 0, seed = 1;
  CommandLine line(
      "Runs two programs alone and then together under each policy, as real processes under "
      "lull, and prints one table.\nA program W is a workload file, a PyTorch profiler "
      "trace, a shipped workload's name, as chatty_inference, or cmd:COMMAND.",
      "lull compare");
  line.option("--high", wishes.high.workload, "the latency-critical program W").required();
  line.option("--low", wishes.low.workload, "the other program W").required();
  line.option("--max-slowdown", slowdown,
              "what the high program may lose under guarded, as for lull run: 3%, or 3%,5%");
  line.option("--policy", policies,
              fmt::format("a policy with its options; may be repeated (default: {})",
                          fmt::join(kComparedPolicies, ", ")))
      .repeated();
  const Option seconds_option =
      line.option("--seconds", seconds, "measure for S seconds, unstretched");
  const Option iterations_option =
      line.option("--iterations", iterations, "measure N iterations of the high program");
  seconds_option.excludes(iterations_option);
  const Option warmup_option =
      line.option("--warmup", warmup,
                  "iterations of the high program before them (default: 3; "
                  "of a command 1)")
          .range(0, 1'000'000);
  line.flag("--low-greedy", wishes.low.greedy, "play the low program without its host pauses");
  line.flag("--sim{default}", sim, "on the simulated GPU; --sim=time_slice, mps or serial")
      .value_name("SHARING");
  const Option slow = line.option("--slow-motion", slow_motion,
                                  "with --sim: stretch time by this factor (default 20)");
  line.option("--seed", seed, "seed of what is random in the players");
  wishes.json.add_to(line, /*after_blank=*/true);
  const Option hold = line.option("--max-hold", max_hold_ms,
                                  "watchdog of the policies that hold by prediction, in ms; 0: off "
                                  "(default: the policy's own)");
  if (const auto code = parse_words(line, words)) return code;

  const auto wrong = [](const std::string& text) {
    complain("compare: " + text);
    return std::optional<int>(kUsage);
  };
  wishes.high.role = "high";
  wishes.low.role = "low";
  if (!slowdown.empty()) {
    const auto bound = parse_slowdown(slowdown);
    if (!bound) return wrong("--max-slowdown: " + bound.error());
    wishes.high.bound = *bound;
  }
  wishes.high.seed = seed;
  wishes.low.seed = seed + 1;
  if (wishes.low.greedy && wishes.low.is_command()) {
    return wrong("--low-greedy: a command's pauses are its own: use it with a workload file");
  }
  if (seconds_option && !(seconds > 0 && seconds <= 3600)) {
    return wrong(
        fmt::format("--seconds: {} is out of range: use more than 0, at most 3600", seconds));
  }
  if (iterations_option && (iterations < 1 || iterations > 1'000'000)) {
    return wrong(fmt::format("--iterations: {} is out of range: use 1 to 1000000", iterations));
  }
  if (seconds_option) wishes.goal.seconds = seconds;
  if (iterations_option) wishes.goal.iterations = iterations;
  if (warmup_option) wishes.warmup = warmup;
  wishes.simulate = !sim.empty();
  if (slow && !wishes.simulate)
    return wrong("--slow-motion: a real GPU has none: use it with --sim");
  if (!(slow_motion >= 1 && slow_motion <= 1e6)) {
    return wrong(fmt::format("--slow-motion: {} is out of range: use 1 or more", slow_motion));
  }
  if (wishes.simulate) {
    auto parameters = simgpu::parameters_from_environment();
    if (!parameters) return wrong(parameters.error());
    wishes.sim = *parameters;
    wishes.sim.slow_motion = slow_motion;
    if (sim != "default") {
      const auto sharing = parse_sharing(sim);
      if (!sharing) return wrong("--sim: " + sharing.error());
      wishes.sim.sharing = static_cast<simgpu::Sharing>(*sharing);
    }
  }
  if (policies.empty()) policies.assign(kComparedPolicies.begin(), kComparedPolicies.end());
  for (const std::string& policy : policies) {
    const auto choice = policies::parse_policy(policy);
    if (!choice) return wrong("--policy: " + choice.error());
    std::string text = policy;
    if (hold && choice->row->holding == policies::Holding::kByPrediction &&
        policy.find(policies::kMaxHoldKey) == std::string::npos) {
      text += fmt::format(" {}={}", policies::kMaxHoldKey, static_cast<int64_t>(max_hold_ms));
      if (const auto both = policies::parse_policy(text); !both)
        return wrong("--max-hold: " + both.error());
    }
    wishes.policies.push_back(text);
    wishes.policy_names.push_back(policy);
  }
  for (TaskPlan* plan : {&wishes.high, &wishes.low}) {
    if (const auto checked = check_workload(*plan); !checked) {
      complain("compare: " + checked.error());
      return kFailed;
    }
  }
  if (wishes.high.task == wishes.low.task) wishes.low.task += " (low)";
  if (!wishes.json.check("compare")) return kFailed;
  const Installed parts = installed();
  for (const char* program : {"lulld", "lull-play"}) {
    if (access(fmt::format("{}/{}", parts.bin, program).c_str(), X_OK) != 0) {
      complain(fmt::format("compare: no {}/{}: build or install lull whole", parts.bin, program));
      return kFailed;
    }
  }
  return std::nullopt;
}

}  // namespace

int compare_main(const Words& words) {
  Wishes wishes;
  if (const auto code = read_wishes(words, wishes)) return *code;
  Progress progress;
  StopSignals signals;
  auto result = measure(wishes, progress);
  progress.clear();
  if (const int signal = StopSignals::seen()) {
    complain("compare: stopped; everything it started has ended");
    return kSignalExit + signal;
  }
  if (!result) {
    complain("compare: " + result.error());
    return kFailed;
  }
  const auto& [heading, rows] = *result;
  if (!wishes.json.replaces_text()) fmt::print("{}", show_table(heading, rows, output_width()));
  return wishes.json.write("compare", to_json(heading, rows)) ? kDone : kFailed;
}

}  // namespace lull::command
