// Which addresses are what, in this process: simulated device memory (real host memory in one
// reserved range, committed by touching it), physical memory mapped into reserved addresses, pinned
// and registered host memory. What is reserved and not mapped cannot be touched by anybody.
// Any thread; has its own locks, takes no other. Does not count against the device: callers do
// that.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "tools/simgpu/device/checkpoint_record.h"
#include "tools/simgpu/driver/address_space.h"
#include "tools/simgpu/driver/first_touch.h"
#include "tools/simgpu/driver/physical.h"

namespace simgpu::driver {

enum class MemoryKind { kDevice, kManaged, kArray, kPinned, kRegistered, kMapped };
enum class Touch { kRead, kWrite };

struct MemoryRange {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;      // as asked for
  uint64_t reserved_bytes = 0;  // what it takes
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  uint64_t context = 0;               // handle of the owner; 0: the pool's
  uint64_t pool = 0;                  // handle of its memory pool, if it has one
  uint32_t flags = 0;                 // of the call that made it
  uint64_t id = 0;                    // never reused
  bool freeing = false;               // cuMemFreeAsync was called, its stream is not there yet
  bool of_graph = false;              // of an allocation node
  std::shared_ptr<FirstTouch> fresh;  // none: all of it has contents
  // Mapped ranges: what is there, the handle it was mapped by, and by device what may touch it.
  std::shared_ptr<Physical> physical;
  uint64_t handle = 0;
  std::array<uint8_t, kMaxDevices> access{};
  bool on_device() const { return kind != MemoryKind::kPinned && kind != MemoryKind::kRegistered; }
};

struct Reservation {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;
};

// Device memory that was moved out of its place, one piece behind the other.
struct SavedContents {
  struct Piece {
    uint64_t address;
    uint64_t bytes;
  };
  std::vector<Piece> pieces;
  uint8_t* copy = nullptr;
  uint64_t bytes = 0;
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
  // What allocation nodes of graphs hold of that device.
  uint64_t graph_bytes(int device) const;
  void mark_of_graph(uint64_t begin);

  // --- touching memory ---
  // While one of these lives nothing is unmapped or moved: taken around each touch and the bytes
  // that follow it.
  std::shared_lock<std::shared_mutex> hold_still() const { return std::shared_lock(layout_); }
  // False: not for an op of that device (as the program counts), at least not all of it. Where
  // nobody has written it gets the poison. Addresses that nobody knows are the host's: true.
  bool touch(uint64_t begin, uint64_t bytes, Touch how, int device);
  // Whether a kernel of the device may use the address.
  bool is_usable(uint64_t address, int device) const;
  // Whether the device memory that starts at or before the address goes on for so long, through
  // neighbouring mappings.
  bool reaches(uint64_t address, uint64_t bytes) const;

  // --- reserved addresses and what is mapped there (virtual_memory.cc) ---
  // Exclusive: nothing is being touched.
  std::unique_lock<std::shared_mutex> hold_alone() { return std::unique_lock(layout_); }
  // 0: no such room.
  uint64_t reserve(uint64_t size_bytes, uint64_t align_bytes, uint64_t hint);
  // False: not exactly one reservation, or something is mapped in it.
  bool unreserve(uint64_t begin, uint64_t size_bytes);
  std::optional<Reservation> reservation(uint64_t address) const;
  bool has_reservations() const { return reservation_count_.load(std::memory_order_relaxed) != 0; }
  // `range` says where and what; CUDA_ERROR_INVALID_VALUE: not free and reserved.
  CUresult map(MemoryRange range);
  // What was there; empty: not exactly whole mappings without a gap.
  std::vector<MemoryRange> unmap(uint64_t begin, uint64_t size_bytes);
  // False: not exactly whole mappings without a gap.
  bool set_access(uint64_t begin, uint64_t size_bytes, int device, uint8_t flags);
  // After `physical` has a new home.
  bool put_again(const Physical& physical);
  PhysicalStore& store() { return store_; }

  // --- moving all of it out of its place and back (checkpoint.cc); nobody touches it meanwhile ---
  bool has_kind(MemoryKind kind) const;
  // False: no host memory; everything is in its place.
  bool move_out(const std::vector<std::shared_ptr<Physical>>& physicals, SavedContents& saved);
  void move_back(SavedContents& saved);

 private:
  using Ranges = std::map<uint64_t, MemoryRange>;
  static bool open(AddressSpace& arena, uint64_t size_bytes, int map_flags);
  static void give(AddressSpace& arena, uint64_t begin, uint64_t size_bytes);
  void drop(const MemoryRange& range);
  // The mappings that make up exactly these addresses; empty: none do.
  std::vector<Ranges::iterator> whole_mappings(uint64_t begin, uint64_t size_bytes);

  mutable std::shared_mutex layout_;  // before mutex_
  mutable std::mutex mutex_;
  Ranges ranges_;
  std::map<uint64_t, uint64_t> reservations_;  // begin -> size
  std::atomic<size_t> reservation_count_{0};
  AddressSpace wide_;
  AddressSpace low_;
  PhysicalStore store_;
  uint64_t next_id_ = 1;
};

}  // namespace simgpu::driver
