// How long work takes on a simulated GPU when it has the device to itself, and how much of the
// device it can fill. Pure. Called by the driver stand-in before it submits work.
//
// A kernel costs, by the first of these that applies:
//   1. the first rule of the profile's "costs" whose glob matches its name;
//   2. the value of its argument `spin_ns` or `*_spin_ns`, where it has one;
//   3. max(min_kernel_ns, waves * wave_ns), waves = ceil(blocks / (blocks per SM * SMs)).
// It can fill ceil(blocks / blocks per SM) SMs, at most all: capacity, not placement.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tools/simgpu/device/profile.h"

namespace simgpu {

struct KernelLaunch {
  std::string_view name;  // as in the module's image
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;  // static and dynamic
  uint32_t registers_per_thread = 32;
  std::optional<uint64_t> spin_ns;  // the argument named `spin_ns` or `*_spin_ns`, if any
};

struct KernelCost {
  uint64_t duration_ns = 0;
  uint32_t sm_demand = 1;
};

// True for the argument names whose value is a kernel's length.
bool is_spin_parameter(std::string_view parameter_name);

bool glob_matches(std::string_view glob, std::string_view text);

// Blocks of this shape that fit on one SM at a time; 0 when even one does not.
uint32_t blocks_per_sm(const DeviceProfile& profile, uint32_t threads_per_block,
                       uint32_t shared_bytes, uint32_t registers_per_thread);

KernelCost kernel_cost(const DeviceProfile& profile, const KernelLaunch& launch);

enum class CopyDirection { kHostToDevice, kDeviceToHost, kDeviceToDevice, kMemset };
uint64_t copy_ns(const DeviceProfile& profile, CopyDirection direction, uint64_t bytes,
                 bool pageable);
// SMs a device-to-device copy or a memset can fill: one for each 64 KiB.
uint32_t copy_sm_demand(const DeviceProfile& profile, uint64_t bytes);

// Host time of a call about `bytes` of memory: a fixed part and one for each GiB.
uint64_t memory_call_ns(uint64_t fixed_ns, uint64_t ns_per_gib, uint64_t bytes);
// A fixed part and what moving `bytes` takes.
uint64_t moving_ns(uint64_t fixed_ns, double gb_per_s, uint64_t bytes);
// Pinning host memory of which `populated_bytes` are there already, on huge pages or not.
uint64_t pinning_ns(const DeviceProfile& profile, uint64_t bytes, uint64_t populated_bytes,
                    bool huge_pages);

}  // namespace simgpu
