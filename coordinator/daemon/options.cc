#include "coordinator/daemon/options.h"

#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/channel/socket_place.h"
#include "coordinator/command_line/command_line.h"
#include "policies/launch/registry.h"

namespace lull::daemon {

std::string default_sim_device() {
  const char* named = ::getenv("SIMGPU_DEVICE");
  if (named != nullptr && named[0] != '\0') return named;
  return fmt::format("/dev/shm/simgpu-{}", ::getuid());
}

std::variant<Options, ExitCode> parse_options(int argc, const char* const* argv) {
  Options options;
  CommandLine line{
      "lulld: the coordinator of lull. One runs on each node; programs started with "
      "`lull run` attach to it.\nSIGHUP reads the configuration again, SIGTERM opens every "
      "gate and ends.",
      "lulld"};
  bool foreground = false;
  line.option("--socket", options.socket,
              fmt::format("Socket to listen on (default: {})", channel::kSocketPlaces))
      .value_name("PATH");
  line.option("--config", options.config, "Configuration, JSON (see lulld.json as shipped)")
      .value_name("FILE");
  line.option("--policy", options.policy,
              fmt::format("Launch policy with its options, e.g. \"priority in_flight_us=50\" "
                          "(default: the configuration's, else {})",
                          policies::kDefaultPolicy));
  line.option("--timing", options.timing,
              "What is timed of clients that do not ask for more or less: off, sampled, full "
              "(default: the configuration's, else sampled)")
      .one_of({"off", "sampled", "full"});
  const Option sim =
      line.option("--sim", options.sim_device,
                  "Coordinate simulated GPUs: times come from this simulated device (default: "
                  "$SIMGPU_DEVICE, else /dev/shm/simgpu-<uid>)")
          .value_name("FILE")
          .optional_value();
  line.option("--pid-file", options.pid_file, "Write the process id here while running")
      .value_name("FILE");
  line.option("--trace", options.trace,
              "Record every launch of every client into this file (lull trace show reads it)")
      .value_name("FILE");
  line.option("--decision-log", options.decision_log,
              "Record every input of the engine and what it decided, for replay")
      .value_name("FILE");
  line.flag("--foreground", foreground, "Stay in the foreground: the default, and all it does");
  line.flag("--verbose", options.verbose, "Log clients and decisions about them too");
  line.version("lulld " LULL_VERSION);
  if (const auto stop = line.parse({argv + 1, argv + argc})) {
    if (!stop->wrong) {
      fmt::print("{}", stop->text);
      return ExitCode{0};
    }
    fmt::print(stderr, "lulld: cannot start: {}: see lulld --help\n", stop->text);
    return ExitCode{2};
  }
  options.simulated = static_cast<bool>(sim);
  if (options.simulated && (options.sim_device.empty() || options.sim_device == "true")) {
    options.sim_device = default_sim_device();
  }
  return options;
}

}  // namespace lull::daemon
