// CUDA_VISIBLE_DEVICES of a program that may be migrated: every GPU of the machine, its own first.
// The driver moves a process only between GPUs that the process sees; the library shows the program
// its own alone (LULL_VISIBLE_DEVICES). Called by `lull run --migratable`, once, before the program
// starts.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

namespace lull::command {

struct Gpu {
  std::string uuid;  // "GPU-..."
  std::string name;
};
struct VisibleDevices {
  std::string list;  // UUIDs, by commas
  uint32_t own = 0;  // so many of them, from the first on, are the program's
};

// `wanted`: CUDA_VISIBLE_DEVICES as it is set now, indices or (beginnings of) UUIDs; nothing: not
// set, all are its own. `machine`: in the driver's order, which is the order of indices where all
// GPUs are of one kind; they have to be. An error is half a line: why it cannot be.
std::expected<VisibleDevices, std::string> all_devices(const std::optional<std::string>& wanted,
                                                       const std::vector<Gpu>& machine);

// NVML's; where it knows none, those of the lulld at that socket. Empty: neither says anything.
std::vector<Gpu> machine_gpus(const std::string& socket);
// Those of the simulated device that this environment asks for, made now where it is not there. An
// error is one line.
std::expected<std::vector<Gpu>, std::string> simulated_gpus();

}  // namespace lull::command
