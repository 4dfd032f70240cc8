#include "coordinator/daemon/options.h"

#include <fmt/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "policies/launch/registry.h"

namespace lull::daemon {

std::string default_sim_device() {
  const char* named = ::getenv("SIMGPU_DEVICE");
  if (named != nullptr && named[0] != '\0') return named;
  return fmt::format("/dev/shm/simgpu-{}", ::getuid());
}

std::variant<Options, ExitCode> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app{
      "lulld: the coordinator of lull. One runs on each node; programs started with "
      "`lull run` attach to it.\nSIGHUP reads the configuration again, SIGTERM opens every "
      "gate and ends.",
      "lulld"};
  bool foreground = false;
  app.add_option("--socket", options.socket,
                 "Socket to listen on (default: $LULL_SOCKET, /run/lull/lulld.sock for root, "
                 "$XDG_RUNTIME_DIR/lull/lulld.sock, /tmp/lull-<uid>/lulld.sock)")
      ->type_name("PATH");
  app.add_option("--config", options.config, "Configuration, JSON (see lulld.json as shipped)")
      ->type_name("FILE");
  app.add_option("--policy", options.policy,
                 fmt::format("Launch policy with its options, e.g. \"priority in_flight_us=50\" "
                             "(default: the configuration's, else {})",
                             policies::kDefaultPolicy))
      ->type_name("TEXT");
  app.add_option("--timing", options.timing,
                 "What is timed of clients that do not ask for more or less: off, sampled, full "
                 "(default: the configuration's, else sampled)")
      ->type_name("WORD")
      ->check(CLI::IsMember({"off", "sampled", "full"}));
  CLI::Option* sim =
      app.add_option("--sim", options.sim_device,
                     "Coordinate simulated GPUs: times come from this simulated device (default: "
                     "$SIMGPU_DEVICE, else /dev/shm/simgpu-<uid>)")
          ->type_name("[DEVICE_FILE]")
          ->expected(0, 1);
  app.add_option("--pid-file", options.pid_file, "Write the process id here while running")
      ->type_name("FILE");
  app.add_option("--trace", options.trace,
                 "Record every launch of every client into this file (lull trace show reads it)")
      ->type_name("FILE");
  app.add_option("--decision-log", options.decision_log,
                 "Record every input of the engine and what it decided, for replay")
      ->type_name("FILE");
  app.add_flag("--foreground", foreground, "Stay in the foreground: the default, and all it does");
  app.add_flag("--verbose", options.verbose, "Log clients and decisions about them too");
  app.set_version_flag("--version", "lulld " LULL_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return ExitCode{app.exit(done)};
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "lulld: cannot start: {}: see lulld --help\n", error.what());
    return ExitCode{2};
  }
  options.simulated = sim->count() > 0;
  if (options.simulated && (options.sim_device.empty() || options.sim_device == "true")) {
    options.sim_device = default_sim_device();
  }
  return options;
}

}  // namespace lull::daemon
