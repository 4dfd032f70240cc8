// The program's device memory on the driver's virtual memory management: addresses that stay, and physical
// memory behind them that can be taken away and brought back.
//
//   cuMemAlloc, pitch, ..Async, pools  --> block: its own physical memory where it is large, a piece of a
//                                          slab where it is small
//   cuMemCreate / cuMemMap of the program --> the program holds a handle of ours; the driver's stands behind it
//
//   Backing   physical memory: one driver's handle, the addresses it is mapped at, and their access rights
//             behind an address: present <--release_backing / restore_backing--> absent
//
// Only in processes that can be moved (memory_gate.h); everywhere else every call goes to the driver as it
// came. Calls of the program come with a MemoryUse held, from any thread; those of the mover with the gate
// shut. Never: memory that others share (exported, imported, IPC), managed memory, arrays, memory of graphs.
// Those stay where they are, and `fixed_memory` says how much and why.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

struct Mapping;

struct Backing {
  CUmemGenericAllocationHandle handle;  // the driver's; 0 while absent
  uint64_t bytes;                       // a multiple of the granularity
  CUmemAllocationProp properties;       // location.id: the program's ordinal
  uint32_t device;                      // index in lull_client.device
  Mapping* mappings;                    // where it is mapped; none: the program holds a handle only
  uint64_t host_offset;                 // the mover's: where its contents are in the host arena
  bool present;
};

// Calls `visit` for each backing that can be swapped, in no particular order, until it returns false.
void visit_backings(bool (*visit)(Backing&, void*), void* data);
// An address at which a context of that device can read and write the whole backing. Where the program has
// not mapped it, or not with access, one of the shim's own until `end_copying`. 0: the driver refused.
CUdeviceptr begin_copying(Backing& backing);
void end_copying(Backing& backing);
// Unmaps it everywhere and gives the memory to the device. Nothing of the program's may use it any more.
CUresult release_backing(Backing& backing);
// New memory behind the same addresses, with the same rights; contents are undefined. On an error (mostly
// CUDA_ERROR_OUT_OF_MEMORY) nothing has changed.
CUresult restore_backing(Backing& backing);

uint64_t swappable_bytes(uint32_t device);  // of present and absent ones
uint64_t fixed_bytes(uint32_t device);
// One line; empty: nothing is fixed. Points to a static text.
const char* fixed_memory_reason();

}  // namespace lull::shim
