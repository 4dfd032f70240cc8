#include "coordinator/daemon/options.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <vector>

namespace lull::daemon {
namespace {

std::variant<Options, ExitCode> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lulld");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("every option is understood") {
  const auto parsed =
      parse({"--socket", "/tmp/s", "--config", "c.json", "--policy", "share", "--sim", "/dev/shm/x",
             "--pid-file", "p", "--verbose", "--foreground"});
  const auto& options = std::get<Options>(parsed);
  CHECK(options.socket == "/tmp/s");
  CHECK(options.config == "c.json");
  CHECK(options.policy == "share");
  CHECK(options.simulated);
  CHECK(options.sim_device == "/dev/shm/x");
  CHECK(options.pid_file == "p");
  CHECK(options.verbose);
}

TEST_CASE("the option --sim without a file means the usual simulated device") {
  ::unsetenv("SIMGPU_DEVICE");
  const auto options = std::get<Options>(parse({"--sim", "--verbose"}));
  CHECK(options.simulated);
  CHECK(options.sim_device.starts_with("/dev/shm/simgpu-"));
  CHECK_FALSE(std::get<Options>(parse({})).simulated);
}

TEST_CASE("help and version end with 0, wrong usage with 2") {
  CHECK(std::get<ExitCode>(parse({"--help"})).value == 0);
  CHECK(std::get<ExitCode>(parse({"--version"})).value == 0);
  CHECK(std::get<ExitCode>(parse({"--bogus"})).value == 2);
  CHECK(std::get<ExitCode>(parse({"--socket"})).value == 2);
  CHECK(std::get<ExitCode>(parse({"stray"})).value == 2);
}

}  // namespace
}  // namespace lull::daemon
