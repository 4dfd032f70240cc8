// `lull run`: checks what can be checked, sets the environment, and becomes the program.
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "coordinator/channel/messages.h"
#include "coordinator/channel/model_clock.h"
#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/elastic_range.h"
#include "tools/lull/program_start.h"
#include "tools/lull/visible_devices.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

constexpr uint64_t kLeastMemoryBytes = 1 << 20;

// A device that exists keeps the parameters it was made with: say so rather than ignore a wish.
void note_existing_device(const LaunchWishes& wishes) {
  channel::sim_device_prefix prefix{};
  const std::string path = default_sim_device();
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(&prefix), sizeof prefix)) return;
  if (std::memcmp(prefix.magic, channel::kSimMagic, sizeof prefix.magic) != 0) return;
  const bool other_sharing =
      !wishes.sharing.empty() && wishes.sharing != sharing_name(prefix.sharing);
  const bool other_speed = wishes.slow_motion && *wishes.slow_motion != prefix.slow_motion;
  if (!other_sharing && !other_speed) return;
  complain(
      fmt::format("run: the simulated device {} already runs with {}, slow motion {}: remove "
                  "the file for a fresh one, or set SIMGPU_DEVICE to another",
                  path, sharing_name(prefix.sharing), prefix.slow_motion));
}

void note_policy_without_bounds(const std::string& socket) {
  const auto answer = ask_daemon(socket, {{"op", "policy"}});
  const std::string policy = answer ? answer->value("policy", "guarded") : "guarded";
  if (policy.starts_with("guarded")) return;
  complain(
      fmt::format("run: --max-slowdown: lulld's policy '{}' keeps no bounds: lull policy guarded "
                  "does",
                  policy));
}

// The simulated device is made with what this run asks for, as its driver would make it.
void set_simulation(const LaunchWishes& wishes) {
  if (!wishes.sharing.empty()) setenv("SIMGPU_SHARING", wishes.sharing.c_str(), 1);
  if (wishes.slow_motion) {
    setenv("SIMGPU_SLOW_MOTION", fmt::format("{}", *wishes.slow_motion).c_str(), 1);
  }
}

// All GPUs for the program, its own first; where that cannot be, it runs without, and is told so.
void see_all_devices(LaunchWishes& wishes, const std::string& socket) {
  std::expected<std::vector<Gpu>, std::string> machine;
  if (wishes.simulate) {
    set_simulation(wishes);
    machine = simulated_gpus();
  } else {
    machine = machine_gpus(socket);
  }
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  std::optional<std::string> shown;
  if (variable != nullptr) shown = variable;
  // Started by a program that sees all itself: its own are this one's.
  if (const char* own = std::getenv("LULL_VISIBLE_DEVICES"); shown && own != nullptr) {
    size_t end = 0;
    for (long n = std::atol(own); n > 0 && end != std::string::npos; --n) {
      end = shown->find(',', end == 0 ? 0 : end + 1);
    }
    shown = shown->substr(0, end);
  }
  std::expected<VisibleDevices, std::string> visible = std::unexpected(std::string());
  if (machine) {
    visible = all_devices(shown, *machine);
  } else {
    visible = std::unexpected(machine.error());
  }
  if (!visible) {
    complain(fmt::format("run: --migratable: {}: it can be suspended, not migrated", visible.error()));
    wishes.migratable = false;
    wishes.suspendable = true;
    return;
  }
  wishes.visible_devices = visible->list;
  wishes.own_devices = visible->own;
}

}  // namespace

int run_main(const Words& words) {
  LaunchWishes wishes;
  std::string priority, slowdown, memory, sim;
  double slow_motion = 0;
  CommandLine line(
      "Runs a CUDA program under lull. The program takes lull's place: pid, terminal and "
      "exit code are its own.",
      "lull run");
  line.option("--priority", priority, "0 (highest) to 9, or realtime, high, normal, low, idle; below normal "
              "it is below normal under MPS too");
  line.option("--max-slowdown", slowdown,
              "what it may lose to less important programs, under policy guarded: 3%, or 3%,5% "
              "in the mean and at p99; p99 of one number is 5/3 of it (default: the policy's)");
  line.option("--name", wishes.name, "task name (default: the program's file name)");
  line.option("--job", wishes.job, "programs with one job name belong together");
  line.option("--memory", memory, "device memory it may use, for example 20G");
  line.option("--socket", wishes.socket, "socket of lulld");
  line.option("--timing", wishes.timing,
              "how much of its work is timed: off, sampled, full (default: as lulld is set)")
      .one_of({"off", "sampled", "full"});
  line.flag("--call-sites", wishes.call_sites,
            "tell kernels apart by the host code that launches them (needs libunwind.so.8)");
  line.flag("--sim{default}", sim, "use the simulated GPU; --sim=time_slice, mps or serial")
      .value_name("SHARING");
  const Option slow = line.option("--slow-motion", slow_motion,
                                  "with --sim: stretch the model's time by this factor");
  line.flag("--suspendable", wishes.suspendable,
            "its device memory can move to the host, and back (lull suspend, lull resume)");
  line.flag("--migratable", wishes.migratable,
            "and it can move to another GPU (lull migrate); not under MPS");
  line.flag("--oversubscribe", wishes.oversubscribe,
            "takes turns with others like it where the GPU's memory does not suffice for all");
  line.option("--elastic", wishes.elastic,
              "MIN:MAX GPUs it can use, with --job: its launcher follows lull discover");
  line.flag("--require-coordinator", wishes.require_coordinator,
            "fail when there is no lulld (else: run unscheduled)");

  Words shown_in_help;
  line.option("program", shown_in_help, "the program and its arguments");

  bool marker = false;
  const size_t own = own_words(line, words, marker);
  if (const auto code = parse_words(line, Words(words.begin(), words.begin() + own), kRunFailed)) {
    return *code;
  }
  const Words program(words.begin() + own + (marker ? 1 : 0), words.end());
  const auto fail = [](std::string_view text) {
    complain(fmt::format("run: {}", text));
    return kRunFailed;
  };
  if (program.empty()) return fail("no program given: lull run [OPTIONS] -- PROGRAM ARGS...");
  if (!priority.empty()) {
    const auto level = parse_priority(priority);
    if (!level) return fail("--priority: " + level.error());
    wishes.priority = *level;
  }
  if (!slowdown.empty()) {
    const auto bound = parse_slowdown(slowdown);
    if (!bound) return fail("--max-slowdown: " + bound.error());
    wishes.bound = *bound;
  }
  if (!memory.empty()) {
    const auto bytes = parse_bytes(memory);
    if (!bytes) return fail("--memory: " + bytes.error());
    if (*bytes < kLeastMemoryBytes) {
      return fail(
          fmt::format("--memory: '{}' is {}: no program works with less than {} of device memory",
                      memory, show_bytes(*bytes), show_bytes(kLeastMemoryBytes)));
    }
    wishes.memory_bytes = *bytes;
  }
  for (const auto& [option, text, limit] :
       {std::tuple{"--name", &wishes.name, sizeof(channel::lull_hello::name)},
        {"--job", &wishes.job, sizeof(channel::lull_hello::job)}}) {
    if (text->size() >= limit) {
      return fail(
          fmt::format("{}: '{}' is too long: use at most {} bytes", option, *text, limit - 1));
    }
  }
  std::optional<ElasticRange> range;
  if (!wishes.elastic.empty()) {
    const auto parsed = parse_elastic(wishes.elastic);
    if (!parsed) return fail("--elastic: " + parsed.error());
    if (wishes.job.empty()) return fail("--elastic: an elastic job has a name: add --job NAME");
    range = *parsed;
  }
  wishes.simulate = !sim.empty();
  if (wishes.simulate && sim != "default") {
    const auto sharing = parse_sharing(sim);
    if (!sharing) return fail("--sim: " + sharing.error());
    wishes.sharing = sim;
  }
  if (slow) {
    if (!wishes.simulate) return fail("--slow-motion: a real GPU has none: use it with --sim");
    if (!(slow_motion >= 1 && slow_motion <= 1e6)) {
      return fail(fmt::format("--slow-motion: {} is out of range: use 1 or more", slow_motion));
    }
    wishes.slow_motion = slow_motion;
  }

  const std::string socket = wishes.socket.empty() ? default_socket() : wishes.socket;
  if (wishes.migratable) see_all_devices(wishes, socket);
  if (range) {
    // Without lulld it runs on, and says so itself.
    const auto answer = ask_daemon(
        socket,
        {{"op", "elastic"}, {"job", wishes.job}, {"min", range->least}, {"max", range->most}});
    if (!answer) complain("run: --elastic: " + answer.error().text);
  }
  const auto prepared = prepare_program(program, wishes, installed());
  if (!prepared) {
    complain("run: " + prepared.error().text);
    return prepared.error().code;
  }
  const auto start = [&] {
    const StartError error = become(*prepared);
    complain("run: " + error.text);
    return error.code;
  };
  if (prepared->no_driver) {
    if (wishes.require_coordinator) {
      return fail(fmt::format("{}: install one, or use --sim for a simulated GPU", kNoDriver));
    }
    // Under the library all the same: it does nothing before a driver is called.
    complain(fmt::format("run: {}: running unscheduled: use --sim for a simulated GPU", kNoDriver));
    return start();
  }
  if (wishes.simulate) note_existing_device(wishes);

  if (wishes.priority || wishes.require_coordinator) {
    const auto answer = wishes.priority
                            ? ask_daemon(socket, {{"op", "may"}, {"priority", *wishes.priority}})
                            : ask_daemon(socket, {{"op", "ping"}});
    if (!answer && answer.error().kind == AskError::kRefused) {
      return fail(fmt::format("--priority {}: {}", priority, answer.error().text));
    }
    if (!answer && wishes.require_coordinator) return fail(answer.error().text);
  }
  if (wishes.bound.is_set()) note_policy_without_bounds(socket);
  return start();
}

}  // namespace lull::command
