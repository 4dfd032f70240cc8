// The GPUs that this machine has, as its driver says. From NVML, opened for the moment, which knows
// parts of GPUs (MIG) and memory too; where it is not installed or not permitted, from the driver's
// files in /proc, which know neither. Nothing where there is no NVIDIA driver.
//
// It may take seconds, and on a machine whose driver hangs for ever: never on the loop thread.
#pragma once

#include <string>
#include <vector>

#include "coordinator/daemon/clock.h"
#include "coordinator/daemon/device_table.h"

namespace lull::daemon {

struct MachineSources {
  std::string nvml = "libnvidia-ml.so.1";         // as dlopen takes it
  std::string proc = "/proc/driver/nvidia/gpus";  // a folder a GPU, with a file `information`
};

// In the driver's order, each GPU before its instances; at most kMaxNodeDevices.
std::vector<KnownDevice> machine_devices(const MachineSources& sources);

// Those of the simulated device's file, once the clock is ready. At once, on any thread.
std::vector<KnownDevice> sim_devices(const Clock& clock);

}  // namespace lull::daemon
