// Memory pools whose allocations the arena serves: those on one device that cannot be exported. The
// driver keeps the pool itself, its attributes and its rights; what the arena handed out is added
// to what it says is in use. Any thread; `arena_lock` where it says so.
#pragma once

#include "shim/driver.h"

namespace lull::shim {

// After the driver's success.
void pool_created(CUmemoryPool pool, const CUmemPoolProps& properties);
void pool_destroyed(CUmemoryPool pool);
// Ordinal of its memory; -1: the driver serves it.
CUdevice served_pool(CUmemoryPool pool);
// The pool of cuMemAllocAsync on the device; null: the driver serves it.
CUmemoryPool current_pool(CUdevice ordinal);
// Adds to the driver's answer.
void correct_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
void pool_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute);
void forget_pools();

// --- under arena_lock ---
// False: over its greatest size.
bool take_from_pool(CUmemoryPool pool, uint64_t bytes);
void give_to_pool(CUmemoryPool pool, uint64_t bytes);

}  // namespace lull::shim
