#include "tools/simgpu/driver/address_space.h"

namespace simgpu::driver {

void AddressSpace::open(uint64_t begin, uint64_t size_bytes) {
  begin_ = begin;
  size_bytes_ = size_bytes;
  holes_ = {{begin, size_bytes}};
}

uint64_t AddressSpace::take(uint64_t size_bytes, uint64_t align_bytes) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [begin, size] = *hole;
    const uint64_t at = (begin + align_bytes - 1) / align_bytes * align_bytes;
    if (at + size_bytes > begin + size) continue;
    holes_.erase(hole);
    if (at > begin) holes_[begin] = at - begin;
    if (at + size_bytes < begin + size) holes_[at + size_bytes] = begin + size - at - size_bytes;
    return at;
  }
  return 0;
}

void AddressSpace::give(uint64_t begin, uint64_t size_bytes) {
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && begin + size_bytes == next->first) {
    size_bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += size_bytes;
      return;
    }
  }
  holes_[begin] = size_bytes;
}

}  // namespace simgpu::driver
