#include "shim/residence/pools.h"

#include <string.h>

#include "shim/residence/backings.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

// A pool that finds no place is the driver's.
constexpr uint32_t kMaxPools = 256;

struct Pool {
  CUmemoryPool handle;
  CUdevice ordinal;
  uint64_t max_bytes;  // 0: none
  uint64_t used_bytes;
  uint64_t high_bytes;
};
// Under arena_lock.
Pool pools[kMaxPools];
uint32_t pool_count;

Pool* find(CUmemoryPool handle) {
  for (uint32_t n = 0; n < pool_count; ++n) {
    if (pools[n].handle == handle) return &pools[n];
  }
  return nullptr;
}

void add(CUmemoryPool handle, CUdevice ordinal, uint64_t max_bytes) {
  Locked locked(arena_lock);
  Pool* pool = find(handle);
  if (pool == nullptr && pool_count < kMaxPools) pool = &pools[pool_count++];
  if (pool != nullptr) *pool = Pool{handle, ordinal, max_bytes, 0, 0};
}

CUdevice ordinal_of(CUmemoryPool handle) {
  Locked locked(arena_lock);
  const Pool* pool = find(handle);
  return pool != nullptr ? pool->ordinal : -1;
}

}  // namespace

void pool_created(CUmemoryPool pool, const CUmemPoolProps& properties) {
  if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE || properties.location.id < 0 ||
      properties.location.id >= kMaxOrdinals) {
    return;
  }
  add(pool, properties.location.id, properties.maxSize);
}

void pool_destroyed(CUmemoryPool handle) {
  Locked locked(arena_lock);
  if (Pool* pool = find(handle)) *pool = pools[--pool_count];
}

// Default pools are there from the beginning.
CUdevice served_pool(CUmemoryPool handle) {
  const CUdevice known = ordinal_of(handle);
  if (known >= 0) return known;
  OwnCall own(thread_state);
  int count = 0;
  if (driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return -1;
  for (CUdevice ordinal = 0; ordinal < count && ordinal < kMaxOrdinals; ++ordinal) {
    CUmemoryPool pool = nullptr;
    if (driver().cuDeviceGetDefaultMemPool(&pool, ordinal) != CUDA_SUCCESS || pool != handle)
      continue;
    add(handle, ordinal, 0);
    return ordinal;
  }
  return -1;
}

CUmemoryPool current_pool(CUdevice ordinal) {
  CUmemoryPool pool = nullptr;
  {
    OwnCall own(thread_state);
    if (driver().cuDeviceGetMemPool(&pool, ordinal) != CUDA_SUCCESS) return nullptr;
  }
  return served_pool(pool) == ordinal ? pool : nullptr;
}

void correct_pool_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Locked locked(arena_lock);
  const Pool* pool = find(handle);
  if (pool == nullptr || value == nullptr) return;
  uint64_t more;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      more = pool->used_bytes;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      more = pool->high_bytes;
      break;
    default:
      return;
  }
  uint64_t bytes;
  memcpy(&bytes, value, sizeof bytes);
  bytes += more;
  memcpy(value, &bytes, sizeof bytes);
}

void pool_attribute_set(CUmemoryPool handle, CUmemPool_attribute attribute) {
  if (attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    return;
  Locked locked(arena_lock);
  if (Pool* pool = find(handle)) pool->high_bytes = pool->used_bytes;
}

void forget_pools() { pool_count = 0; }

bool take_from_pool(CUmemoryPool handle, uint64_t bytes) {
  Pool* pool = find(handle);
  if (pool == nullptr) return true;
  if (pool->max_bytes != 0 && pool->used_bytes + bytes > pool->max_bytes) return false;
  pool->used_bytes += bytes;
  if (pool->used_bytes > pool->high_bytes) pool->high_bytes = pool->used_bytes;
  return true;
}

void give_to_pool(CUmemoryPool handle, uint64_t bytes) {
  Pool* pool = handle != nullptr ? find(handle) : nullptr;
  if (pool != nullptr) pool->used_bytes -= bytes < pool->used_bytes ? bytes : pool->used_bytes;
}

}  // namespace lull::shim
