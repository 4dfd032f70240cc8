// What a process needs to know and to hold when it brings its memory back without a coordinator:
// one at a time on a GPU, and room for a context that the driver has taken out. Service thread
// only.
#pragma once

#include <stdint.h>

namespace lull::shim {

// The files that lulld made beside its socket, one a GPU: return-GPU-<uuid>.lock. The kernel
// releases a lock when its holder ends. GPUs without a file are not locked.
class GpuLocks {
 public:
  // All of the process's GPUs, in one order for everybody. False: another process has one of them.
  bool take();
  ~GpuLocks();

 private:
  int fds_[16];
  uint32_t count_ = 0;
};

// "GPU-01234567-89ab-...", as NVIDIA's tools print it.
inline constexpr uint32_t kUuidText = 41;
void write_uuid(const uint8_t (&uuid)[16], char (&text)[kUuidText]);

// Free memory of a GPU by NVML, which needs no context. UINT64_MAX: it cannot be asked.
uint64_t free_on_gpu(const uint8_t (&uuid)[16]);

}  // namespace lull::shim
