#include "tools/lull/visible_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "coordinator/daemon/machine_devices.h"
#include "tools/lull/daemon_link.h"
#include "tools/simgpu/device/device.h"

namespace lull::command {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

std::expected<VisibleDevices, std::string> all_devices(const std::optional<std::string>& wanted,
                                                       const std::vector<Gpu>& machine) {
  if (machine.empty()) return std::unexpected("no GPU's UUID is known here (no NVML, no lulld)");
  if (std::ranges::any_of(machine, [](const Gpu& gpu) { return gpu.uuid.starts_with("MIG-"); })) {
    return std::unexpected(
        "the GPUs are in parts (MIG), which the driver does not move programs between");
  }
  const bool alike =
      std::ranges::all_of(machine, [&](const Gpu& g) { return g.name == machine[0].name; });
  if (!alike) return std::unexpected("the GPUs of this machine are not of one kind");
  std::vector<size_t> order;
  std::string_view rest = wanted.value_or("");
  // As the driver reads it: up to the first entry that names no GPU.
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(rest.size(), comma + 1));
    size_t index = machine.size();
    if (entry.starts_with("GPU-")) {
      index = static_cast<size_t>(
          std::ranges::find_if(machine,
                               [&](const Gpu& gpu) { return gpu.uuid.starts_with(entry); }) -
          machine.begin());
    } else if (entry.starts_with("MIG-")) {
      return std::unexpected("CUDA_VISIBLE_DEVICES names a part of a GPU (MIG)");
    } else {
      const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
      if (error != std::errc{} || end != entry.data() + entry.size()) index = machine.size();
    }
    if (index >= machine.size()) break;
    if (std::ranges::find(order, index) != order.end()) {
      return std::unexpected("CUDA_VISIBLE_DEVICES names a GPU twice");
    }
    order.push_back(index);
  }
  VisibleDevices visible;
  if (!wanted) {
    for (size_t n = 0; n < machine.size(); ++n) order.push_back(n);
  }
  if (order.empty()) return std::unexpected("CUDA_VISIBLE_DEVICES names no GPU of this machine");
  visible.own = static_cast<uint32_t>(order.size());
  for (size_t n = 0; n < machine.size(); ++n) {
    if (std::ranges::find(order, n) == order.end()) order.push_back(n);
  }
  for (const size_t n : order) visible.list += (visible.list.empty() ? "" : ",") + machine[n].uuid;
  return visible;
}

std::vector<Gpu> machine_gpus(const std::string& socket) {
  std::vector<Gpu> list;
  for (const daemon::KnownDevice& device : daemon::machine_devices({})) {
    list.push_back({daemon::uuid_text(device.uuid, device.instance), device.name});
  }
  if (!list.empty()) return list;
  const auto answer = ask_daemon(socket, {{"op", "status"}});
  if (!answer || answer->value("simulated", false)) return list;
  for (const nlohmann::json& device : answer->value("devices", nlohmann::json::array())) {
    if (device.is_object()) list.push_back({device.value("uuid", ""), device.value("name", "")});
  }
  return list;
}

std::expected<std::vector<Gpu>, std::string> simulated_gpus() {
  const auto device = simgpu::open_device_from_environment();
  if (!device) return std::unexpected(device.error());
  std::vector<Gpu> list;
  for (uint32_t index = 0; index < (*device)->device_count(); ++index) {
    daemon::DeviceUuid uuid;
    std::ranges::copy((*device)->uuid(index), uuid.begin());
    list.push_back({daemon::uuid_text(uuid), "simulated GPU"});
  }
  return list;
}

}  // namespace lull::command
