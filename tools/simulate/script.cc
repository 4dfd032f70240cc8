#include "tools/simulate/script.h"

#include <algorithm>
#include <map>
#include <string>

#include "coordinator/channel/gate.h"
#include "coordinator/channel/identity.h"
#include "tools/simgpu/device/cost_model.h"

namespace lull::simulate {
namespace {

// As in the shim: copies beyond this are units, and cost this much before they are known.
constexpr uint64_t kLargeCopyBytes = 64 * 1024;
constexpr uint64_t kCopyBytesPerUs = 20'000;
constexpr uint64_t kMostCopyBytes = 256ULL << 20;  // as the player

// As the shim's, of a function or kind of copy. The workload stands for the image it comes from.
KernelId id_of(const std::string& workload, const play::Kernel& kernel) {
  const uint32_t grid[] = {kernel.grid.x, kernel.grid.y, kernel.grid.z};
  const uint32_t block[] = {kernel.block.x, kernel.block.y, kernel.block.z};
  const uint64_t image = channel::hash_bytes(workload.data(), workload.size());
  return {channel::kernel_id(kernel.name.c_str(), image, grid, block, kernel.shared_bytes)};
}

// As the player: one buffer for the largest copy, a second half for copies on the device, and a word
// for each stream.
uint64_t memory_of(const play::Workload& workload) {
  uint64_t device = 1, on_device = 0;
  for (const play::Op& op : workload.ops) {
    const uint64_t bytes = std::min(op.bytes, kMostCopyBytes);
    if (op.is_copy() || op.kind == play::OpKind::Memset) device = std::max(device, bytes);
    if (op.kind == play::OpKind::CopyOnDevice) on_device = std::max(on_device, bytes);
  }
  const uint64_t half = (std::max(device, on_device) + 255) / 256 * 256;
  return half + std::max<uint64_t>(on_device, 1) + workload.streams * sizeof(uint64_t);
}

}  // namespace

Script make_script(const play::Workload& workload, const simgpu::DeviceProfile& profile) {
  Script script;
  script.name = workload.name;
  script.streams = workload.streams;
  script.events = workload.events;
  script.pause_after_ns = workload.pause_after_ns;
  script.marker_ns = profile.marker_ns;
  script.marker_host_ns = profile.marker_host_ns;
  std::vector<uint32_t> demand;
  std::map<KernelId, uint32_t> by_id;
  const auto unit_of = [&](const play::Kernel& kernel, uint32_t default_ns) {
    const KernelId id = id_of(workload.name, kernel);
    const auto [found, added] = by_id.emplace(id, script.units.size());
    if (added) script.units.push_back({id, default_ns});
    return found->second;
  };
  std::vector<uint32_t> unit_of_kernel;
  for (const play::Kernel& kernel : workload.kernels) {
    unit_of_kernel.push_back(unit_of(kernel, channel::kUnknownLength));
    simgpu::KernelLaunch launch;
    launch.name = kernel.name;
    launch.grid[0] = kernel.grid.x, launch.grid[1] = kernel.grid.y, launch.grid[2] = kernel.grid.z;
    launch.block[0] = kernel.block.x, launch.block[1] = kernel.block.y;
    launch.block[2] = kernel.block.z;
    launch.shared_bytes = kernel.shared_bytes;
    demand.push_back(simgpu::kernel_cost(profile, launch).sm_demand);
  }
  script.memory_bytes = memory_of(workload);
  for (const play::Op& op : workload.ops) {
    Call call;
    call.stream = op.stream;
    call.event = op.event;
    call.pause_ns = op.pause_ns;
    call.call_ns = op.call_ns;
    const uint64_t bytes = std::min(op.bytes, kMostCopyBytes);
    const auto copy = [&](simgpu::OpKind kind, simgpu::CopyDirection direction, const char* name) {
      call.op = kind;
      call.work_ns = simgpu::copy_ns(profile, direction, bytes, op.pageable);
      call.sm_demand = simgpu::copy_sm_demand(profile, bytes);
      const bool back = kind == simgpu::OpKind::kCopyD2H;
      call.waits = op.pageable && (back || bytes > kLargeCopyBytes);
      call.care = bytes <= kLargeCopyBytes ? Care::kQuiet : back ? Care::kUngated : Care::kUnit;
      if (call.care != Care::kQuiet) {
        const uint64_t guess = bytes * 1000 / kCopyBytesPerUs;
        const play::Kernel copied{name, {static_cast<uint32_t>(bytes)}, {}};
        call.unit = unit_of(copied, static_cast<uint32_t>(std::min<uint64_t>(guess, UINT32_MAX)));
      }
    };
    switch (op.kind) {
      case play::OpKind::Launch:
        call.op = simgpu::OpKind::kKernel;
        call.work_ns = call.kernel_ns = std::max<uint64_t>(1, op.duration_ns);
        call.sm_demand = demand[op.kernel];
        call.unit = unit_of_kernel[op.kernel];
        script.kernel_ns += op.duration_ns;
        script.launches += 1;
        break;
      case play::OpKind::CopyToDevice:
        copy(simgpu::OpKind::kCopyH2D, simgpu::CopyDirection::kHostToDevice, "copy h2d");
        break;
      case play::OpKind::CopyToHost:
        copy(simgpu::OpKind::kCopyD2H, simgpu::CopyDirection::kDeviceToHost, "copy d2h");
        break;
      case play::OpKind::CopyOnDevice:
        copy(simgpu::OpKind::kCopyD2D, simgpu::CopyDirection::kDeviceToDevice, "copy d2d");
        break;
      case play::OpKind::Memset:
        copy(simgpu::OpKind::kMemset, simgpu::CopyDirection::kMemset, "memset");
        break;
      case play::OpKind::StreamSync:
        call.kind = CallKind::kSyncStream;
        break;
      case play::OpKind::DeviceSync:
        call.kind = CallKind::kSyncDevice;
        break;
      case play::OpKind::EventRecord:
        call.kind = CallKind::kRecordEvent;
        break;
      case play::OpKind::EventWait:
        call.kind = CallKind::kWaitEvent;
        break;
    }
    script.calls.push_back(call);
  }
  return script;
}

}  // namespace lull::simulate
