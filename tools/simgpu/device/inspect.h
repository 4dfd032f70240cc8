// What tools ask about a simulated device from outside: make one, and read who used it how much.
// Called by `lull compare`, `lull run --sim` and tests; does not make the caller a client.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "tools/simgpu/device/device.h"

namespace simgpu {

struct ProcessUsage {
  int32_t pid = 0;
  bool alive = false;
  // Time its kernels (with device-to-device copies and memsets) occupied the device: the union of
  // the intervals in which at least one of them was running; a preempted kernel does not run.
  uint64_t busy_ns = 0;
  uint64_t launches = 0;      // kernels submitted
  uint64_t memory_bytes = 0;  // held now; 0 when not alive
};

struct DeviceUsage {
  uint64_t busy_ns = 0;                 // at least one kernel of anybody running
  uint64_t switch_ns = 0;               // time_slice: spent on changing contexts
  std::vector<ProcessUsage> processes;  // alive, then the last 64 that are gone, newest first
};

struct Usage {
  ModelNs model_now_ns = 0;
  Sharing sharing = Sharing::kTimeSlice;
  double slow_motion = 1.0;
  std::vector<DeviceUsage> devices;
};

// Creates the device's file; an existing one is replaced only if `replace` is set (processes that
// have the old one open keep it).
std::expected<void, std::string> create_device(const std::string& path,
                                               const SimParameters& parameters,
                                               bool replace = false);
std::expected<Usage, std::string> read_usage(const std::string& path);

}  // namespace simgpu
