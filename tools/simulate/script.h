// A workload made ready for the simulator: what each of its calls asks of host, shim and device.
// Made once for a workload and shared by every program that plays it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"
#include "tools/play/workload.h"
#include "tools/simgpu/device/device.h"
#include "tools/simgpu/device/profile.h"

namespace lull::simulate {

enum class CallKind : uint8_t {
  kWork,        // a kernel, copy or memset
  kRecordEvent,
  kWaitEvent,
  kSyncStream,
  kSyncDevice,
};

// What the shim makes of work, as in shim/hooks.
enum class Care : uint8_t {
  kUnit,     // identity, gate, record
  kUngated,  // identity and record, never held: a large read-back
  kQuiet,    // counted only: a small copy
};

struct Call {
  CallKind kind = CallKind::kWork;
  Care care = Care::kUnit;
  simgpu::OpKind op = simgpu::OpKind::kKernel;
  bool waits = false;  // the call returns when the work is done: a pageable read-back
  uint32_t stream = 0;
  uint32_t event = 0;
  uint32_t unit = 0;   // index in Script::units
  uint32_t sm_demand = 1;
  uint64_t pause_ns = 0;
  uint64_t call_ns = 0;
  uint64_t work_ns = 0;    // alone on the device
  uint64_t kernel_ns = 0;  // kernels: work_ns; else 0
};

struct UnitIdentity {
  KernelId id;
  uint32_t default_ns = 0;  // charged while the coordinator has not said what it costs
};

struct Script {
  std::string name;
  uint32_t streams = 1;
  uint32_t events = 0;
  uint64_t pause_after_ns = 0;
  std::vector<UnitIdentity> units;
  std::vector<Call> calls;  // of one iteration
  uint64_t kernel_ns = 0;   // of one iteration
  uint64_t launches = 0;
  uint64_t memory_bytes = 0;  // on the device, held from start to end: what the player allocates
  uint64_t marker_ns = 0, marker_host_ns = 0;  // what a marker takes of the device and of the host
};

Script make_script(const play::Workload& workload, const simgpu::DeviceProfile& profile);

}  // namespace lull::simulate
