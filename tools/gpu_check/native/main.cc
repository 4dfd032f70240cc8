// lull-device-probe: what the device, its driver and this machine cost, one measurement a
// subcommand, one JSON object on stdout. Plain driver API, no lull inside; tools/gpu-check runs it.
// {"skipped": reason} when the machine cannot be measured (exit 0); exit 1 failed, 2 wrong usage.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "coordinator/command_line/command_line.h"
#include "tools/gpu_check/native/load_kernels.h"
#include "tools/gpu_check/native/probes.h"

namespace {

using namespace lull::probe;
using nlohmann::json;

int print(const json& answer, int code) {
  std::printf("%s\n", answer.dump().c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  lull::CommandLine line(
      "Measures what a GPU, its driver and this machine cost; prints one JSON object.",
      "lull-device-probe");
  line.version("lull-device-probe " LULL_VERSION);
  line.require_command();
  struct Probe {
    lull::CommandLine* command;
    std::function<json(Driver&)> measure;
  };
  std::vector<Probe> probes;
  // Adds a measurement; its options are added to what this returns.
  const auto probe = [&](const char* name, const char* what,
                         std::function<json(Driver&)> measure) -> lull::CommandLine& {
    probes.push_back({&line.command(name, what), std::move(measure)});
    return *probes.back().command;
  };

  probe("facts", "name, driver, sizes, abilities", probe_facts);

  std::string list_file;
  probe("addresses", "cuGetProcAddress against dlsym",
        [&](Driver& driver) { return probe_addresses(driver, list_file); })
      .option("LIST", list_file, "lines: base version flags name")
      .required();

  LaunchWishes launch_wishes;
  auto& launch = probe("launch", "launches, events, value writes",
                       [&](Driver& driver) { return probe_launch(driver, launch_wishes); });
  launch.option("--calls", launch_wishes.calls).range(10, 100000);
  launch.option("--batches", launch_wishes.batches).range(3, 10000);
  launch.flag("--launches-only", launch_wishes.launches_only);

  uint64_t most_bytes = 512ULL << 20;
  probe("copies", "copy and memset speed", [&](Driver& driver) {
    return probe_copies(driver, most_bytes);
  }).option("--most-bytes", most_bytes);

  uint64_t most_mapped = 1ULL << 30;
  probe("mapping", "virtual memory management calls", [&](Driver& driver) {
    return probe_mapping(driver, most_mapped);
  }).option("--most-bytes", most_mapped);

  uint64_t registered = 1ULL << 30;
  probe("registration", "pinning host memory", [&](Driver& driver) {
    return probe_registration(driver, registered);
  }).option("--bytes", registered);

  double spin_ms = 300;
  std::string start_file;
  auto& watch = probe("watch", "when this process's kernel runs",
                      [&](Driver& driver) { return probe_watch(driver, spin_ms, start_file); });
  watch.option("--ms", spin_ms).range(1.0, 10000.0);
  watch.option("--start-file", start_file, "waits until it exists");

  RoundWishes round_wishes;
  auto& rounds =
      probe("rounds", "kernel, wait, pause: when each began and ended",
            [&](Driver& driver) { return probe_rounds(driver, round_wishes, start_file); });
  rounds.option("--spin-us", round_wishes.spin_us).range(0.0, 100000.0);
  rounds.option("--pause-us", round_wishes.pause_us).range(1.0, 1e6);
  rounds.option("--ms", round_wishes.ms).range(1.0, 10000.0);
  rounds.option("--start-file", start_file, "waits until it exists");

  probe("load", "keeps the device busy as orders on stdin say", probe_load);
  probe("waits", "short kernels, waited for, as orders on stdin say", probe_waits);

  CheckpointWishes checkpoint_wishes;
  auto& checkpoint =
      probe("checkpoint", "suspends and resumes itself by the driver",
            [&](Driver& driver) { return probe_checkpoint(driver, checkpoint_wishes); });
  checkpoint.option("--bytes", checkpoint_wishes.bytes);
  checkpoint.flag("--managed", checkpoint_wishes.managed);
  checkpoint.flag("--mapped", checkpoint_wishes.mapped);
  checkpoint.flag("--pairs", checkpoint_wishes.pairs);
  checkpoint.flag("--pause", checkpoint_wishes.paused);

  uint64_t leave_bytes = 64ULL << 20;
  probe("hog", "holds all device memory until a line comes on stdin", [&](Driver& driver) {
    return probe_hog(driver, leave_bytes);
  }).option("--leave-bytes", leave_bytes);

  TurnWishes turn_wishes;
  auto& turns = probe("turns", "launches again for each line on stdin",
                      [&](Driver& driver) { return probe_turns(driver, turn_wishes); });
  turns.option("--calls", turn_wishes.calls).range(10, 100000);
  turns.option("--batches", turn_wishes.batches).range(1, 1000);

  QueueWishes queue_wishes;
  auto& queue = probe("queue", "how far ahead a program gets, and what markers cost it",
                      [&](Driver& driver) { return probe_queue(driver, queue_wishes); });
  queue.option("--most", queue_wishes.most).range(64, 1 << 20);
  queue.option("--fills", queue_wishes.fills).range(1, 100);
  queue.option("--batch", queue_wishes.batch).range(10, 10000);
  queue.option("--rounds", queue_wishes.rounds).range(1, 1000);
  queue.option("--hold-ms", queue_wishes.hold_ms).range(1.0, 5000.0);
  queue.option("--ahead-ms", queue_wishes.ahead_ms).range(0.1, 1000.0);

  SuspendWishes suspend_wishes;
  auto& suspend = probe("suspend", "device memory to the host and back to its addresses",
                        [&](Driver& driver) { return probe_suspend(driver, suspend_wishes); });
  suspend.option("--bytes", suspend_wishes.bytes).range(1, int64_t{1} << 40);
  suspend.option("--chunk-bytes", suspend_wishes.chunk_bytes).range(1, int64_t{1} << 40);
  suspend.option("--threads", suspend_wishes.threads).range(1, 64);
  suspend.option("--rounds", suspend_wishes.rounds).range(1, 100);
  suspend.flag("--prepared", suspend_wishes.prepared);
  suspend.flag("--checkpoint", suspend_wishes.checkpoint);
  suspend.flag("--pause", suspend_wishes.paused);

  uint64_t kept_bytes = 1ULL << 30;
  probe("hold", "a job whose memory is known, as orders on stdin say", [&](Driver& driver) {
    return probe_hold(driver, kept_bytes);
  }).option("--bytes", kept_bytes);

  BystanderWishes bystander_wishes;
  auto& bystander =
      probe("bystander", "works on, and says when it no longer can",
            [&](Driver& driver) { return probe_bystander(driver, bystander_wishes); });
  bystander.option("--seconds", bystander_wishes.seconds).range(0.01, 600.0);
  bystander.option("--spin-us", bystander_wishes.spin_us).range(0.0, 100000.0);
  bystander.option("--pause-us", bystander_wishes.pause_us).range(0.0, 1e6);

  probe("illegal-address", "writes where no memory is", probe_illegal_address);

  FloodWishes flood_wishes;
  auto& flood = probe("flood", "keeps many kernels queued until it is ended",
                      [&](Driver& driver) { return probe_flood(driver, flood_wishes); });
  flood.option("--seconds", flood_wishes.seconds).range(0.01, 600.0);
  flood.option("--spin-us", flood_wishes.spin_us).range(1.0, 1e6);
  flood.option("--in-flight", flood_wishes.in_flight).range(2, 900);

  const auto& wake = line.command("wake", "host only: reaching another process");
  const auto& kernels =
      line.command("kernels", "host only: the PTX that load and waits bring along");

  if (const auto stop = line.parse({argv + 1, argv + argc})) {
    std::fprintf(stop->wrong ? stderr : stdout, "%s\n", stop->text.c_str());
    return stop->wrong ? 2 : 0;
  }
  try {
    if (wake.given()) return print(probe_wake(), 0);
    if (kernels.given()) return print({{"load", load_ptx()}, {"tensor", tensor_ptx()}}, 0);
    Driver driver;
    const auto wanted =
        std::ranges::find_if(probes, [](const Probe& one) { return one.command->given(); });
    try {
      json answer = wanted->measure(driver);
      answer["simulated"] = driver.simulated;
      return print(answer, 0);
    } catch (const Refused& refused) {
      const std::string why = refused.call + ": " + driver.name_of(refused.result);
      const bool skip = refused.result == CUDA_ERROR_NOT_SUPPORTED;
      return print({{skip ? "skipped" : "failed", why}, {"simulated", driver.simulated}},
                   skip ? 0 : 1);
    }
  } catch (const NotHere& why) {
    return print({{"skipped", why.reason}}, 0);
  } catch (const std::exception& error) {
    return print({{"failed", error.what()}}, 1);
  }
}
