// lulld's command line. Called once by `main`; prints help and version itself.
#pragma once

#include <optional>
#include <string>
#include <variant>

namespace lull::daemon {

struct Options {
  std::string socket;  // empty: the default place
  std::string config;  // empty: built-in configuration
  std::string policy;  // empty: the configuration's
  std::string timing;  // off, sampled, full; empty: the configuration's
  bool simulated = false;
  std::string sim_device;  // with `simulated`
  std::string pid_file;
  std::string trace;         // empty: none
  std::string decision_log;  // empty: none
  bool verbose = false;
};

struct ExitCode {
  int value = 0;
};

// Either what was asked for, or the exit code after --help (0), --version (0) or an error (2).
std::variant<Options, ExitCode> parse_options(int argc, const char* const* argv);

// $SIMGPU_DEVICE, else /dev/shm/simgpu-<uid>.
std::string default_sim_device();

}  // namespace lull::daemon
