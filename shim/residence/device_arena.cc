#include "shim/residence/device_arena.h"

#include "shim/residence/allocations.h"
#include "shim/residence/ipc_memory.h"
#include "shim/residence/mapped_memory.h"
#include "shim/residence/peer_access.h"
#include "shim/residence/pools.h"
#include "shim/thread_state.h"

namespace lull::shim {

void visit_backings(bool (*visit)(Backing&, void*), void* data) {
  Records<Backing>& backings = all_backings();
  for (uint32_t index = 0; index < backings.count(); ++index) {
    Backing& backing = *backings.at(index);
    if (backing.head.in_use && backing.fixed == Fixed::kNot && !visit(backing, data)) return;
  }
}

CUdeviceptr begin_copying(Backing& backing) {
  const CUdevice ordinal = backing.properties.location.id;
  for (const Mapping* mapping = backing.mappings; mapping != nullptr; mapping = mapping->next) {
    if (mapping->offset == 0 && mapping->bytes == backing.bytes &&
        mapping->access[ordinal] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return mapping->address;
    }
  }
  uint8_t access[kMaxOrdinals] = {};
  access[ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  backing.copying = map_again(backing.handle, backing.bytes, access);
  return backing.copying;
}

void end_copying(Backing& backing) {
  if (backing.copying == 0) return;
  drop_mapped(backing.copying, backing.bytes, /*handle=*/0, /*is_mapped=*/true);
  backing.copying = 0;
}

CUresult release_backing(Backing& backing) {
  OwnCall own(thread_state);
  const auto map_before = [&](const Mapping* end) {
    for (const Mapping* mapping = backing.mappings; mapping != end; mapping = mapping->next) {
      map_at(*mapping, backing.handle);
    }
  };
  for (const Mapping* mapping = backing.mappings; mapping != nullptr; mapping = mapping->next) {
    const CUresult result = driver().cuMemUnmap(mapping->address, mapping->bytes);
    if (result == CUDA_SUCCESS) continue;
    map_before(mapping);
    return result;
  }
  const CUresult result = driver().cuMemRelease(backing.handle);
  if (result != CUDA_SUCCESS) {
    map_before(nullptr);
    return result;
  }
  backing.handle = 0;
  backing.present = false;
  return CUDA_SUCCESS;
}

CUresult restore_backing(Backing& backing) {
  OwnCall own(thread_state);
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver().cuMemCreate(&handle, backing.bytes, &backing.properties, 0);
  if (result != CUDA_SUCCESS) return result;
  const Mapping* mapping = backing.mappings;
  for (; mapping != nullptr && result == CUDA_SUCCESS; mapping = mapping->next) {
    result = map_at(*mapping, handle);
    if (result != CUDA_SUCCESS) break;
  }
  if (result != CUDA_SUCCESS) {
    for (const Mapping* undo = backing.mappings; undo != mapping; undo = undo->next) {
      driver().cuMemUnmap(undo->address, undo->bytes);
    }
    driver().cuMemRelease(handle);
    return result;
  }
  backing.handle = handle;
  backing.present = true;
  return CUDA_SUCCESS;
}

// In this order.
void lock_arena() {
  lock_ipc_memory();
  arena_lock.lock();
}
void unlock_arena() {
  arena_lock.unlock();
  unlock_ipc_memory();
}

void forget_arena() {
  forget_backings();
  forget_allocations();
  forget_pools();
  forget_peer_access();
  forget_ipc_memory();
}

}  // namespace lull::shim
