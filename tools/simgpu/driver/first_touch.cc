#include "tools/simgpu/driver/first_touch.h"

#include <cstring>

namespace simgpu::driver {

void FirstTouch::touch(uint8_t* base, uint64_t offset, uint64_t bytes, bool overwritten) {
  if (bytes == 0) return;
  const uint64_t end = std::min(offset + bytes, size_bytes_);
  const std::lock_guard lock(mutex_);
  for (uint64_t b = offset / kBlockBytes; b * kBlockBytes < end; ++b) {
    if (touched_[b]) continue;
    touched_[b] = true;
    const uint64_t from = b * kBlockBytes;
    const uint64_t to = std::min(from + kBlockBytes, size_bytes_);
    if (!overwritten || from < offset || to > end) std::memset(base + from, kPoison, to - from);
  }
}

}  // namespace simgpu::driver
