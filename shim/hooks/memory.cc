// Allocations: accounting, the limit, and the answers inside it; where a process can be moved, in the arena.
#include "shim/device_memory.h"
#include "shim/hooks/counted_allocation.h"
#include "shim/hooks/moves.h"
#include "shim/residence/allocations.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/pools.h"
#include "shim/submit.h"

using namespace lull::shim;
using lull::channel::Fixed;

namespace {

// An allocation: the arena's where the process can be moved, and the driver's where that has not
// dealt with it: then `fixed` says why. Asked before `thread_state.depth` goes up.
template <typename Arena, typename Call>
auto arena_or(Arena arena, Call call, Fixed& fixed) {
  return [arena, call, &fixed, asks = moves()] {
    if (!asks) [[likely]]
      return call();
    CUresult result;
    if (arena(result)) return result;
    result = call();
    if (result == CUDA_SUCCESS) fixed = why_unmapped();
    return result;
  };
}
// A free: it is known whose it was.
template <typename Arena, typename Call>
auto freed_or(Arena arena, Call call) {
  return [arena, call, asks = moves()] {
    CUresult result;
    return asks && arena(result) ? result : call();
  };
}

template <typename Address, typename Call>
CUresult allocate(Address* address, uint64_t bytes, Call call, const Fixed& fixed) {
  MemoryUse use(thread_state);
  if (thread_state.depth != 0 || !shim_enabled() || address == nullptr) {
    return forward(thread_state, call);
  }
  return count_allocation(
      current_device(), MemoryKind::kPointer, bytes,
      [&] { return static_cast<uint64_t>(*address); }, call, fixed);
}

// In a capture it becomes a node of the graph, not memory.
template <typename Call>
CUresult allocate_in_stream(CUdeviceptr* address, uint64_t bytes, CUmemoryPool pool, uintptr_t stream,
                            Call call) {
  MemoryUse use(thread_state);
  if (thread_state.depth != 0 || is_capturing(stream)) return forward(thread_state, call);
  const auto arena = [=](CUresult& result) {
    return arena_allocate_in_stream(bytes, pool, stream_of(stream), address, result);
  };
  Fixed fixed = Fixed::kNot;
  return allocate(address, bytes, arena_or(arena, call, fixed), fixed);
}

template <typename Call>
CUresult release(uint64_t address, Call call) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  if (thread.depth != 0) return call();
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS) memory_freed(MemoryKind::kPointer, address);
  return result;
}

template <typename Call>
CUresult release_in_stream(uint64_t address, uintptr_t stream, Call call) {
  MemoryUse use(thread_state);
  if (thread_state.depth != 0 || is_capturing(stream)) return forward(thread_state, call);
  const auto arena = [=](CUresult& result) {
    return arena_free_in_stream(address, stream_of(stream), result);
  };
  return release(address, freed_or(arena, call));
}

template <typename Address, typename Size, typename Call>
CUresult allocate_pitch(Address* address, Size* pitch, uint64_t width, uint64_t height, Call call,
                        const Fixed& fixed) {
  MemoryUse use(thread_state);
  if (thread_state.depth != 0 || !shim_enabled() || address == nullptr || pitch == nullptr) {
    return forward(thread_state, call);
  }
  const uint32_t device = current_device();
  if (device == kNoDevice) return forward(thread_state, call);
  const uint64_t admitted = counted_bytes(counted_bytes(width) * height);
  if (!admit_memory(device, admitted)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = forward(thread_state, call);
  uint64_t alone_since_ns = 0;
  while (result == CUDA_ERROR_OUT_OF_MEMORY && wait_for_memory(device, alone_since_ns)) {
    result = forward(thread_state, call);
  }
  if (result != CUDA_SUCCESS) {
    refund_memory(device, admitted);
    return result;
  }
  const uint64_t actual = counted_bytes(static_cast<uint64_t>(*pitch) * height);
  correct_memory(device, admitted, actual);
  memory_allocated(MemoryKind::kPointer, static_cast<uint64_t>(*address), device, actual, fixed);
  return result;
}

// What the arena has taken on the current device and the program has not.
uint64_t unused_here() {
  CUdevice ordinal = 0;
  OwnCall own(thread_state);
  return driver().cuCtxGetDevice(&ordinal) == CUDA_SUCCESS ? unused_slab_bytes(ordinal) : 0;
}

template <typename Size, typename Call>
CUresult memory_info(Size* free_bytes, Size* total_bytes, Call call) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  const bool arena = moves();
  if (arena) reclaim_freed();
  const CUresult result = forward(thread, call);
  if (result != CUDA_SUCCESS || thread.depth != 0 || !shim_enabled()) return result;
  if (arena && free_bytes != nullptr) *free_bytes += static_cast<Size>(unused_here());
  const uint32_t device = current_device();
  if (device == kNoDevice) return result;
  const uint64_t limit = told_memory_limit_bytes(device);
  if (limit == UINT64_MAX) return result;
  const uint64_t used = memory_used_bytes(device);
  const uint64_t left = limit > used ? limit - used : 0;
  if (total_bytes != nullptr && *total_bytes > limit) *total_bytes = static_cast<Size>(limit);
  if (free_bytes != nullptr && *free_bytes > left) *free_bytes = static_cast<Size>(left);
  return result;
}

template <typename Size, typename Call>
CUresult total_memory(Size* bytes, CUdevice ordinal, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const CUresult result = forward(thread, call);
  if (result != CUDA_SUCCESS || bytes == nullptr || !shim_enabled()) return result;
  const uint64_t limit = told_memory_limit_bytes(device_in_use(ordinal));
  if (*bytes > limit) *bytes = static_cast<Size>(limit);
  return result;
}

}  // namespace

// Addresses below 4 GiB, and managed memory: the driver's.
LULL_ENTRY(cuMemAlloc)(CUdeviceptr_v1* address, unsigned int bytes) {
  Fixed fixed = Fixed::kNot;
  const auto call = [=] { return driver().cuMemAlloc(address, bytes); };
  return allocate(address, bytes, arena_or([](CUresult&) { return false; }, call, fixed), fixed);
}
LULL_ENTRY(cuMemAlloc_v2)(CUdeviceptr* address, size_t bytes) {
  Fixed fixed = Fixed::kNot;
  const auto arena = [=](CUresult& result) { return arena_allocate(bytes, address, result); };
  const auto call = [=] { return driver().cuMemAlloc_v2(address, bytes); };
  return allocate(address, bytes, arena_or(arena, call, fixed), fixed);
}
LULL_ENTRY(cuMemAllocManaged)(CUdeviceptr* address, size_t bytes, unsigned int flags) {
  return allocate(
      address, bytes, [=] { return driver().cuMemAllocManaged(address, bytes, flags); },
      Fixed::kManaged);
}
LULL_ENTRY(cuMemAllocPitch)
(CUdeviceptr_v1* address, unsigned int* pitch, unsigned int width, unsigned int height,
 unsigned int element) {
  Fixed fixed = Fixed::kNot;
  const auto call = [=] {
    return driver().cuMemAllocPitch(address, pitch, width, height, element);
  };
  return allocate_pitch(address, pitch, width, height,
                        arena_or([](CUresult&) { return false; }, call, fixed), fixed);
}
LULL_ENTRY(cuMemAllocPitch_v2)
(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned int element) {
  Fixed fixed = Fixed::kNot;
  const auto arena = [=](CUresult& result) {
    return arena_allocate_pitch(width, height, element, address, pitch, result);
  };
  const auto call = [=] {
    return driver().cuMemAllocPitch_v2(address, pitch, width, height, element);
  };
  return allocate_pitch(address, pitch, width, height, arena_or(arena, call, fixed), fixed);
}

#define LULL_STREAM_MEMORY(suffix, variant)                                                       \
  LULL_ENTRY(cuMemAllocAsync##suffix)(CUdeviceptr * address, size_t bytes, CUstream stream) {     \
    return allocate_in_stream(address, bytes, nullptr, normalise(stream, variant), [&] {          \
      return driver().cuMemAllocAsync##suffix(address, bytes, stream);                            \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemAllocFromPoolAsync##suffix)                                                     \
  (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream) {                     \
    return allocate_in_stream(address, bytes, pool, normalise(stream, variant), [&] {             \
      return driver().cuMemAllocFromPoolAsync##suffix(address, bytes, pool, stream);              \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemFreeAsync##suffix)(CUdeviceptr address, CUstream stream) {                      \
    return release_in_stream(address, normalise(stream, variant), [&] {                           \
      return driver().cuMemFreeAsync##suffix(address, stream);                                    \
    });                                                                                           \
  }
LULL_STREAM_MEMORY(, DefaultStream::kLegacy)
LULL_STREAM_MEMORY(_ptsz, DefaultStream::kPerThread)
#undef LULL_STREAM_MEMORY

LULL_ENTRY(cuMemFree)(CUdeviceptr_v1 address) {
  return release(address, [=] { return driver().cuMemFree(address); });
}
LULL_ENTRY(cuMemFree_v2)(CUdeviceptr address) {
  return release(address,
                 freed_or([=](CUresult& result) { return arena_free(address, result); },
                          [=] { return driver().cuMemFree_v2(address); }));
}

LULL_ENTRY(cuMemGetInfo)(unsigned int* free_bytes, unsigned int* total_bytes) {
  return memory_info(free_bytes, total_bytes,
                     [&] { return driver().cuMemGetInfo(free_bytes, total_bytes); });
}
LULL_ENTRY(cuMemGetInfo_v2)(size_t* free_bytes, size_t* total_bytes) {
  return memory_info(free_bytes, total_bytes,
                     [&] { return driver().cuMemGetInfo_v2(free_bytes, total_bytes); });
}
LULL_ENTRY(cuDeviceTotalMem)(unsigned int* bytes, CUdevice device) {
  return total_memory(bytes, device, [&] { return driver().cuDeviceTotalMem(bytes, device); });
}
LULL_ENTRY(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice device) {
  return total_memory(bytes, device,
                      [&] { return driver().cuDeviceTotalMem_v2(bytes, device); });
}
