// Which addresses are what, in this process: simulated device memory (real host memory in one
// reserved range, committed by touching it), pinned host memory, registered host memory.
// Any thread; has its own lock, takes no other. Does not count against the device: callers do that.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace simgpu::driver {

enum class MemoryKind { kDevice, kManaged, kPinned, kRegistered };

struct MemoryRange {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;      // as asked for
  uint64_t reserved_bytes = 0;  // what it takes
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  uint64_t context = 0;  // handle of the owner; 0: the pool's
  uint64_t pool = 0;     // handle of its memory pool, if it has one
  uint32_t flags = 0;    // of the call that made it
  uint64_t id = 0;       // never reused
  bool freeing = false;  // cuMemFreeAsync was called, its stream is not there yet
  bool on_device() const { return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged; }
};

class MemoryMap {
 public:
  // Takes `size_bytes` of address space; the caller has it granted by the device beforehand.
  // `below_4g`: for the calls of the 32-bit interface. 0: no address space left.
  uint64_t add_device(MemoryRange range, bool below_4g = false);
  uint64_t add_pinned(MemoryRange range);
  // False when any byte of it is known already.
  bool add_registered(MemoryRange range);
  // Of the range that begins exactly there; the memory is given back.
  std::optional<MemoryRange> remove(uint64_t begin);
  bool mark_freeing(uint64_t begin);
  // The range that holds the address.
  std::optional<MemoryRange> find(uint64_t address) const;
  std::optional<MemoryRange> find(const void* address) const {
    return find(reinterpret_cast<uint64_t>(address));
  }
  // Removes and returns all ranges of a context that is destroyed.
  std::vector<MemoryRange> remove_context(uint64_t context);
  static uint64_t reserved_bytes(uint64_t size_bytes);

 private:
  struct Arena {
    uint64_t begin = 0;
    uint64_t size_bytes = 0;
    std::map<uint64_t, uint64_t> holes;  // begin -> size
  };
  static bool reserve(Arena& arena, uint64_t size_bytes, int map_flags);
  static uint64_t take(Arena& arena, uint64_t size_bytes, uint64_t align_bytes);
  static void give(Arena& arena, uint64_t begin, uint64_t size_bytes);
  void drop(const MemoryRange& range);

  mutable std::mutex mutex_;
  std::map<uint64_t, MemoryRange> ranges_;
  Arena wide_;
  Arena low_;
  uint64_t next_id_ = 1;
};

}  // namespace simgpu::driver
