// The program's own virtual memory management: accounting, and handles of ours where it can be
// moved.
#include "shim/device_memory.h"
#include "shim/hooks/counted_allocation.h"
#include "shim/hooks/moves.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/program_handles.h"
#include "shim/submit.h"

using namespace lull::shim;
using lull::channel::Fixed;

namespace {

// The driver's handle for the program's.
CUmemGenericAllocationHandle real(CUmemGenericAllocationHandle handle) {
  return moves() ? real_handle(handle) : handle;
}

// `call` while memory stays where it is; what it did is entered in the tables whole.
template <typename Call>
CUresult with_memory(Call call) {
  MemoryUse use(thread_state);
  Cancellation off;
  return forward(thread_state, call);
}

bool is_device_memory(const CUmemAllocationProp& properties) {
  return properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

void give_token(CUmemGenericAllocationHandle& handle, uint64_t bytes,
                const CUmemAllocationProp& properties, uint32_t device, Fixed fixed) {
  if (device == kNoDevice) return;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) fixed = Fixed::kManaged;
  handle_created(handle, bytes, properties, device, fixed);
}

template <typename Call>
CUresult map_arrays(CUarrayMapInfo* list, unsigned count, Call call) {
  MemoryUse use(thread_state);
  if (!moves() || list == nullptr) return forward(thread_state, [&] { return call(list, count); });
  constexpr unsigned kAtOnce = 16;
  CUarrayMapInfo translated[kAtOnce];
  unsigned done = 0;
  do {
    const unsigned now = count - done < kAtOnce ? count - done : kAtOnce;
    for (unsigned n = 0; n < now; ++n) {
      translated[n] = list[done + n];
      if (translated[n].memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) continue;
      auto& handle = translated[n].memHandle.memHandle;
      fix_handle(handle, Fixed::kSparse);
      handle = real_handle(handle);
    }
    const CUresult result = forward(thread_state, [&] { return call(translated, now); });
    if (result != CUDA_SUCCESS) return result;
    done += now;
  } while (done < count);
  return CUDA_SUCCESS;
}

}  // namespace

LULL_ENTRY(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
 unsigned long long flags) {
  MemoryUse use(thread_state);
  Cancellation off;
  const auto call = [&] { return driver().cuMemCreate(handle, bytes, properties, flags); };
  if (thread_state.depth != 0 || !shim_enabled() || handle == nullptr || properties == nullptr ||
      !is_device_memory(*properties)) {
    return forward(thread_state, call);
  }
  const uint32_t device = use_device(properties->location.id);
  const bool token = moves();
  return count_allocation(
      device, MemoryKind::kHandle, bytes, [&] { return static_cast<uint64_t>(*handle); },
      [&] {
        const CUresult result = call();
        if (result == CUDA_SUCCESS && token) {
          give_token(*handle, bytes, *properties, device, Fixed::kNot);
        }
        return result;
      });
}

LULL_ENTRY(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  const bool token = moves();
  const CUresult result =
      with_memory([&] { return token ? release_handle(handle) : driver().cuMemRelease(handle); });
  if (result == CUDA_SUCCESS && thread_state.depth == 0) memory_freed(MemoryKind::kHandle, handle);
  return result;
}

LULL_ENTRY(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle* handle, void* address) {
  const bool token = moves();
  const CUresult result = with_memory([&] {
    return token ? retain_handle(handle, reinterpret_cast<CUdeviceptr>(address))
                 : driver().cuMemRetainAllocationHandle(handle, address);
  });
  if (result == CUDA_SUCCESS && handle != nullptr) handle_retained(*handle);
  return result;
}

LULL_ENTRY(cuMemMap)
(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  const bool token = moves();
  const CUresult result = with_memory([&] {
    return token ? map_handle(address, bytes, offset, handle, flags)
                 : driver().cuMemMap(address, bytes, offset, handle, flags);
  });
  if (result == CUDA_SUCCESS) handle_mapped(handle, address);
  return result;
}

LULL_ENTRY(cuMemUnmap)(CUdeviceptr address, size_t bytes) {
  const bool token = moves();
  const CUresult result = with_memory(
      [&] { return token ? unmap_range(address, bytes) : driver().cuMemUnmap(address, bytes); });
  if (result == CUDA_SUCCESS) range_unmapped(address, bytes);
  return result;
}

LULL_ENTRY(cuMemSetAccess)
(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* rights, size_t count) {
  const bool token = moves() && rights != nullptr;
  return with_memory([&] {
    return token ? set_access(address, bytes, rights, count)
                 : driver().cuMemSetAccess(address, bytes, rights, count);
  });
}

LULL_ENTRY(cuMemGetAccess)
(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  if (moves() && is_plain_to_program(address)) return CUDA_ERROR_INVALID_VALUE;
  return with_memory([&] { return driver().cuMemGetAccess(flags, location, address); });
}

LULL_ENTRY(cuMemGetAllocationPropertiesFromHandle)
(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  MemoryUse use(thread_state);
  const CUmemGenericAllocationHandle of = real(handle);
  return forward(thread_state,
                 [&] { return driver().cuMemGetAllocationPropertiesFromHandle(properties, of); });
}

LULL_ENTRY(cuMemExportToShareableHandle)
(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
 unsigned long long flags) {
  MemoryUse use(thread_state);
  const bool token = moves();
  const CUmemGenericAllocationHandle of = real(handle);
  const CUresult result = forward(
      thread_state, [&] { return driver().cuMemExportToShareableHandle(out, of, type, flags); });
  if (result == CUDA_SUCCESS && token) fix_handle(handle, Fixed::kExported);
  return result;
}

LULL_ENTRY(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle* handle, void* from, CUmemAllocationHandleType type) {
  MemoryUse use(thread_state);
  const CUresult result = forward(
      thread_state, [&] { return driver().cuMemImportFromShareableHandle(handle, from, type); });
  if (result != CUDA_SUCCESS || !moves()) return result;
  CUmemAllocationProp properties{};
  const CUresult known = forward(thread_state, [&] {
    return driver().cuMemGetAllocationPropertiesFromHandle(&properties, *handle);
  });
  // Its bytes are on the other process's account.
  if (known == CUDA_SUCCESS && is_device_memory(properties)) {
    give_token(*handle, /*bytes=*/0, properties, use_device(properties.location.id),
               Fixed::kImported);
  }
  return result;
}

LULL_ENTRY(cuMemMapArrayAsync)(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return map_arrays(list, count, [&](CUarrayMapInfo* part, unsigned size) {
    return driver().cuMemMapArrayAsync(part, size, stream);
  });
}
LULL_ENTRY(cuMemMapArrayAsync_ptsz)(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return map_arrays(list, count, [&](CUarrayMapInfo* part, unsigned size) {
    return driver().cuMemMapArrayAsync_ptsz(part, size, stream);
  });
}

LULL_ENTRY(cuMulticastBindMem)
(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
 CUmemGenericAllocationHandle handle, size_t offset, size_t bytes, unsigned long long flags) {
  MemoryUse use(thread_state);
  const bool token = moves();
  const CUmemGenericAllocationHandle of = real(handle);
  const CUresult result = forward(thread_state, [&] {
    return driver().cuMulticastBindMem(multicast, multicast_offset, of, offset, bytes, flags);
  });
  if (result == CUDA_SUCCESS && token) fix_handle(handle, Fixed::kMulticast);
  return result;
}
LULL_ENTRY(cuMulticastBindAddr)
(CUmemGenericAllocationHandle multicast, size_t multicast_offset, CUdeviceptr address, size_t bytes,
 unsigned long long flags) {
  MemoryUse use(thread_state);
  const bool token = moves();
  const CUresult result = forward(thread_state, [&] {
    return driver().cuMulticastBindAddr(multicast, multicast_offset, address, bytes, flags);
  });
  if (result == CUDA_SUCCESS && token) fix_address(address, bytes, Fixed::kMulticast);
  return result;
}
