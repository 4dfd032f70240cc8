// Memory pools: what the arena handed out in their name.
#include "shim/hooks/moves.h"
#include "shim/residence/allocations.h"
#include "shim/residence/memory_gate.h"
#include "shim/residence/peer_access.h"
#include "shim/residence/pools.h"
#include "shim/submit.h"

using namespace lull::shim;

LULL_ENTRY(cuMemPoolCreate)(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const bool arena = moves();
  const CUresult result =
      forward(thread_state, [&] { return driver().cuMemPoolCreate(pool, properties); });
  if (result == CUDA_SUCCESS && arena) pool_created(*pool, *properties);
  return result;
}
LULL_ENTRY(cuMemPoolDestroy)(CUmemoryPool pool) {
  MemoryUse use(thread_state);
  const bool arena = moves();
  const CUresult result = forward(thread_state, [&] { return driver().cuMemPoolDestroy(pool); });
  if (result == CUDA_SUCCESS && arena) {
    pool_of_blocks_gone(pool);
    peer_access_of_gone(pool);
    pool_destroyed(pool);
  }
  return result;
}
LULL_ENTRY(cuMemPoolTrimTo)(CUmemoryPool pool, size_t bytes) {
  MemoryUse use(thread_state);
  if (moves()) reclaim_freed();
  return forward(thread_state, [&] { return driver().cuMemPoolTrimTo(pool, bytes); });
}
LULL_ENTRY(cuMemPoolGetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  MemoryUse use(thread_state);
  const bool arena = moves();
  if (arena) reclaim_freed();
  const CUresult result =
      forward(thread_state, [&] { return driver().cuMemPoolGetAttribute(pool, attribute, value); });
  if (result == CUDA_SUCCESS && arena) correct_pool_attribute(pool, attribute, value);
  return result;
}
LULL_ENTRY(cuMemPoolSetAttribute)(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const bool arena = moves();
  const CUresult result =
      forward(thread_state, [&] { return driver().cuMemPoolSetAttribute(pool, attribute, value); });
  if (result == CUDA_SUCCESS && arena) pool_attribute_set(pool, attribute);
  return result;
}
LULL_ENTRY(cuMemPoolSetAccess)(CUmemoryPool pool, const CUmemAccessDesc* rights, size_t count) {
  MemoryUse use(thread_state);
  Cancellation off;
  const bool arena = moves();
  const CUresult result =
      forward(thread_state, [&] { return driver().cuMemPoolSetAccess(pool, rights, count); });
  if (result != CUDA_SUCCESS || !arena) return result;
  const CUdevice owner = served_pool(pool);
  for (size_t n = 0; owner >= 0 && n < count; ++n) {
    if (rights[n].location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
    const CUresult changed = pool_access_changed(pool, owner, rights[n].location.id,
                                                 rights[n].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
    if (changed != CUDA_SUCCESS) return changed;
  }
  return result;
}
