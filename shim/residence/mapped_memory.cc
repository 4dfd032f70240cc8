#include "shim/residence/mapped_memory.h"

#include "shim/thread_state.h"

namespace lull::shim {

namespace {

struct DeviceFacts {
  std::atomic<uint32_t> known;  // 0 not asked, 1 it can map, 2 it cannot
  std::atomic<uint64_t> granularity;
  std::atomic<uint32_t> handle_types;
  std::atomic<uint32_t> rdma;
};
DeviceFacts facts[kMaxOrdinals];

CUmemAllocationProp properties_of(CUdevice ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(
      facts[ordinal].handle_types.load(std::memory_order_relaxed));
  properties.allocFlags.gpuDirectRDMACapable =
      facts[ordinal].rdma.load(std::memory_order_relaxed) != 0;
  return properties;
}

bool has(CUdevice_attribute attribute, CUdevice ordinal) {
  int value = 0;
  return driver().cuDeviceGetAttribute(&value, attribute, ordinal) == CUDA_SUCCESS && value != 0;
}

// Memory as the driver's own allocations are: fit for RDMA, and to be exported, where that can be
// had.
bool ask(CUdevice ordinal) {
  OwnCall own(thread_state);
  DeviceFacts& of = facts[ordinal];
  bool maps = has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
  if (maps) {
    of.handle_types.store(
        has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal)
            ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            : CU_MEM_HANDLE_TYPE_NONE,
        std::memory_order_relaxed);
    of.rdma.store(has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, ordinal),
                  std::memory_order_relaxed);
    size_t granularity = 0;
    const CUmemAllocationProp properties = properties_of(ordinal);
    maps = driver().cuMemGetAllocationGranularity(
               &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
           granularity != 0 && (granularity & (granularity - 1)) == 0;
    of.granularity.store(granularity, std::memory_order_relaxed);
  }
  // Release: pairs with the acquire in `can_map`.
  of.known.store(maps ? 1 : 2, std::memory_order_release);
  return maps;
}

// What the driver does not give with all that was wished, it may give without.
CUresult create(MappedMemory& made, CUdevice ordinal) {
  made.properties = properties_of(ordinal);
  CUresult result = driver().cuMemCreate(&made.handle, made.bytes, &made.properties, 0);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) return result;
  if (made.properties.allocFlags.gpuDirectRDMACapable != 0) {
    made.properties.allocFlags.gpuDirectRDMACapable = 0;
    result = driver().cuMemCreate(&made.handle, made.bytes, &made.properties, 0);
    if (result == CUDA_SUCCESS) facts[ordinal].rdma.store(0, std::memory_order_relaxed);
  }
  return result;
}

}  // namespace

bool can_map(CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= kMaxOrdinals) return false;
  const uint32_t known = facts[ordinal].known.load(std::memory_order_acquire);
  return known != 0 ? known == 1 : ask(ordinal);
}

uint64_t granularity_of(CUdevice ordinal) {
  return facts[ordinal].granularity.load(std::memory_order_relaxed);
}

bool can_export(CUdevice ordinal) {
  return can_map(ordinal) && facts[ordinal].handle_types.load(std::memory_order_relaxed) ==
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

CUresult give_access(CUdeviceptr address, uint64_t bytes, const uint8_t* access) {
  CUmemAccessDesc rights[kMaxOrdinals];
  size_t count = 0;
  for (int ordinal = 0; ordinal < kMaxOrdinals; ++ordinal) {
    if (access[ordinal] == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
    rights[count].location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    rights[count++].flags = static_cast<CUmemAccess_flags>(access[ordinal]);
  }
  return count == 0 ? CUDA_SUCCESS : driver().cuMemSetAccess(address, bytes, rights, count);
}

CUresult change_access(CUdeviceptr address, uint64_t bytes, CUdevice ordinal, uint8_t flags) {
  CUmemAccessDesc right{};
  right.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  right.flags = static_cast<CUmemAccess_flags>(flags);
  return driver().cuMemSetAccess(address, bytes, &right, 1);
}

CUresult make_mapped(CUdevice ordinal, uint64_t bytes, const uint8_t* access, MappedMemory& made) {
  OwnCall own(thread_state);
  made = MappedMemory{};
  made.bytes = bytes;
  CUresult result = create(made, ordinal);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemAddressReserve(&made.address, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) {
    driver().cuMemRelease(made.handle);
    return result;
  }
  result = driver().cuMemMap(made.address, bytes, 0, made.handle, 0);
  const bool is_mapped = result == CUDA_SUCCESS;
  if (is_mapped) result = give_access(made.address, bytes, access);
  if (result != CUDA_SUCCESS) drop_mapped(made.address, bytes, made.handle, is_mapped);
  return result;
}

CUdeviceptr map_again(CUmemGenericAllocationHandle handle, uint64_t bytes, const uint8_t* access) {
  OwnCall own(thread_state);
  CUdeviceptr address = 0;
  if (driver().cuMemAddressReserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS) return 0;
  const bool is_mapped = driver().cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS;
  if (is_mapped && give_access(address, bytes, access) == CUDA_SUCCESS) return address;
  drop_mapped(address, bytes, 0, is_mapped);
  return 0;
}

void drop_mapped(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle,
                 bool is_mapped) {
  OwnCall own(thread_state);
  if (is_mapped) driver().cuMemUnmap(address, bytes);
  if (handle != 0) driver().cuMemRelease(handle);
  driver().cuMemAddressFree(address, bytes);
}

CUresult map_at(const Mapping& mapping, CUmemGenericAllocationHandle handle) {
  OwnCall own(thread_state);
  CUresult result = driver().cuMemMap(mapping.address, mapping.bytes, mapping.offset, handle, 0);
  if (result != CUDA_SUCCESS) return result;
  result = give_access(mapping.address, mapping.bytes, mapping.access);
  if (result != CUDA_SUCCESS) driver().cuMemUnmap(mapping.address, mapping.bytes);
  return result;
}

}  // namespace lull::shim
