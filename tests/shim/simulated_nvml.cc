// The part of NVML that the shim asks, over the simulated GPU: device 0, whose size SIMULATED_NVML_BYTES
// says. By no hook of the driver's: as a process without a context sees it.
#include <cstdlib>

#include "tools/simgpu/device/inspect.h"

namespace {
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
}  // namespace

extern "C" int nvmlInit_v2() { return 0; }
extern "C" int nvmlDeviceGetHandleByUUID(const char*, void** device) {
  *device = nullptr;
  return 0;
}
extern "C" int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  const char* path = std::getenv("SIMGPU_DEVICE");
  const char* total = std::getenv("SIMULATED_NVML_BYTES");
  if (path == nullptr || total == nullptr) return 1;
  const auto usage = simgpu::read_usage(path);
  if (!usage) return 1;
  memory->total = std::strtoull(total, nullptr, 10);
  memory->used = 0;
  for (const auto& process : usage->devices.at(0).processes) memory->used += process.memory_bytes;
  memory->free = memory->total - memory->used;
  return 0;
}
