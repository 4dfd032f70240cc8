#include "tools/simgpu/device/cost_model.h"

#include <algorithm>

namespace simgpu {

bool is_spin_parameter(std::string_view name) {
  return name == "spin_ns" || name.ends_with("_spin_ns");
}

bool glob_matches(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0;
  size_t star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      after_star = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

uint32_t blocks_per_sm(const DeviceProfile& profile, uint32_t threads_per_block,
                       uint32_t shared_bytes, uint32_t registers_per_thread) {
  // Threads are placed by whole warps, registers by 256 of them a warp.
  const uint32_t warps = std::max(1U, (threads_per_block + 31) / 32);
  const uint32_t registers = warps * ((std::max(1U, registers_per_thread) * 32 + 255) / 256 * 256);
  uint32_t blocks = std::min(profile.blocks_per_sm, profile.threads_per_sm / (warps * 32));
  blocks = std::min(blocks, profile.registers_per_sm / registers);
  if (shared_bytes > 0) blocks = std::min(blocks, profile.shared_bytes_per_sm / shared_bytes);
  return blocks;
}

KernelCost kernel_cost(const DeviceProfile& profile, const KernelLaunch& launch) {
  const uint64_t blocks = uint64_t{std::max(1U, launch.grid[0])} * std::max(1U, launch.grid[1]) *
                          std::max(1U, launch.grid[2]);
  const uint32_t threads =
      std::max(1U, launch.block[0]) * std::max(1U, launch.block[1]) * std::max(1U, launch.block[2]);
  const uint64_t per_sm = std::max(
      1U, blocks_per_sm(profile, threads, launch.shared_bytes, launch.registers_per_thread));
  const uint64_t per_wave = per_sm * profile.sm_count;
  const uint64_t waves = (blocks + per_wave - 1) / per_wave;
  KernelCost cost;
  cost.sm_demand =
      static_cast<uint32_t>(std::min<uint64_t>(profile.sm_count, (blocks + per_sm - 1) / per_sm));
  cost.duration_ns = std::max(profile.min_kernel_ns, waves * profile.wave_ns);
  for (uint32_t i = 0; i < profile.rule_count; ++i) {
    const CostRule& rule = profile.rule[i];
    if (!glob_matches(rule.kernel_glob, launch.name)) continue;
    if (rule.sm_demand != 0) cost.sm_demand = std::min(rule.sm_demand, profile.sm_count);
    if (rule.kind == CostRuleKind::kFixed) cost.duration_ns = rule.ns;
    if (rule.kind == CostRuleKind::kWave) cost.duration_ns = waves * rule.ns;
    if (rule.kind == CostRuleKind::kSpin && launch.spin_ns) cost.duration_ns = *launch.spin_ns;
    return cost;
  }
  if (launch.spin_ns) cost.duration_ns = *launch.spin_ns;
  return cost;
}

uint64_t copy_ns(const DeviceProfile& profile, CopyDirection direction, uint64_t bytes,
                 bool pageable) {
  double gb_per_s = profile.memset_gb_per_s;
  if (direction == CopyDirection::kHostToDevice) gb_per_s = profile.h2d_gb_per_s;
  if (direction == CopyDirection::kDeviceToHost) gb_per_s = profile.d2h_gb_per_s;
  if (direction == CopyDirection::kDeviceToDevice) gb_per_s = profile.d2d_gb_per_s;
  if (pageable) gb_per_s *= profile.pageable_factor;
  return profile.copy_latency_ns + static_cast<uint64_t>(static_cast<double>(bytes) / gb_per_s);
}

uint32_t copy_sm_demand(const DeviceProfile& profile, uint64_t bytes) {
  return static_cast<uint32_t>(std::clamp<uint64_t>((bytes + 65535) / 65536, 1, profile.sm_count));
}

uint64_t memory_call_ns(uint64_t fixed_ns, uint64_t ns_per_gib, uint64_t bytes) {
  constexpr double kGib = 1 << 30;
  return fixed_ns + static_cast<uint64_t>(static_cast<double>(ns_per_gib) *
                                          (static_cast<double>(bytes) / kGib));
}

uint64_t moving_ns(uint64_t fixed_ns, double gb_per_s, uint64_t bytes) {
  return fixed_ns + static_cast<uint64_t>(static_cast<double>(bytes) / gb_per_s);
}

uint64_t pinning_ns(const DeviceProfile& profile, uint64_t bytes, uint64_t populated_bytes,
                    bool huge_pages) {
  const uint64_t absent = bytes - std::min(bytes, populated_bytes);
  return moving_ns(0, huge_pages ? profile.populate_huge_gb_per_s : profile.populate_gb_per_s,
                   absent) +
         moving_ns(0, huge_pages ? profile.register_huge_gb_per_s : profile.register_gb_per_s,
                   bytes);
}

}  // namespace simgpu
