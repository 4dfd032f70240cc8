// Which devices may touch what was allocated on which: the driver grants that by context for its
// own allocations, but by mapping for mapped memory, so the arena does it for the mappings it
// makes, those to come included. Any thread.
//
//   cuCtxEnablePeerAccess, cuMemPoolSetAccess --> (source, owner's ordinal, ordinal that may)
#pragma once

#include "shim/residence/backings.h"

namespace lull::shim {

// After the driver's success, in the context that was given access or lost it.
CUresult peer_access_enabled(CUcontext peer);
void peer_access_disabled(CUcontext peer);
CUresult pool_access_changed(CUmemoryPool pool, CUdevice owner, CUdevice ordinal, bool granted);
// Before the arena forgets a context's allocations.
void peer_access_of_gone(const void* source);
void forget_peer_access();

// --- under arena_lock ---
// The rights of what is allocated on the device.
void fill_access(CUdevice owner, uint8_t (&access)[kMaxOrdinals]);
// Changes whenever they do.
uint64_t access_generation();

}  // namespace lull::shim
