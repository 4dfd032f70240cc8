// Device memory that nobody has written yet holds what was there before, never zeros. Here it holds
// kPoison, filled in block by block at the first touch, so that memory which is only allocated
// costs the host nothing. One for each allocation; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace simgpu::driver {

inline constexpr uint8_t kPoison = 0xC5;

class FirstTouch {
 public:
  static constexpr uint64_t kBlockBytes = 64 << 10;

  explicit FirstTouch(uint64_t size_bytes)
      : size_bytes_(size_bytes), touched_((size_bytes + kBlockBytes - 1) / kBlockBytes) {}
  // Before these bytes of the allocation at `base` are read, or written: what nobody has written
  // in their blocks gets the poison. Blocks that are written as a whole need none.
  void before_read(uint8_t* base, uint64_t offset, uint64_t bytes) {
    touch(base, offset, bytes, /*overwritten=*/false);
  }
  void before_write(uint8_t* base, uint64_t offset, uint64_t bytes) {
    touch(base, offset, bytes, /*overwritten=*/true);
  }
  // Calls f(offset, bytes) for each run of touched blocks, in order.
  template <typename F>
  void each_touched(F&& f) {
    const std::lock_guard lock(mutex_);
    for (uint64_t b = 0; b < touched_.size();) {
      uint64_t end = b;
      while (end < touched_.size() && touched_[end]) ++end;
      if (end > b) f(b * kBlockBytes, std::min(end * kBlockBytes, size_bytes_) - b * kBlockBytes);
      b = end + 1;
    }
  }

 private:
  void touch(uint8_t* base, uint64_t offset, uint64_t bytes, bool overwritten);

  const uint64_t size_bytes_;
  std::mutex mutex_;
  std::vector<bool> touched_;
};

}  // namespace simgpu::driver
