// An allocation on a device's account: admitted before the call, entered or refunded after it.
#pragma once

#include "shim/device_memory.h"
#include "shim/devices.h"
#include "shim/submit.h"

namespace lull::shim {

constexpr uint64_t counted_bytes(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

// `key()` and `fixed` are read after the driver's success.
template <typename Key, typename Call>
CUresult count_allocation(uint32_t device, MemoryKind kind, uint64_t bytes, Key key, Call call,
                          const channel::Fixed& fixed = channel::Fixed::kNot) {
  ThreadState& thread = thread_state;
  if (device == kNoDevice) return forward(thread, call);
  const uint64_t counted = counted_bytes(bytes);
  if (!admit_memory(device, counted)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = forward(thread, call);
  uint64_t alone_since_ns = 0;
  while (result == CUDA_ERROR_OUT_OF_MEMORY && wait_for_memory(device, alone_since_ns)) {
    result = forward(thread, call);
  }
  if (result == CUDA_SUCCESS) {
    memory_allocated(kind, key(), device, counted, fixed);
  } else {
    refund_memory(device, counted);
  }
  return result;
}

}  // namespace lull::shim
