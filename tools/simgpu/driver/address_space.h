// A stretch of addresses that is handed out in pieces: first fit, neighbours merge again.
#pragma once

#include <cstdint>
#include <map>

namespace simgpu::driver {

class AddressSpace {
 public:
  bool is_open() const { return size_bytes_ != 0; }
  bool holds(uint64_t address) const { return address - begin_ < size_bytes_; }
  void open(uint64_t begin, uint64_t size_bytes);
  // 0: no room.
  uint64_t take(uint64_t size_bytes, uint64_t align_bytes);
  void give(uint64_t begin, uint64_t size_bytes);

 private:
  uint64_t begin_ = 0;
  uint64_t size_bytes_ = 0;
  std::map<uint64_t, uint64_t> holes_;  // begin -> size
};

}  // namespace simgpu::driver
