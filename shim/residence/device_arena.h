// The program's device memory on the driver's virtual memory management: addresses that stay, and
// physical memory behind them that can be taken away and brought back.
//
//   cuMemAlloc, pitch, ..Async, pools  --> block: its own physical memory where it is large, a
//   piece of a
//                                          slab where it is small
//   cuMemCreate / cuMemMap of the program --> the program holds a handle of ours; the driver's
//   stands behind it
//
//   Backing   physical memory: one driver's handle, the addresses it is mapped at, and their access
//   rights
//             behind an address: present <--release_backing / restore_backing--> absent
//
// Only in processes that can be moved (memory_gate.h); everywhere else every call goes to the
// driver as it came. Calls of the program come with a MemoryUse held, from any thread; those of the
// mover with the gate shut. Never: memory that others share (exported, imported, IPC), managed
// memory, arrays, memory of graphs. Those stay where they are, and `fixed_bytes` says how much and
// `fixed_kinds` why.
//
//   allocations.h, blocks.h     program_handles.h  the program's own      peer_access.h  rights
//        |  slab.h (pieces)            |                                     |
//        +------------> backings.h (tables, under one lock) <----------------+
//                            |   mapped_memory.h (the driver's calls)
//   ipc_memory.h, pointer_facts.h, pools.h: what others and queries see
#pragma once

#include <stdint.h>

#include "coordinator/channel/fixed_memory.h"
#include "shim/driver.h"
#include "shim/residence/records.h"

namespace lull::shim {

using channel::Fixed;

struct Mapping;
struct Block;
class Slab;

struct Backing {
  RecordHead head;
  CUmemGenericAllocationHandle handle;  // the driver's; 0 while absent
  uint64_t bytes;                       // a multiple of the granularity
  CUmemAllocationProp properties;       // location.id: the program's ordinal
  uint32_t device;                      // index in lull_client.device
  Mapping* mappings;                    // where it is mapped; none: the program holds a handle only
  uint64_t host_offset;                 // the mover's: where its contents are in the host arena
  bool present;
  // The arena's alone (backings.h).
  bool ours;             // of an allocation, not of the program's own cuMemCreate
  uint32_t references;   // that the program has to its handle
  Fixed fixed;           // why it cannot be swapped; kNot: it can
  bool shared;           // others may ask for it (ipc_memory.h)
  uint64_t counted;      // what device_memory counts for what is in it
  Slab* slab;            // ours: it is cut into pieces
  Block* block;          // ours: it is one allocation
  CUdeviceptr copying;   // the address of the shim's own between begin_copying and end_copying
};

// Calls `visit` for each backing that can be swapped, in no particular order, until it returns false. With
// the gate shut: the table is not locked meanwhile.
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
// What stays when the rest goes: known to the arena, counted by device_memory and not in the arena,
// and memory of graphs. Of arrays a lower bound.
uint64_t fixed_bytes(uint32_t device);
uint64_t fixed_kinds();  // bits (fixed_memory.h); 0: nothing is fixed
// One line for one of the kinds, one that refuses a checkpoint if there is any; empty: nothing is
// fixed. Points to a static text.
const char* fixed_memory_reason();
// Memory that is not in the arena was made, or is gone. Any thread, no lock; kNot: does nothing.
void fixed_memory_made(Fixed kind);
void fixed_memory_gone(Fixed kind);
// An executable graph was made: it may allocate when it is launched.
void graphs_may_allocate();
// What graphs hold, as the driver says: it alone knows, launches change it. Service thread, and
// never with the context checkpointed.
void look_at_graph_memory();

// Gives back what was freed in stream order and whose stream has got there. Allocations and queries do so
// themselves; the service thread now and then, with the gate open, for programs that call no more.
void reclaim_freed();
// Before the driver may destroy the context: its events are asked no more. What was freed in stream
// order and has not got there then waits for the context.
void arena_context_pauses(CUcontext context);
// A context is gone, and the driver freed what was allocated in it: so does the arena. `reset`: all of the
// device's, allocations of pools too. After the driver's success.
void arena_context_gone(CUcontext context, bool reset);
void lock_arena();
void unlock_arena();
void forget_arena();  // fork child

}  // namespace lull::shim
