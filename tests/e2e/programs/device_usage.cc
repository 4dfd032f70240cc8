// device_usage FILE: what each process holds on a simulated device, by the device itself, as one
// line of JSON:
//   {"model_ns": N, "devices": [[{"pid": N, "bytes": N}, ...], ...]}
// Living processes that hold something only.
#include <cinttypes>
#include <cstdio>

#include "tools/simgpu/device/inspect.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto usage = simgpu::read_usage(argv[1]);
  if (!usage) {
    std::fprintf(stderr, "device_usage: %s\n", usage.error().c_str());
    return 1;
  }
  std::printf("{\"model_ns\": %" PRId64 ", \"devices\": [",
              static_cast<int64_t>(usage->model_now_ns));
  const char* next_device = "";
  for (const auto& device : usage->devices) {
    std::printf("%s[", next_device);
    next_device = ", ";
    const char* next = "";
    for (const auto& process : device.processes) {
      if (!process.alive || process.memory_bytes == 0) continue;
      std::printf("%s{\"pid\": %d, \"bytes\": %" PRIu64 "}", next, process.pid,
                  process.memory_bytes);
      next = ", ";
    }
    std::printf("]");
  }
  std::printf("]}\n");
}
