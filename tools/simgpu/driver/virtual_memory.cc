// Virtual memory management: addresses that are reserved, physical memory, and the two together.
// Errors are the driver's; where its documentation leaves a choice, README.md says what was chosen.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tools/simgpu/device/cost_model.h"
#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/state.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
constexpr uint64_t kGranularityBytes = uint64_t{2} << 20;
constexpr uint64_t kPageBytes = 4096;

bool is_granular(uint64_t value) { return value % kGranularityBytes == 0; }

// What may be asked for; CUDA_SUCCESS: memory of a device that the program sees.
CUresult check_properties(const State& state, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return kWrong;
  switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;  // the device attributes say so
    default:
      return kWrong;
  }
  if (!state.is_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if ((properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ||
      properties->allocFlags.usage != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return properties->win32HandleMetaData == nullptr ? CUDA_SUCCESS : kWrong;
}

// The entry of a handle that has not been released.
MemoryHandle* find_handle(State& state, CUmemGenericAllocationHandle handle) {
  const auto found = state.memory_handles.find(handle);
  if (found == state.memory_handles.end() || found->second.references == 0) return nullptr;
  return &found->second;
}

CUmemGenericAllocationHandle add_handle(State& state, std::shared_ptr<Physical> physical) {
  const uint64_t handle = state.new_handle();
  ++physical->users;
  state.memory_handles[handle] = {std::move(physical), 1, 0};
  return handle;
}

// One reference or mapping less. The memory goes with the last one.
void let_go(State& state, uint64_t handle, int MemoryHandle::*user) {
  const auto found = state.memory_handles.find(handle);
  MemoryHandle& entry = found->second;
  const std::shared_ptr<Physical> physical = entry.physical;
  --(entry.*user);
  if (entry.references == 0 && entry.mappings == 0) state.memory_handles.erase(found);
  if (--physical->users > 0) return;
  if (physical->block != 0) {
    state.device->leave(physical->block);
  } else {
    state.device->drop(state.visible[physical->device()], physical->size_bytes);
  }
  state.memory.store().destroy(*physical);
}

CUresult export_descriptor(State& state, MemoryHandle& handle, int* out) {
  Physical& physical = *handle.physical;
  if (physical.file < 0) {
    const uint32_t device = state.visible[physical.device()];
    const auto block = state.device->share(device, physical.size_bytes);
    if (!block) return to_result(block.error());
    exported_memory what = {};
    what.origin_ns = state.device->clock().origin_ns;
    what.size_bytes = physical.size_bytes;
    what.block = *block;
    what.device = device;
    what.properties = physical.properties;
    const auto alone = state.memory.hold_alone();
    if (!state.memory.store().move_to_file(physical, what)) {
      state.device->leave(*block);
      state.device->hold(device, physical.size_bytes);  // what the block took
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!state.memory.put_again(physical)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = fcntl(physical.file, F_DUPFD_CLOEXEC, 0);
  return *out >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace

SIM_API cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr hint,
                            unsigned long long flags) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (out == nullptr || bytes == 0 || bytes % kPageBytes != 0 || hint % kPageBytes != 0 ||
      (alignment != 0 && !std::has_single_bit(alignment)) || flags != 0) {
    return kWrong;
  }
  constexpr size_t kMost = size_t{1} << 46;
  if (bytes > kMost || alignment > kMost) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t begin = call.state.memory.reserve(bytes, alignment, hint);
  if (begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = begin;
  call.spend(call.state.profile(0).vmm_reserve_ns);
  return CUDA_SUCCESS;
}

SIM_API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  {
    const auto alone = call.state.memory.hold_alone();
    if (!call.state.memory.unreserve(address, bytes)) return kWrong;
  }
  call.spend(call.state.profile(0).vmm_reserve_ns);
  return CUDA_SUCCESS;
}

SIM_API cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp* properties,
                                      CUmemAllocationGranularity_flags option) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
    return kWrong;
  }
  if (const CUresult wrong = check_properties(call.state, properties)) return wrong;
  *out = kGranularityBytes;
  return CUDA_SUCCESS;
}

SIM_API cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                    const CUmemAllocationProp* properties, unsigned long long flags) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (out == nullptr || bytes == 0 || !is_granular(bytes) || flags != 0) return kWrong;
  if (const CUresult wrong = check_properties(call.state, properties)) return wrong;
  const uint32_t device = call.state.visible[properties->location.id];
  const simgpu::Status granted = call.state.device->hold(device, bytes);
  if (granted != simgpu::Status::kOk) return to_result(granted);
  CUmemAllocationProp kept = *properties;
  kept.allocFlags.compressionType = 0;  // asked for, not given
  auto physical = call.state.memory.store().create(bytes, kept);
  if (!physical) {
    call.state.device->drop(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = add_handle(call.state, std::move(physical));
  const auto& profile = call.state.profile(properties->location.id);
  call.spend(simgpu::memory_call_ns(profile.vmm_create_ns, profile.vmm_create_ns_per_gib, bytes));
  return CUDA_SUCCESS;
}

SIM_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  MemoryHandle* const found = find_handle(call.state, handle);
  if (found == nullptr) return kWrong;
  const auto physical = found->physical;
  const uint64_t bytes = physical->users == 1 ? physical->size_bytes : 0;
  const auto& profile = call.state.profile(physical->device());
  let_go(call.state, handle, &MemoryHandle::references);
  call.spend(simgpu::memory_call_ns(profile.vmm_release_ns, profile.vmm_release_ns_per_gib, bytes));
  return CUDA_SUCCESS;
}

SIM_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                 CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (bytes == 0 || !is_granular(address) || !is_granular(bytes) || offset != 0 || flags != 0) {
    return kWrong;
  }
  MemoryHandle* const found = find_handle(call.state, handle);
  if (found == nullptr || bytes > found->physical->size_bytes) return kWrong;
  MemoryRange range;
  range.begin = address;
  range.size_bytes = bytes;
  range.physical = found->physical;
  range.handle = handle;
  range.device = found->physical->device();
  {
    const auto alone = call.state.memory.hold_alone();
    if (const CUresult refused = call.state.memory.map(range)) return refused;
  }
  ++found->mappings;
  ++found->physical->users;
  const auto& profile = call.state.profile(range.device);
  call.spend(simgpu::memory_call_ns(profile.vmm_map_ns, profile.vmm_map_ns_per_gib, bytes));
  return CUDA_SUCCESS;
}

// Does not wait for work: an op that still uses the memory fails its context.
SIM_API cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (bytes == 0 || !is_granular(address) || !is_granular(bytes)) return kWrong;
  std::vector<MemoryRange> removed;
  {
    const auto alone = call.state.memory.hold_alone();
    removed = call.state.memory.unmap(address, bytes);
  }
  if (removed.empty()) return kWrong;
  const auto& profile = call.state.profile(removed.front().device);
  for (const MemoryRange& range : removed) {
    let_go(call.state, range.handle, &MemoryHandle::mappings);
  }
  call.spend(simgpu::memory_call_ns(profile.vmm_unmap_ns, profile.vmm_unmap_ns_per_gib, bytes));
  return CUDA_SUCCESS;
}

SIM_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                       size_t count) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (bytes == 0 || !is_granular(address) || !is_granular(bytes) || access == nullptr ||
      count == 0) {
    return kWrong;
  }
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return kWrong;
    if (!call.state.is_device(access[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return kWrong;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (!call.state.memory.set_access(address, bytes, access[i].location.id,
                                      static_cast<uint8_t>(access[i].flags))) {
      return kWrong;
    }
  }
  const auto& profile = call.state.profile(access[0].location.id);
  call.spend(simgpu::memory_call_ns(profile.vmm_access_ns, profile.vmm_access_ns_per_gib, bytes));
  return CUDA_SUCCESS;
}

SIM_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                       CUdeviceptr address) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return kWrong;
  }
  if (!call.state.is_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  const auto range = call.state.memory.find(address);
  if (!range || range->kind != MemoryKind::kMapped) return kWrong;
  *flags = range->access[location->id];
  return CUDA_SUCCESS;
}

SIM_API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  const auto range = call.state.memory.find(address);
  if (out == nullptr || !range || range->kind != MemoryKind::kMapped) return kWrong;
  MemoryHandle& entry = call.state.memory_handles.at(range->handle);
  ++entry.references;
  ++entry.physical->users;
  *out = range->handle;
  return CUDA_SUCCESS;
}

SIM_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out,
                                               CUmemGenericAllocationHandle handle) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  const MemoryHandle* const found = find_handle(call.state, handle);
  if (out == nullptr || found == nullptr) return kWrong;
  *out = found->physical->properties;
  return CUDA_SUCCESS;
}

SIM_API cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                     CUmemAllocationHandleType type, unsigned long long flags) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  MemoryHandle* const found = find_handle(call.state, handle);
  if (out == nullptr || found == nullptr || flags != 0) return kWrong;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      (found->physical->properties.requestedHandleTypes & type) == 0) {
    return kWrong;
  }
  int descriptor = -1;
  const CUresult result = export_descriptor(call.state, *found, &descriptor);
  if (result == CUDA_SUCCESS) std::memcpy(out, &descriptor, sizeof descriptor);
  return result;
}

SIM_API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                       CUmemAllocationHandleType type) {
  Call call(Call::kUnfailed);
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int descriptor = static_cast<int>(reinterpret_cast<uintptr_t>(os_handle));
  auto what = PhysicalStore::read_file(descriptor);
  if (!what) return what.error();
  State& state = call.state;
  const auto ordinal = std::ranges::find(state.visible, what->device);
  if (what->origin_ns != state.device->clock().origin_ns || ordinal == state.visible.end()) {
    return CUDA_ERROR_NOT_SUPPORTED;  // memory of a device that this program does not have
  }
  for (const auto& [handle, entry] : state.memory_handles) {
    if (entry.physical->block != what->block) continue;
    *out = add_handle(state, entry.physical);
    return CUDA_SUCCESS;
  }
  const simgpu::Status joined = state.device->join(what->block, what->device, what->size_bytes);
  if (joined != simgpu::Status::kOk) return to_result(joined);
  what->properties.location.id = static_cast<int>(ordinal - state.visible.begin());
  auto physical = state.memory.store().open_file(descriptor, *what);
  if (!physical) {
    state.device->leave(what->block);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = add_handle(state, std::move(physical));
  return CUDA_SUCCESS;
}
