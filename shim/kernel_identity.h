// Who a launch is: (function, shape) -> kernel slot of the channel, for CUfunction, CUkernel,
// CUgraphExec and copies alike.
//
//   hooks of modules and libraries --> functions: handle -> name, image       (lock, rare)
//   first launch of a shape        --> kernels:   KernelId -> slot            (lock, rare)
//   every launch                   --> shapes:    (handle, shape, site) -> slot (no lock)
//
// An unload makes all of `shapes` stale by one counter; a stale entry is looked up again at its
// next launch, so a handle that comes back for another function is recognised. All tables have
// fixed sizes; what finds one full is kernel slot 0, "(other kernels)". Any thread.
#pragma once

#include <stdint.h>

#include <atomic>

#include "coordinator/channel/layout.h"
#include "shim/driver.h"

namespace lull::shim {

struct Attachment;

struct Shape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

// One cache line. The key never changes once `handle` is set (release).
struct alignas(64) ShapeEntry {
  std::atomic<const void*> handle;
  Shape shape;
  std::atomic<uint32_t> slot;
  std::atomic<uint32_t> generation;  // valid while equal to identity_generation
  // Timing, see kernel_timer.h. Relaxed: a lost update costs one sample more or less.
  std::atomic<uint32_t> launches_to_window;
  std::atomic<uint32_t> samples;
  std::atomic<uint32_t> graph_kernels;
  uint32_t site;  // part of the key; call_site.h, 0: not taken
};
static_assert(sizeof(ShapeEntry) == 64);

inline constexpr uint32_t kShapeTable = 16384;  // a power of two
inline constexpr uint32_t kShapeProbes = 32;
extern ShapeEntry shape_table[kShapeTable];
extern std::atomic<uint32_t> identity_generation;

// Multilinear: independent products, no wide shifts (those reload spilled arguments wider than they
// were stored, which stalls).
inline uint32_t shape_hash(const void* handle, const Shape& shape, uint32_t site) {
  uint64_t hash = reinterpret_cast<uintptr_t>(handle);
  hash += uint64_t{shape.grid[0]} * 0x6f4f2a35U + uint64_t{shape.grid[1]} * 0x2c1b3c6dU +
          uint64_t{shape.grid[2]} * 0x297a2d39U + uint64_t{shape.block[0]} * 0x7feb352dU +
          uint64_t{shape.block[1]} * 0x546ca68bU + uint64_t{shape.block[2]} * 0x31848babU +
          uint64_t{shape.shared_bytes} * 0x1b56c4e9U + uint64_t{site} * 0x45d9f3b5U;
  return static_cast<uint32_t>((hash * 0x9e3779b97f4a7c15ULL) >> 50);
}
// By fields: a wide compare of what was just stored piece by piece would stall.
inline bool same_shape(const Shape& a, const Shape& b) {
  return ((a.grid[0] ^ b.grid[0]) | (a.grid[1] ^ b.grid[1]) | (a.grid[2] ^ b.grid[2]) |
          (a.block[0] ^ b.block[0]) | (a.block[1] ^ b.block[1]) | (a.block[2] ^ b.block[2]) |
          (a.shared_bytes ^ b.shared_bytes)) == 0;
}

// Adds or refreshes; never null.
ShapeEntry& learn_shape(const void* handle, Shape shape, uint32_t site);

// Inlined by force: called, it would keep the launch's description in memory and reload all of it.
[[gnu::always_inline]] inline ShapeEntry& find_shape(const void* handle, const Shape& shape,
                                                     uint32_t site) {
  const uint32_t hash = shape_hash(handle, shape, site);
  const uint32_t generation = identity_generation.load(std::memory_order_relaxed);
  for (uint32_t n = 0; n < kShapeProbes; ++n) {
    ShapeEntry& entry = shape_table[(hash + n) % kShapeTable];
    // Acquire: pairs with the release in learn_shape; the shape is complete once it is seen.
    const void* seen = entry.handle.load(std::memory_order_acquire);
    if (seen == handle && entry.site == site && same_shape(entry.shape, shape)) [[likely]] {
      // Acquire: pairs with the release after `slot` was refreshed.
      if (entry.generation.load(std::memory_order_acquire) == generation) [[likely]] return entry;
      break;
    }
    if (seen == nullptr) break;
  }
  return learn_shape(handle, shape, site);
}

// Copies and memsets have handles of their own, and as shape the size class (powers of two).
enum class Direction : uint32_t {
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kUnknown = 4,
  kMemset = 5,
  kPrefetch = 6,
};
inline const void* handle_of(Direction direction) {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(direction));
}
inline Shape shape_of_copy(uint64_t bytes) {
  const uint64_t kib = (bytes + 1023) / 1024;
  const uint32_t bits = kib <= 1 ? 0 : 64 - static_cast<uint32_t>(__builtin_clzll(kib - 1));
  return Shape{{bits < 32 ? uint32_t{1} << bits : 0x80000000U, 1, 1}, {1, 1, 1}, 0};
}

// ---- what the module and graph hooks know ------------------------------------------------------
void image_loaded(const void* module, uint64_t image_hash);
void image_shared(const void* from_module, const void* to_module);  // cuLibraryGetModule
void image_unloaded(const void* module);
uint64_t hash_of_image(const void* image);       // fat binary, ELF or PTX text
uint64_t hash_of_file(const char* path);
void function_found(const void* function, const void* module, const char* name);
void function_shared(const void* from_function, const void* to_function);  // cuKernelGetFunction
void graph_instantiated(CUgraphExec exec, CUgraph graph);
void graph_destroyed(CUgraphExec exec);

// A call site's text, kept once. 0: no room for it, else its number for find_shape.
uint32_t keep_call_site(const char* text);

// The name of a range of the program's; the caller asks once a name. 0: no room.
uint32_t keep_range_name(const char* name);

void republish_kernels(Attachment& link);
void lock_identity();
void unlock_identity();

}  // namespace lull::shim
