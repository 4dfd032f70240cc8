// lull-device-probe: what the device, its driver and this machine cost, one measurement a
// subcommand, one JSON object on stdout. Plain driver API, no lull inside; tools/gpu-check runs it.
// {"skipped": reason} when the machine cannot be measured (exit 0); exit 1 failed, 2 wrong usage.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

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
  CLI::App app{"Measures what a GPU, its driver and this machine cost; prints one JSON object.",
               "lull-device-probe"};
  app.require_subcommand(1);
  std::function<json(Driver&)> wanted;
  bool host_only = false;

  app.add_subcommand("facts", "name, driver, sizes, abilities")->callback([&] {
    wanted = probe_facts;
  });

  std::string list_file;
  auto* addresses = app.add_subcommand("addresses", "cuGetProcAddress against dlsym");
  addresses->add_option("LIST", list_file, "lines: base version flags name")->required();
  addresses->callback(
      [&] { wanted = [&](Driver& driver) { return probe_addresses(driver, list_file); }; });

  LaunchWishes launch_wishes;
  auto* launch = app.add_subcommand("launch", "launches, events, value writes");
  launch->add_option("--calls", launch_wishes.calls)->check(CLI::Range(10, 100000));
  launch->add_option("--batches", launch_wishes.batches)->check(CLI::Range(3, 10000));
  launch->add_flag("--launches-only", launch_wishes.launches_only);
  launch->callback(
      [&] { wanted = [&](Driver& driver) { return probe_launch(driver, launch_wishes); }; });

  uint64_t most_bytes = 512ULL << 20;
  auto* copies = app.add_subcommand("copies", "copy and memset speed");
  copies->add_option("--most-bytes", most_bytes);
  copies->callback(
      [&] { wanted = [&](Driver& driver) { return probe_copies(driver, most_bytes); }; });

  uint64_t most_mapped = 1ULL << 30;
  auto* mapping = app.add_subcommand("mapping", "virtual memory management calls");
  mapping->add_option("--most-bytes", most_mapped);
  mapping->callback(
      [&] { wanted = [&](Driver& driver) { return probe_mapping(driver, most_mapped); }; });

  uint64_t registered = 1ULL << 30;
  auto* registration = app.add_subcommand("registration", "pinning host memory");
  registration->add_option("--bytes", registered);
  registration->callback(
      [&] { wanted = [&](Driver& driver) { return probe_registration(driver, registered); }; });

  double spin_ms = 300;
  std::string start_file;
  auto* watch = app.add_subcommand("watch", "when this process's kernel runs");
  watch->add_option("--ms", spin_ms)->check(CLI::Range(1.0, 10000.0));
  watch->add_option("--start-file", start_file, "waits until it exists");
  watch->callback(
      [&] { wanted = [&](Driver& driver) { return probe_watch(driver, spin_ms, start_file); }; });

  RoundWishes round_wishes;
  auto* rounds = app.add_subcommand("rounds", "kernel, wait, pause: when each began and ended");
  rounds->add_option("--spin-us", round_wishes.spin_us)->check(CLI::Range(0.0, 100000.0));
  rounds->add_option("--pause-us", round_wishes.pause_us)->check(CLI::Range(1.0, 1e6));
  rounds->add_option("--ms", round_wishes.ms)->check(CLI::Range(1.0, 10000.0));
  rounds->add_option("--start-file", start_file, "waits until it exists");
  rounds->callback([&] {
    wanted = [&](Driver& driver) { return probe_rounds(driver, round_wishes, start_file); };
  });

  CheckpointWishes checkpoint_wishes;
  auto* checkpoint = app.add_subcommand("checkpoint", "suspends and resumes itself by the driver");
  checkpoint->add_option("--bytes", checkpoint_wishes.bytes);
  checkpoint->add_flag("--managed", checkpoint_wishes.managed);
  checkpoint->add_flag("--mapped", checkpoint_wishes.mapped);
  checkpoint->add_flag("--pause", checkpoint_wishes.paused);
  checkpoint->callback([&] {
    wanted = [&](Driver& driver) { return probe_checkpoint(driver, checkpoint_wishes); };
  });

  uint64_t leave_bytes = 64ULL << 20;
  auto* hog = app.add_subcommand("hog", "holds all device memory until a line comes on stdin");
  hog->add_option("--leave-bytes", leave_bytes);
  hog->callback([&] { wanted = [&](Driver& driver) { return probe_hog(driver, leave_bytes); }; });

  app.add_subcommand("wake", "host only: reaching another process")->callback([&] {
    host_only = true;
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (host_only) return print(probe_wake(), 0);
    Driver driver;
    try {
      json answer = wanted(driver);
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
