// Allocations: accounting, the limit, and the answers inside it.
#include "shim/device_memory.h"

#include "shim/submit.h"

using namespace lull::shim;

namespace {

constexpr uint64_t round_up(uint64_t bytes) { return (bytes + 511) / 512 * 512; }

// `key()` is read after the driver's success.
template <typename Key, typename Call>
CUresult allocate_on(uint32_t device, MemoryKind kind, uint64_t bytes, Key key, Call call) {
  ThreadState& thread = thread_state;
  if (device == kNoDevice) return forward(thread, call);
  const uint64_t counted = round_up(bytes);
  if (!admit_memory(device, counted)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS) {
    memory_allocated(kind, key(), device, counted);
  } else {
    refund_memory(device, counted);
  }
  return result;
}

template <typename Address, typename Call>
CUresult allocate(Address* address, uint64_t bytes, Call call) {
  if (thread_state.depth != 0 || !shim_enabled() || address == nullptr) {
    return forward(thread_state, call);
  }
  return allocate_on(current_device(), MemoryKind::kPointer, bytes,
                     [&] { return static_cast<uint64_t>(*address); }, call);
}

// In a capture it becomes a node of the graph, not memory.
template <typename Call>
CUresult allocate_in_stream(CUdeviceptr* address, uint64_t bytes, uintptr_t stream, Call call) {
  if (thread_state.depth != 0 || is_capturing(stream)) return forward(thread_state, call);
  return allocate(address, bytes, call);
}

template <typename Call>
CUresult release(MemoryKind kind, uint64_t key, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS) memory_freed(kind, key);
  return result;
}

template <typename Call>
CUresult release_in_stream(uint64_t key, uintptr_t stream, Call call) {
  if (thread_state.depth != 0 || is_capturing(stream)) return forward(thread_state, call);
  return release(MemoryKind::kPointer, key, call);
}

template <typename Address, typename Size, typename Call>
CUresult allocate_pitch(Address* address, Size* pitch, uint64_t width, uint64_t height,
                        Call call) {
  if (thread_state.depth != 0 || !shim_enabled() || address == nullptr || pitch == nullptr) {
    return forward(thread_state, call);
  }
  const uint32_t device = current_device();
  if (device == kNoDevice) return forward(thread_state, call);
  const uint64_t admitted = round_up(round_up(width) * height);
  if (!admit_memory(device, admitted)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = forward(thread_state, call);
  if (result != CUDA_SUCCESS) {
    refund_memory(device, admitted);
    return result;
  }
  const uint64_t actual = round_up(static_cast<uint64_t>(*pitch) * height);
  correct_memory(device, admitted, actual);
  memory_allocated(MemoryKind::kPointer, static_cast<uint64_t>(*address), device, actual);
  return result;
}

template <typename Size, typename Call>
CUresult memory_info(Size* free_bytes, Size* total_bytes, Call call) {
  ThreadState& thread = thread_state;
  const CUresult result = forward(thread, call);
  if (result != CUDA_SUCCESS || thread.depth != 0 || !shim_enabled()) return result;
  const uint32_t device = current_device();
  if (device == kNoDevice) return result;
  const uint64_t limit = memory_limit_bytes(device);
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
  const uint64_t limit = memory_limit_bytes(device_in_use(ordinal));
  if (*bytes > limit) *bytes = static_cast<Size>(limit);
  return result;
}

}  // namespace

LULL_ENTRY(cuMemAlloc)(CUdeviceptr_v1* address, unsigned int bytes) {
  return allocate(address, bytes, [&] { return driver().cuMemAlloc(address, bytes); });
}
LULL_ENTRY(cuMemAlloc_v2)(CUdeviceptr* address, size_t bytes) {
  return allocate(address, bytes, [&] { return driver().cuMemAlloc_v2(address, bytes); });
}
LULL_ENTRY(cuMemAllocManaged)(CUdeviceptr* address, size_t bytes, unsigned int flags) {
  return allocate(address, bytes,
                  [&] { return driver().cuMemAllocManaged(address, bytes, flags); });
}
LULL_ENTRY(cuMemAllocPitch)
(CUdeviceptr_v1* address, unsigned int* pitch, unsigned int width, unsigned int height,
 unsigned int element) {
  return allocate_pitch(address, pitch, width, height, [&] {
    return driver().cuMemAllocPitch(address, pitch, width, height, element);
  });
}
LULL_ENTRY(cuMemAllocPitch_v2)
(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned int element) {
  return allocate_pitch(address, pitch, width, height, [&] {
    return driver().cuMemAllocPitch_v2(address, pitch, width, height, element);
  });
}

#define LULL_STREAM_MEMORY(suffix, variant)                                                       \
  LULL_ENTRY(cuMemAllocAsync##suffix)(CUdeviceptr * address, size_t bytes, CUstream stream) {     \
    return allocate_in_stream(address, bytes, normalise(stream, variant), [&] {                   \
      return driver().cuMemAllocAsync##suffix(address, bytes, stream);                            \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemAllocFromPoolAsync##suffix)                                                     \
  (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream) {                     \
    return allocate_in_stream(address, bytes, normalise(stream, variant), [&] {                   \
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
  return release(MemoryKind::kPointer, address, [&] { return driver().cuMemFree(address); });
}
LULL_ENTRY(cuMemFree_v2)(CUdeviceptr address) {
  return release(MemoryKind::kPointer, address, [&] { return driver().cuMemFree_v2(address); });
}

LULL_ENTRY(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
 unsigned long long flags) {
  const auto call = [&] { return driver().cuMemCreate(handle, bytes, properties, flags); };
  if (thread_state.depth != 0 || !shim_enabled() || handle == nullptr || properties == nullptr ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return forward(thread_state, call);
  }
  return allocate_on(use_device(properties->location.id), MemoryKind::kHandle, bytes,
                     [&] { return static_cast<uint64_t>(*handle); }, call);
}
LULL_ENTRY(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  return release(MemoryKind::kHandle, handle, [&] { return driver().cuMemRelease(handle); });
}
LULL_ENTRY(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = forward(
      thread_state, [&] { return driver().cuMemRetainAllocationHandle(handle, address); });
  if (result == CUDA_SUCCESS && handle != nullptr) handle_retained(*handle);
  return result;
}
LULL_ENTRY(cuMemMap)
(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  const CUresult result = forward(
      thread_state, [&] { return driver().cuMemMap(address, bytes, offset, handle, flags); });
  if (result == CUDA_SUCCESS) handle_mapped(handle, address);
  return result;
}
LULL_ENTRY(cuMemUnmap)(CUdeviceptr address, size_t bytes) {
  const CUresult result = forward(
      thread_state, [&] { return driver().cuMemUnmap(address, bytes); });
  if (result == CUDA_SUCCESS) range_unmapped(address, bytes);
  return result;
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
