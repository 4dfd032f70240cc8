#include "tools/simgpu/device/inspect.h"

#include <unistd.h>
#include <algorithm>

#include <fmt/format.h>

#include "tools/simgpu/device/shared_device.h"

namespace simgpu {

std::expected<void, std::string> create_device(const std::string& path,
                                               const SimParameters& parameters, bool replace) {
  if (!replace && access(path.c_str(), F_OK) == 0) {
    return std::unexpected(fmt::format(
        "lull: cannot create the simulated device {}: it is there already: remove it", path));
  }
  auto device = SharedDevice::open_or_create(path, parameters, replace);
  if (!device) return std::unexpected(device.error());
  return {};
}

std::expected<Usage, std::string> read_usage(const std::string& path) {
  auto device = SharedDevice::open_existing(path);
  if (!device) return std::unexpected(device.error());
  Session session(**device);
  // Up to now, also where nothing happened.
  session.model();
  session.commit();
  const DeviceModel& model = session.seen();
  const model_state& state = model.state();
  Usage usage;
  usage.model_now_ns = session.now_ns();
  usage.sharing = static_cast<Sharing>((*device)->prefix().sharing);
  usage.slow_motion = (*device)->prefix().slow_motion;
  for (uint32_t d = 0; d < (*device)->prefix().device_count; ++d) {
    DeviceUsage& row = usage.devices.emplace_back();
    row.busy_ns = model.device_busy_ns(d);
    row.switch_ns = state.device[d].switched_ns;
    for (uint32_t p = 0; p < kMaxProcesses; ++p) {
      const process_state& process = state.process[p];
      if (process.used == 0) continue;
      ProcessUsage entry{process.pid, true, process.busy_ns[d], process.launches[d], 0};
      if (process.away == 0) entry.memory_bytes = process.held_bytes[d];
      for (const shared_block& block : state.block) {
        if (block.device == d && block.holders & 1U << p) entry.memory_bytes += block.bytes;
      }
      bool here = entry.launches > 0 || entry.busy_ns > 0 || entry.memory_bytes > 0;
      for (uint32_t c = 0; c < kMaxContexts; ++c) {
        const context_state& context = state.context[c];
        if (context.used == 0 || context.process != p || context.device != d) continue;
        here = true;
        entry.busy_ns += model.busy_ns(c);
        entry.launches += context.launches;
        if (process.away == 0) entry.memory_bytes += context.memory_bytes;
      }
      if (here) row.processes.push_back(entry);
    }
    const uint64_t finished = state.head.finished_count;
    for (uint64_t i = 0; i < std::min<uint64_t>(finished, kFinishedRecords); ++i) {
      const finished_record& gone = state.finished[(finished - 1 - i) % kFinishedRecords];
      if (gone.device != d) continue;
      row.processes.push_back({gone.pid, false, gone.busy_ns, gone.launches, 0});
    }
  }
  return usage;
}

}  // namespace simgpu
