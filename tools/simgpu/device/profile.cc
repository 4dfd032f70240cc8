#include "tools/simgpu/device/profile.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <variant>
#include <vector>

namespace simgpu {
namespace {

using nlohmann::json;

using Field =
    std::variant<uint32_t DeviceProfile::*, uint64_t DeviceProfile::*, double DeviceProfile::*>;
struct Key {
  const char* name;
  Field field;
  double least;
  double most;
};

constexpr double kAny = 9e15;  // exact in a double
// Every number of a profile, once: parsing, checking and messages go by this list.
const Key kKeys[] = {
    {"compute_major", &DeviceProfile::compute_major, 1, 99},
    {"compute_minor", &DeviceProfile::compute_minor, 0, 9},
    {"sm_count", &DeviceProfile::sm_count, 1, 1024},
    {"threads_per_sm", &DeviceProfile::threads_per_sm, 32, 4096},
    {"blocks_per_sm", &DeviceProfile::blocks_per_sm, 1, 64},
    {"registers_per_sm", &DeviceProfile::registers_per_sm, 256, 1 << 20},
    {"shared_bytes_per_sm", &DeviceProfile::shared_bytes_per_sm, 1024, 1 << 24},
    {"shared_bytes_per_block", &DeviceProfile::shared_bytes_per_block, 1024, 1 << 24},
    {"shared_bytes_per_block_optin", &DeviceProfile::shared_bytes_per_block_optin, 1024, 1 << 24},
    {"clock_khz", &DeviceProfile::clock_khz, 1, 1e8},
    {"memory_clock_khz", &DeviceProfile::memory_clock_khz, 1, 1e8},
    {"memory_bus_bits", &DeviceProfile::memory_bus_bits, 1, 1 << 20},
    {"l2_bytes", &DeviceProfile::l2_bytes, 0, kAny},
    {"memory_bytes", &DeviceProfile::memory_bytes, 1 << 20, kAny},
    {"slice_ns", &DeviceProfile::slice_ns, 1000, kAny},
    {"switch_ns", &DeviceProfile::switch_ns, 0, kAny},
    {"control_latency_ns", &DeviceProfile::control_latency_ns, 0, kAny},
    {"launch_ns", &DeviceProfile::launch_ns, 0, kAny},
    {"marker_ns", &DeviceProfile::marker_ns, 0, kAny},
    {"marker_host_ns", &DeviceProfile::marker_host_ns, 0, kAny},
    {"min_kernel_ns", &DeviceProfile::min_kernel_ns, 1, kAny},
    {"wave_ns", &DeviceProfile::wave_ns, 1, kAny},
    {"copy_latency_ns", &DeviceProfile::copy_latency_ns, 0, kAny},
    {"h2d_gb_per_s", &DeviceProfile::h2d_gb_per_s, 1e-3, 1e6},
    {"d2h_gb_per_s", &DeviceProfile::d2h_gb_per_s, 1e-3, 1e6},
    {"d2d_gb_per_s", &DeviceProfile::d2d_gb_per_s, 1e-3, 1e6},
    {"memset_gb_per_s", &DeviceProfile::memset_gb_per_s, 1e-3, 1e6},
    {"pageable_factor", &DeviceProfile::pageable_factor, 1e-3, 1},
    {"vmm_reserve_ns", &DeviceProfile::vmm_reserve_ns, 0, kAny},
    {"vmm_create_ns", &DeviceProfile::vmm_create_ns, 0, kAny},
    {"vmm_create_ns_per_gib", &DeviceProfile::vmm_create_ns_per_gib, 0, kAny},
    {"vmm_map_ns", &DeviceProfile::vmm_map_ns, 0, kAny},
    {"vmm_map_ns_per_gib", &DeviceProfile::vmm_map_ns_per_gib, 0, kAny},
    {"vmm_access_ns", &DeviceProfile::vmm_access_ns, 0, kAny},
    {"vmm_access_ns_per_gib", &DeviceProfile::vmm_access_ns_per_gib, 0, kAny},
    {"vmm_unmap_ns", &DeviceProfile::vmm_unmap_ns, 0, kAny},
    {"vmm_unmap_ns_per_gib", &DeviceProfile::vmm_unmap_ns_per_gib, 0, kAny},
    {"vmm_release_ns", &DeviceProfile::vmm_release_ns, 0, kAny},
    {"vmm_release_ns_per_gib", &DeviceProfile::vmm_release_ns_per_gib, 0, kAny},
    {"register_gb_per_s", &DeviceProfile::register_gb_per_s, 1e-3, 1e6},
    {"register_huge_gb_per_s", &DeviceProfile::register_huge_gb_per_s, 1e-3, 1e6},
    {"unregister_gb_per_s", &DeviceProfile::unregister_gb_per_s, 1e-3, 1e6},
    {"populate_gb_per_s", &DeviceProfile::populate_gb_per_s, 1e-3, 1e6},
    {"populate_huge_gb_per_s", &DeviceProfile::populate_huge_gb_per_s, 1e-3, 1e6},
    {"checkpoint_lock_ns", &DeviceProfile::checkpoint_lock_ns, 0, kAny},
    {"checkpoint_unlock_ns", &DeviceProfile::checkpoint_unlock_ns, 0, kAny},
    {"checkpoint_out_ns", &DeviceProfile::checkpoint_out_ns, 0, kAny},
    {"checkpoint_out_gb_per_s", &DeviceProfile::checkpoint_out_gb_per_s, 1e-3, 1e6},
    {"checkpoint_back_ns", &DeviceProfile::checkpoint_back_ns, 0, kAny},
    {"checkpoint_back_gb_per_s", &DeviceProfile::checkpoint_back_gb_per_s, 1e-3, 1e6},
};

const Key* find_key(std::string_view name) {
  for (const Key& key : kKeys) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

// Throws its message; `parse_profile` is where it ends.
struct Wrong {
  std::string what;
};

double number(const json& value, const std::string& where, double least, double most, bool whole) {
  if (!value.is_number()) {
    throw Wrong{fmt::format("\"{}\" is {}: a number is needed", where, value.dump())};
  }
  const auto found = value.get<double>();
  if (whole && !value.is_number_integer()) {
    throw Wrong{fmt::format("\"{}\" is {}: a whole number is needed", where, value.dump())};
  }
  if (found < least || found > most) {
    throw Wrong{fmt::format("\"{}\" is {}: from {} to {} would be right", where, value.dump(),
                            least, most)};
  }
  return found;
}

void copy_text(const json& value, const std::string& where, char* to, size_t size) {
  if (!value.is_string() || value.get<std::string>().empty()) {
    throw Wrong{fmt::format("\"{}\" is {}: a text is needed", where, value.dump())};
  }
  const auto text = value.get<std::string>();
  if (text.size() >= size) {
    throw Wrong{fmt::format("\"{}\" is too long: at most {} characters", where, size - 1)};
  }
  std::memset(to, 0, size);
  std::memcpy(to, text.data(), text.size());
}

CostRule parse_rule(const json& row, const std::string& where) {
  if (!row.is_object()) throw Wrong{fmt::format("\"{}\": an object is needed", where)};
  CostRule rule{};
  std::string kind;
  bool named = false;
  for (const auto& [key, value] : row.items()) {
    const std::string at = where + "." + key;
    if (key == "kernel") {
      copy_text(value, at, rule.kernel_glob, sizeof rule.kernel_glob);
      named = true;
    } else if (key == "sm_demand") {
      rule.sm_demand = static_cast<uint32_t>(number(value, at, 1, 1024, true));
    } else if (key == "ns" || key == "wave_ns" || key == "spin") {
      if (!kind.empty())
        throw Wrong{fmt::format("\"{}\": \"{}\" or \"{}\", not both", where, kind, key)};
      kind = key;
      if (key == "spin") {
        if (value != true) throw Wrong{fmt::format("\"{}\": only true is possible", at)};
        rule.kind = CostRuleKind::kSpin;
      } else {
        rule.kind = key == "ns" ? CostRuleKind::kFixed : CostRuleKind::kWave;
        rule.ns = static_cast<uint64_t>(number(value, at, 1, kAny, true));
      }
    } else if (key != "comment") {
      throw Wrong{fmt::format(
          "\"{}\" is not known: a cost rule has kernel, one of ns, wave_ns and spin, and perhaps "
          "sm_demand and comment",
          at)};
    }
  }
  if (!named) throw Wrong{fmt::format("\"{}.kernel\" is missing: a name, * and ? allowed", where)};
  if (kind.empty())
    throw Wrong{fmt::format("\"{}\": one of ns, wave_ns and spin is missing", where)};
  return rule;
}

void parse_costs(const json& rows, DeviceProfile& profile) {
  if (!rows.is_array()) throw Wrong{"\"costs\": a list is needed"};
  if (rows.size() > kMaxCostRules) {
    throw Wrong{fmt::format("\"costs\" has {} rules: at most {}", rows.size(), kMaxCostRules)};
  }
  profile.rule_count = 0;
  for (const json& row : rows) {
    profile.rule[profile.rule_count] =
        parse_rule(row, fmt::format("costs[{}]", profile.rule_count));
    ++profile.rule_count;
  }
}

void parse_assumptions(const json& notes) {
  if (!notes.is_object()) throw Wrong{"\"assumptions\": an object from key to text is needed"};
  for (const auto& [key, value] : notes.items()) {
    if (find_key(key) == nullptr || !value.is_string()) {
      throw Wrong{
          fmt::format("\"assumptions.{}\": a key of the profile and a text are needed", key)};
    }
  }
}

}  // namespace

DeviceProfile built_in_profile() {
  DeviceProfile p{};
  std::strcpy(p.name, "simulated H100");
  p.compute_major = 9;
  p.compute_minor = 0;
  p.sm_count = 132;
  p.threads_per_sm = 2048;
  p.blocks_per_sm = 32;
  p.registers_per_sm = 65536;
  p.shared_bytes_per_sm = 233472;
  p.shared_bytes_per_block = 49152;
  p.shared_bytes_per_block_optin = 232448;
  p.clock_khz = 1980000;
  p.memory_clock_khz = 2619000;
  p.memory_bus_bits = 5120;
  p.l2_bytes = 52428800;
  p.memory_bytes = 85017493504;
  p.slice_ns = 2090624;
  p.switch_ns = 151904;
  p.control_latency_ns = 10000;
  p.launch_ns = 3680;
  p.marker_ns = 2079;
  p.marker_host_ns = 758;
  p.min_kernel_ns = 3776;
  p.wave_ns = 5000;
  p.copy_latency_ns = 2720;
  p.h2d_gb_per_s = 54.914;
  p.d2h_gb_per_s = 55.187;
  p.d2d_gb_per_s = 1498.099;
  p.memset_gb_per_s = 3214.95;
  p.pageable_factor = 0.214;
  p.vmm_reserve_ns = 5610;
  p.vmm_create_ns = 12481;
  p.vmm_create_ns_per_gib = 24570;
  p.vmm_map_ns = 875;
  p.vmm_map_ns_per_gib = 2645;
  p.vmm_access_ns = 25467;
  p.vmm_access_ns_per_gib = 76251;
  p.vmm_unmap_ns = 17590;
  p.vmm_unmap_ns_per_gib = 42084;
  p.vmm_release_ns = 11761;
  p.vmm_release_ns_per_gib = 493518;
  p.register_gb_per_s = 23.431;
  p.register_huge_gb_per_s = 44.598;
  p.unregister_gb_per_s = 58.679;
  p.populate_gb_per_s = 1.724;
  p.populate_huge_gb_per_s = 5.394;
  p.checkpoint_lock_ns = 396223;
  p.checkpoint_unlock_ns = 1279900;
  p.checkpoint_out_ns = 326715381;
  p.checkpoint_out_gb_per_s = 2.026;
  p.checkpoint_back_ns = 262890987;
  p.checkpoint_back_gb_per_s = 6.763;
  return p;
}

std::expected<DeviceProfile, std::string> parse_profile(std::string_view text,
                                                        std::string_view source) {
  DeviceProfile profile = built_in_profile();
  const auto wrong = [&](const std::string& what) {
    return std::unexpected(fmt::format("lull: cannot use the device profile {}: {}", source, what));
  };
  try {
    const json root = json::parse(text);
    if (!root.is_object()) throw Wrong{"an object is needed: see tools/simgpu/profiles/h100.json"};
    for (const auto& [key, value] : root.items()) {
      if (key == "name") {
        copy_text(value, key, profile.name, sizeof profile.name);
      } else if (key == "costs") {
        parse_costs(value, profile);
      } else if (key == "assumptions") {
        parse_assumptions(value);
      } else if (const Key* known = find_key(key)) {
        std::visit(
            [&](auto field) {
              using T = std::remove_reference_t<decltype(profile.*field)>;
              profile.*field = static_cast<T>(
                  number(value, key, known->least, known->most, std::is_integral_v<T>));
            },
            known->field);
      } else if (key == "measured") {
        if (!value.is_object()) throw Wrong{"\"measured\": an object is needed"};
      } else if (key != "comment") {
        std::string keys = "name, costs, assumptions, measured, comment";
        for (const Key& each : kKeys) keys += fmt::format(", {}", each.name);
        throw Wrong{fmt::format("\"{}\" is not known: the keys are {}", key, keys)};
      }
    }
    if (!root.contains("name")) throw Wrong{"\"name\" is missing: the name the device shows"};
  } catch (const Wrong& error) {
    return wrong(error.what);
  } catch (const json::parse_error& error) {
    return wrong(fmt::format("not JSON at byte {}: correct the file", error.byte));
  }
  return profile;
}

std::expected<DeviceProfile, std::string> read_profile_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    return std::unexpected(
        fmt::format("lull: cannot read the device profile {}: {}: name a file such as "
                    "tools/simgpu/profiles/h100.json",
                    path, std::strerror(errno)));
  }
  return parse_profile(text.str(), path);
}

}  // namespace simgpu
