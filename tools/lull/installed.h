// Where lull's own parts lie (relative to the running executable, so that a build tree and an
// installation look alike). Any thread; reads the environment and the file system, changes nothing.
#pragma once

#include <expected>
#include <string>

namespace lull::command {

struct Installed {
  std::string bin;         // folder of lull, lulld, lull-play
  std::string shim;        // .../lib/lull/liblull.so
  std::string sim_folder;  // .../lib/lull/sim
};
Installed installed();

// The shipped pair: what `lull simulate` shows when it is given nothing.
inline constexpr const char* kShippedHigh = "chatty_inference";
inline constexpr const char* kShippedLow = "training_step";

// $SIMGPU_DEVICE, else /dev/shm/simgpu-<uid>.
std::string default_sim_device();

// Looks `name` up as execvp does: as it is when it has a slash, else along `path` (the value of
// PATH). The error is an errno: ENOENT, or EACCES when the only matches cannot be executed.
std::expected<std::string, int> find_program(const std::string& name, const std::string& path);

}  // namespace lull::command
