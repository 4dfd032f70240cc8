#include "shim/residence/program_handles.h"

#include "shim/residence/service.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

// Under arena_lock: the memory that nobody has any more goes. The driver's handle to release; 0:
// none.
CUmemGenericAllocationHandle drop_if_unused(Backing& backing) {
  if (backing.references > 0 || backing.mappings != nullptr) return 0;
  const CUmemGenericAllocationHandle handle = backing.handle;
  remove_backing(backing);
  return handle;
}

bool is_whole(const MappingRange& range, uint64_t address, uint64_t bytes) {
  uint64_t at = address;
  for (const Mapping* mapping : range) {
    if (mapping->address != at) return false;
    at += mapping->bytes;
  }
  return at == address + bytes;
}

}  // namespace

void handle_created(CUmemGenericAllocationHandle& handle, uint64_t bytes,
                    const CUmemAllocationProp& properties, uint32_t device, Fixed fixed) {
  {
    Locked locked(arena_lock);
    Backing* backing = add_backing(handle, bytes, properties, device);
    if (backing == nullptr) {
      fixed_memory_made(Fixed::kNoTable);
      return;
    }
    backing->references = 1;
    if (fixed != Fixed::kNot) {
      fix_backing(backing, fixed);
    } else {
      change_counted(*backing, static_cast<int64_t>((bytes + 511) / 512 * 512));
    }
    handle = token_of(*backing);
  }
  tell_service();
}

CUmemGenericAllocationHandle real_handle(CUmemGenericAllocationHandle handle) {
  Locked locked(arena_lock);
  const Backing* backing = backing_of_token(handle);
  return backing != nullptr ? backing->handle : handle;
}

void fix_handle(CUmemGenericAllocationHandle handle, Fixed kind) {
  {
    Locked locked(arena_lock);
    fix_backing(backing_of_token(handle), kind);
  }
  tell_service();
}

void fix_address(CUdeviceptr address, uint64_t bytes, Fixed kind) {
  {
    Locked locked(arena_lock);
    if (Mapping* first = mapping_at(address)) fix_backing(first->backing, kind);
    for (Mapping* mapping : mappings_in(address, bytes)) fix_backing(mapping->backing, kind);
  }
  tell_service();
}

CUresult release_handle(CUmemGenericAllocationHandle handle) {
  CUmemGenericAllocationHandle real = handle;
  {
    Locked locked(arena_lock);
    if (Backing* backing = backing_of_token(handle)) {
      --backing->references;
      real = drop_if_unused(*backing);
      if (real == 0) return CUDA_SUCCESS;
    }
  }
  OwnCall own(thread_state);
  const CUresult result = driver().cuMemRelease(real);
  tell_service();
  return result;
}

bool is_plain_to_program(CUdeviceptr address) {
  Locked locked(arena_lock);
  const Mapping* mapping = mapping_at(address);
  return mapping != nullptr && mapping->backing->ours;
}

CUresult retain_handle(CUmemGenericAllocationHandle* handle, CUdeviceptr address) {
  {
    Locked locked(arena_lock);
    if (Mapping* mapping = mapping_at(address)) {
      if (handle == nullptr || mapping->backing->ours) return CUDA_ERROR_INVALID_VALUE;
      ++mapping->backing->references;
      *handle = token_of(*mapping->backing);
      return CUDA_SUCCESS;
    }
  }
  OwnCall own(thread_state);
  return driver().cuMemRetainAllocationHandle(handle, reinterpret_cast<void*>(address));
}

CUresult map_handle(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  OwnCall own(thread_state);
  const CUmemGenericAllocationHandle real = real_handle(handle);
  const CUresult result = driver().cuMemMap(address, bytes, offset, real, flags);
  if (result != CUDA_SUCCESS || real == handle) return result;
  {
    Locked locked(arena_lock);
    Backing* backing = backing_of_token(handle);
    if (backing == nullptr) return result;  // released by another thread meanwhile
    if (add_mapping(*backing, address, bytes, offset) != nullptr) {
      if (flags != 0) fix_backing(backing, Fixed::kMappedOnce);
      return result;
    }
  }
  driver().cuMemUnmap(address, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult unmap_range(CUdeviceptr address, uint64_t bytes) {
  OwnCall own(thread_state);
  if (is_plain_to_program(address)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver().cuMemUnmap(address, bytes);
  if (result != CUDA_SUCCESS) return result;
  for (;;) {
    CUmemGenericAllocationHandle unused = 0;
    {
      Locked locked(arena_lock);
      const MappingRange range = mappings_in(address, bytes);
      if (range.begin() == range.end()) break;
      Mapping& mapping = **range.begin();
      Backing& backing = *mapping.backing;
      remove_mapping(mapping);
      unused = drop_if_unused(backing);
    }
    if (unused != 0) driver().cuMemRelease(unused);
  }
  tell_service();
  return result;
}

CUresult set_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* rights,
                    size_t count) {
  OwnCall own(thread_state);
  if (is_plain_to_program(address)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver().cuMemSetAccess(address, bytes, rights, count);
  if (result != CUDA_SUCCESS) return result;
  Locked locked(arena_lock);
  const MappingRange range = mappings_in(address, bytes);
  if (!is_whole(range, address, bytes)) {
    // A driver that grants parts of a mapping: they cannot be told from the rest here.
    Mapping* first = mapping_at(address);
    if (first != nullptr) fix_backing(first->backing, Fixed::kPartAccess);
    for (Mapping* mapping : range) fix_backing(mapping->backing, Fixed::kPartAccess);
    return result;
  }
  for (Mapping* mapping : range) {
    for (size_t n = 0; n < count; ++n) {
      const CUmemLocation& of = rights[n].location;
      if (of.type == CU_MEM_LOCATION_TYPE_DEVICE && of.id >= 0 && of.id < kMaxOrdinals) {
        mapping->access[of.id] = static_cast<uint8_t>(rights[n].flags);
      } else {
        fix_backing(mapping->backing, Fixed::kHostAccess);
      }
    }
  }
  return result;
}

}  // namespace lull::shim
