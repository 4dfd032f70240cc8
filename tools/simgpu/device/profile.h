// What a simulated GPU is made of: sizes, speeds and cost rules, as plain data that lives in the
// device's shared file. Parsed once, by whoever creates the device, from a JSON profile
// (tools/simgpu/profiles); after that everybody reads the copy in the file. Pure but for
// `read_profile_file`.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace simgpu {

inline constexpr uint32_t kMaxCostRules = 64;

enum class CostRuleKind : uint32_t {
  kFixed = 0,  // every launch costs `ns`
  kWave = 1,   // every wave of blocks costs `ns`
  kSpin = 2,   // the launch's `spin_ns` argument (without one: the default rule)
};

// One row of a profile's "costs"; the first whose `kernel_glob` matches the kernel's name wins.
struct CostRule {
  char kernel_glob[120];  // * and ?, the rest literally
  CostRuleKind kind;
  uint32_t sm_demand;  // SMs the kernel can fill; 0: by grid and occupancy
  uint64_t ns;
};

struct DeviceProfile {
  char name[96];  // as cuDeviceGetName gives it
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t sm_count;
  uint32_t threads_per_sm;
  uint32_t blocks_per_sm;
  uint32_t registers_per_sm;
  uint32_t shared_bytes_per_sm;
  uint32_t shared_bytes_per_block;  // without opting in
  uint32_t shared_bytes_per_block_optin;
  uint32_t clock_khz;
  uint32_t memory_clock_khz;
  uint32_t memory_bus_bits;
  uint64_t l2_bytes;
  uint64_t memory_bytes;

  uint64_t slice_ns;            // time_slice: how long a context runs while another waits
  uint64_t switch_ns;           // time_slice: changing the running context
  uint64_t control_latency_ns;  // model time a daemon's decision takes to reach a gate
  uint64_t launch_ns;      // host time of one launch call, for an API layer that wants to spend it
  uint64_t marker_ns;       // what a value that the device writes behind a launch takes of it; only
  uint64_t marker_host_ns;  // the simulator knows it, and what the call takes of the host
  uint64_t min_kernel_ns;  // default cost rule: no kernel is shorter
  uint64_t wave_ns;        // default cost rule: one wave of blocks
  uint64_t copy_latency_ns;  // fixed part of every copy and memset
  double h2d_gb_per_s;       // 1e9 bytes per second
  double d2h_gb_per_s;
  double d2d_gb_per_s;
  double memset_gb_per_s;
  double pageable_factor;  // 0 < f <= 1: pageable host memory gets this share of the speed

  // Host time of calls that manage memory: a fixed part and one for each GiB.
  uint64_t vmm_reserve_ns;
  uint64_t vmm_create_ns;
  uint64_t vmm_create_ns_per_gib;
  uint64_t vmm_map_ns;
  uint64_t vmm_map_ns_per_gib;
  uint64_t vmm_access_ns;
  uint64_t vmm_access_ns_per_gib;
  uint64_t vmm_unmap_ns;
  uint64_t vmm_unmap_ns_per_gib;
  uint64_t vmm_release_ns;
  uint64_t vmm_release_ns_per_gib;
  // Host memory that the driver pins: by 4 KiB pages, by huge ones, and what is not there yet.
  double register_gb_per_s;
  double register_huge_gb_per_s;
  double unregister_gb_per_s;
  double populate_gb_per_s;
  double populate_huge_gb_per_s;
  // The checkpoint of a process.
  uint64_t checkpoint_lock_ns;
  uint64_t checkpoint_unlock_ns;
  uint64_t checkpoint_out_ns;  // fixed part
  double checkpoint_out_gb_per_s;
  uint64_t checkpoint_back_ns;
  double checkpoint_back_gb_per_s;

  uint32_t rule_count;
  CostRule rule[kMaxCostRules];
};

// The H100-like profile that is compiled in; the same as profiles/h100.json.
DeviceProfile built_in_profile();

// Parses a profile. An error is one line: `source`, the key, and what would be right.
std::expected<DeviceProfile, std::string> parse_profile(std::string_view json,
                                                        std::string_view source);
std::expected<DeviceProfile, std::string> read_profile_file(const std::string& path);

}  // namespace simgpu
