// Memory that is allocated, pinned, registered, and what a pointer is.
#include "tools/simgpu/driver/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tools/simgpu/device/cost_model.h"
#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"

namespace simgpu::driver {

std::expected<uint64_t, CUresult> allocate_device(State& state, Context& context,
                                                  uint64_t size_bytes, MemoryKind kind,
                                                  const std::shared_ptr<Pool>& pool,
                                                  bool below_4g) {
  constexpr uint64_t kAbsurdBytes = uint64_t{1} << 46;
  if (size_bytes > kAbsurdBytes) return std::unexpected(CUDA_ERROR_OUT_OF_MEMORY);
  const uint64_t reserved = MemoryMap::reserved_bytes(size_bytes);
  const Status granted = state.device->allocate(context.engine, reserved);
  if (granted != Status::kOk) return std::unexpected(to_result(granted));
  MemoryRange range;
  range.size_bytes = size_bytes;
  range.kind = kind;
  range.device = context.device;
  range.context = context.handle;
  range.pool = pool ? pool->handle : 0;
  const uint64_t address = state.memory.add_device(range, below_4g);
  if (address == 0) {
    state.device->release(context.engine, reserved);
    return std::unexpected(CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (pool) {
    const uint64_t used =
        pool->used_bytes.fetch_add(reserved, std::memory_order_relaxed) + reserved;
    if (used > pool->used_high_bytes.load(std::memory_order_relaxed)) {
      pool->used_high_bytes.store(used, std::memory_order_relaxed);
    }
  }
  return address;
}

void becomes_graph_memory(State& state, uint64_t address) {
  state.memory.mark_of_graph(address);
  const auto range = state.memory.find(address);
  if (!range) return;
  uint64_t& high = state.graph_high_bytes[range->device];
  high = std::max(high, state.memory.graph_bytes(range->device));
}

void release_device(State& state, uint64_t address, ContextId charged,
                    const std::shared_ptr<Pool>& pool) {
  const auto range = state.memory.remove(address);
  if (!range) return;
  state.device->release(charged, range->reserved_bytes);
  if (pool) pool->used_bytes.fetch_sub(range->reserved_bytes, std::memory_order_relaxed);
}

}  // namespace simgpu::driver

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

CUresult allocate(CUdeviceptr* out, size_t bytes, MemoryKind kind, bool below_4g = false) {
  Call call(Call::kContext | Call::kUnsafeInCapture);
  if (!call) return call.error;
  if (out == nullptr || bytes == 0) return kWrong;
  const auto address = allocate_device(call.state, *call.context, bytes, kind, nullptr, below_4g);
  if (!address) return address.error();
  *out = *address;
  return CUDA_SUCCESS;
}

// As the driver's: waits until nobody can be using it.
CUresult give_back(uint64_t address) {
  Call call(Call::kUnsafeInCapture);
  if (!call) return call.error;
  if (address == 0) return CUDA_SUCCESS;
  auto range = call.state.memory.find(address);
  if (!range || range->begin != address || !range->on_device() || range->freeing) return kWrong;
  const auto context = call.state.contexts.find(range->context);
  if (!context) return kWrong;
  call.wait(call.state.device->unfinished(context->engine));
  range = call.state.memory.find(address);
  if (!range || range->begin != address) return kWrong;
  release_device(call.state, address, context->engine, call.state.pools.find(range->pool));
  return CUDA_SUCCESS;
}

CUresult allocate_pitch(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                        unsigned element_bytes, bool below_4g) {
  constexpr size_t kPitchAlignBytes = 512;
  if (const CUresult refused = refuse_call()) return refused;
  if (pitch == nullptr || width == 0 || height == 0) return kWrong;
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) return kWrong;
  const size_t rounded = (width + kPitchAlignBytes - 1) / kPitchAlignBytes * kPitchAlignBytes;
  if (rounded < width || height > SIZE_MAX / rounded) return kWrong;
  const CUresult result = allocate(out, rounded * height, MemoryKind::kDevice, below_4g);
  if (result == CUDA_SUCCESS) *pitch = rounded;
  return result;
}

CUresult allocate_host(void** out, size_t bytes, unsigned flags) {
  Call call(Call::kContext | Call::kUnsafeInCapture);
  if (!call) return call.error;
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (out == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return kWrong;
  MemoryRange range;
  range.size_bytes = bytes;
  range.device = call.context->device;
  range.context = call.context->handle;
  range.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  const uint64_t address = call.state.memory.add_pinned(range);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<void*>(address);
  call.spend(simgpu::pinning_ns(call.state.profile(range.device), bytes, /*populated_bytes=*/0,
                                /*huge_pages=*/false));
  return CUDA_SUCCESS;
}

CUresult release_host(void* pointer, MemoryKind kind, CUresult absent) {
  Call call(Call::kUnsafeInCapture);
  if (!call) return call.error;
  const auto range = call.state.memory.find(pointer);
  if (!range || range->begin != reinterpret_cast<uint64_t>(pointer) || range->kind != kind) {
    return absent;
  }
  if (const auto context = call.state.contexts.find(range->context)) {
    call.wait(call.state.device->unfinished(context->engine));
  }
  call.state.memory.remove(range->begin);
  if (kind == MemoryKind::kRegistered) {
    call.spend(simgpu::moving_ns(0, call.state.profile(range->device).unregister_gb_per_s,
                                 range->size_bytes));
  }
  return CUDA_SUCCESS;
}

// Of the mappings that overlap it, as far as /proc tells.
uint64_t huge_page_bytes(uint64_t begin, uint64_t bytes) {
  std::ifstream smaps("/proc/self/smaps");
  uint64_t huge = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long from = 0, to = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) {
      if (from >= begin + bytes) break;
      inside = to > begin;
    } else if (inside && (std::sscanf(line.c_str(), "AnonHugePages: %llu", &kib) == 1 ||
                          std::sscanf(line.c_str(), "ShmemPmdMapped: %llu", &kib) == 1 ||
                          std::sscanf(line.c_str(), "Shared_Hugetlb: %llu", &kib) == 1 ||
                          std::sscanf(line.c_str(), "Private_Hugetlb: %llu", &kib) == 1)) {
      huge += uint64_t{kib} << 10;
    }
  }
  return huge;
}

struct HostPages {
  uint64_t populated_bytes = 0;
  bool huge = false;  // most of what is there
};

// What pinning them costs depends on it; never on the result.
HostPages host_pages(uint64_t begin, uint64_t bytes) {
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t first = begin / kPageBytes * kPageBytes;
  const uint64_t pages = (begin + bytes - first + kPageBytes - 1) / kPageBytes;
  std::vector<unsigned char> present(pages);
  HostPages found;
  if (mincore(reinterpret_cast<void*>(first), pages * kPageBytes, present.data()) == 0) {
    const auto populated = std::ranges::count_if(present, [](auto page) { return page & 1; });
    found.populated_bytes = static_cast<uint64_t>(populated) * kPageBytes;
  }
  // /proc walks every page of the process: only where it matters.
  constexpr uint64_t kWorthwhileBytes = uint64_t{64} << 20;
  if (found.populated_bytes >= kWorthwhileBytes) {
    found.huge = huge_page_bytes(begin, bytes) >= found.populated_bytes / 2;
  }
  return found;
}

CUresult register_host(void* pointer, size_t bytes, unsigned flags) {
  Call call(Call::kContext | Call::kUnsafeInCapture);
  if (!call) return call.error;
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return kWrong;
  MemoryRange range;
  range.begin = reinterpret_cast<uint64_t>(pointer);
  range.size_bytes = bytes;
  range.device = call.context->device;
  range.context = call.context->handle;
  range.flags = flags;
  const HostPages pages = host_pages(range.begin, bytes);
  if (!call.state.memory.add_registered(range)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  call.spend(simgpu::pinning_ns(call.state.profile(range.device), bytes, pages.populated_bytes,
                                pages.huge));
  return CUDA_SUCCESS;
}

// Of an address that is reserved and not mapped.
CUresult reserved_attribute(void* out, CUpointer_attribute attribute, const Reservation& reserved) {
  const auto give = [&](auto value) {
    std::memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(reserved.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(static_cast<size_t>(reserved.size_bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(0u);
    default:
      return kWrong;
  }
}

CUresult pointer_attribute(const Call& call, void* out, CUpointer_attribute attribute,
                           const MemoryRange& range, uint64_t address) {
  const auto give = [&](auto value) {
    std::memcpy(out, &value, sizeof value);
    return CUDA_SUCCESS;
  };
  const bool managed = range.kind == MemoryKind::kManaged;
  const Physical* const physical = range.physical.get();
  const auto reserved = physical != nullptr ? call.state.memory.reservation(address) : std::nullopt;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(to_handle<CUcontext>(range.pool ? 0 : range.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(
          static_cast<unsigned>(range.on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(CUdeviceptr{address});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (range.kind == MemoryKind::kDevice || range.kind == MemoryKind::kMapped) {
        give(uint64_t{0});
        return kWrong;
      }
      return give(address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return give(0u);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return give(static_cast<unsigned long long>(range.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return give(static_cast<unsigned>(managed));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(range.device);
    // What is mapped may be a part of what is reserved.
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(reserved ? reserved->begin : range.begin);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(static_cast<size_t>(reserved ? reserved->size_bytes : range.size_bytes));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give(static_cast<size_t>(range.reserved_bytes));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return give(1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(physical != nullptr
                      ? static_cast<uint64_t>(physical->properties.requestedHandleTypes)
                      : uint64_t{0});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      if (physical != nullptr) {
        const int by = call.context ? call.context->device : range.device;
        return give(static_cast<unsigned>(range.access[by]));
      }
      return give(static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(to_handle<CUmemoryPool>(range.pool));
    // Physical memory counts apart from ranges.
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give(static_cast<unsigned long long>(
          physical != nullptr ? physical->id | uint64_t{1} << 63 : range.id));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return give(physical != nullptr
                      ? static_cast<unsigned>(physical->properties.allocFlags.gpuDirectRDMACapable)
                      : 0u);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return give(0u);
    default:
      break;
  }
  return kWrong;
}

}  // namespace

SIM_API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return allocate(out, bytes, MemoryKind::kDevice);
}

SIM_API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  if (const CUresult refused = refuse_call()) return refused;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return kWrong;
  return allocate(out, bytes, MemoryKind::kManaged);
}

SIM_API cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height,
                           unsigned element_bytes) {
  return allocate_pitch(out, pitch, width, height, element_bytes, false);
}

SIM_API cuMemFree_v2(CUdeviceptr address) { return give_back(address); }

SIM_API cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (free_bytes == nullptr || total_bytes == nullptr) return kWrong;
  const auto info = call.state.device->memory_info(call.state.visible[call.context->device]);
  *free_bytes = info.free_bytes;
  *total_bytes = info.total_bytes;
  return CUDA_SUCCESS;
}

SIM_API cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* size, CUdeviceptr address) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto range = call.state.memory.find(address);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = range->begin;
  if (size != nullptr) *size = range->size_bytes;
  return CUDA_SUCCESS;
}

SIM_API cuMemAllocHost_v2(void** out, size_t bytes) { return allocate_host(out, bytes, 0); }
SIM_API cuMemAllocHost(void** out, unsigned bytes) { return allocate_host(out, bytes, 0); }
SIM_API cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return allocate_host(out, bytes, flags);
}
SIM_API cuMemFreeHost(void* pointer) { return release_host(pointer, MemoryKind::kPinned, kWrong); }
SIM_API cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return register_host(pointer, bytes, flags);
}
SIM_API cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  return register_host(pointer, bytes, flags);
}
SIM_API cuMemHostUnregister(void* pointer) {
  return release_host(pointer, MemoryKind::kRegistered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

SIM_API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto range = call.state.memory.find(pointer);
  if (out == nullptr || flags != 0 || !range || range->kind == MemoryKind::kDevice) return kWrong;
  *out = reinterpret_cast<CUdeviceptr>(pointer);
  return CUDA_SUCCESS;
}

SIM_API cuMemHostGetFlags(unsigned* flags, void* pointer) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto range = call.state.memory.find(pointer);
  if (flags == nullptr || !range || range->on_device()) return kWrong;
  *flags = range->flags;
  return CUDA_SUCCESS;
}

SIM_API cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  const auto range = call.state.memory.find(address);
  if (range) return pointer_attribute(call, out, attribute, *range, address);
  const auto reserved = call.state.memory.reservation(address);
  return reserved ? reserved_attribute(out, attribute, *reserved) : kWrong;
}

// For memory that nobody knows this one succeeds, with zeros.
SIM_API cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out,
                               CUdeviceptr address) {
  Call call;
  if (!call) return call.error;
  if (count == 0 || attributes == nullptr || out == nullptr) return kWrong;
  const auto range = call.state.memory.find(address);
  const auto reserved = call.state.memory.reservation(address);
  for (unsigned i = 0; i < count; ++i) {
    if (out[i] == nullptr) return kWrong;
    if (range) {
      pointer_attribute(call, out[i], attributes[i], *range, address);
    } else if (reserved && reserved_attribute(out[i], attributes[i], *reserved) == CUDA_SUCCESS) {
      continue;
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      *static_cast<int*>(out[i]) = CU_DEVICE_INVALID;
    } else {
      const bool small = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                         attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                         attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                         attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
                         attributes[i] == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
      std::memset(out[i], 0, small ? 4 : 8);
    }
  }
  return CUDA_SUCCESS;
}

SIM_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                              CUdeviceptr address) {
  Call call;
  if (!call) return call.error;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return kWrong;
  return call.state.memory.find(address) ? CUDA_SUCCESS : kWrong;
}

// --- managed memory is plain memory: advice and prefetching change nothing but the order ---

namespace {

CUresult advise(CUdeviceptr address) {
  Call call;
  if (!call) return call.error;
  const auto range = call.state.memory.find(address);
  return range && range->kind == MemoryKind::kManaged ? CUDA_SUCCESS : kWrong;
}

CUresult prefetch(CUdeviceptr address, CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const auto range = call.state.memory.find(address);
  if (!range || range->kind != MemoryKind::kManaged) return kWrong;
  return enqueue(call, *stream, EmptyWork{});
}

}  // namespace

SIM_API cuMemAdvise(CUdeviceptr address, size_t, CUmem_advise, CUdevice) { return advise(address); }
SIM_API cuMemAdvise_v2(CUdeviceptr address, size_t, CUmem_advise, CUmemLocation) {
  return advise(address);
}
SIM_API cuMemPrefetchAsync(CUdeviceptr address, size_t, CUdevice, CUstream stream) {
  return prefetch(address, stream);
}
SIM_API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t, CUmemLocation, unsigned,
                              CUstream stream) {
  return prefetch(address, stream);
}

// --- the 32-bit interface of CUDA 3.1 and before: memory below 4 GiB ---

SIM_API cuMemAlloc(CUdeviceptr_v1* out, unsigned bytes) {
  CUdeviceptr wide = 0;
  const CUresult result =
      out == nullptr ? kWrong : allocate(&wide, bytes, MemoryKind::kDevice, true);
  if (result == CUDA_SUCCESS) *out = static_cast<CUdeviceptr_v1>(wide);
  return result;
}

SIM_API cuMemAllocPitch(CUdeviceptr_v1* out, unsigned* pitch, unsigned width, unsigned height,
                        unsigned element_bytes) {
  if (out == nullptr || pitch == nullptr) return kWrong;
  CUdeviceptr wide = 0;
  size_t wide_pitch = 0;
  const CUresult result = allocate_pitch(&wide, &wide_pitch, width, height, element_bytes, true);
  if (result == CUDA_SUCCESS) {
    *out = static_cast<CUdeviceptr_v1>(wide);
    *pitch = static_cast<unsigned>(wide_pitch);
  }
  return result;
}

SIM_API cuMemFree(CUdeviceptr_v1 address) { return give_back(address); }

SIM_API cuMemGetInfo(unsigned* free_bytes, unsigned* total_bytes) {
  size_t wide_free = 0;
  size_t wide_total = 0;
  if (free_bytes == nullptr || total_bytes == nullptr) return kWrong;
  const CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
  *free_bytes = static_cast<unsigned>(std::min<size_t>(wide_free, UINT32_MAX));
  *total_bytes = static_cast<unsigned>(std::min<size_t>(wide_total, UINT32_MAX));
  return result;
}

SIM_API cuMemGetAddressRange(CUdeviceptr_v1* begin, unsigned* size, CUdeviceptr_v1 address) {
  CUdeviceptr wide_begin = 0;
  size_t wide_size = 0;
  const CUresult result = cuMemGetAddressRange_v2(&wide_begin, &wide_size, address);
  if (result != CUDA_SUCCESS) return result;
  if (begin != nullptr) *begin = static_cast<CUdeviceptr_v1>(wide_begin);
  if (size != nullptr) *size = static_cast<unsigned>(wide_size);
  return CUDA_SUCCESS;
}

SIM_API cuMemHostGetDevicePointer(CUdeviceptr_v1* out, void* pointer, unsigned flags) {
  CUdeviceptr wide = 0;
  const CUresult result = cuMemHostGetDevicePointer_v2(&wide, pointer, flags);
  if (result != CUDA_SUCCESS) return result;
  if (out == nullptr || wide > UINT32_MAX) return kWrong;
  *out = static_cast<CUdeviceptr_v1>(wide);
  return CUDA_SUCCESS;
}

SIM_API cuModuleGetGlobal(CUdeviceptr_v1* out, unsigned* bytes, CUmodule module, const char* name) {
  CUdeviceptr wide = 0;
  size_t wide_bytes = 0;
  const CUresult result = cuModuleGetGlobal_v2(&wide, &wide_bytes, module, name);
  if (result != CUDA_SUCCESS) return result;
  if (out != nullptr && wide > UINT32_MAX) return kWrong;
  if (out != nullptr) *out = static_cast<CUdeviceptr_v1>(wide);
  if (bytes != nullptr) *bytes = static_cast<unsigned>(wide_bytes);
  return CUDA_SUCCESS;
}
