// Device memory of this process: what it holds, and what it may hold.
//
// The limit of a device is the smaller of LULL_MEMORY (works without a daemon) and the allowance
// that the daemon publishes; with LULL_JOB the limit is the job's and the allowance alone counts
// while attached. Beyond it an allocation is refused as the driver would refuse it; when the
// allowance is a job's, it first asks for more and waits for the daemon's answer, however late
// that comes, but not for a daemon that shows no life. A task that takes turns with others
// (`lull run --oversubscribe`) waits for its turn: the allowance is then what it may
// hold on the device now, which the program is not told. Without a daemon that shows life the
// driver decides, and is asked again for a minute: the daemon may come back, and others end. Any
// thread; no lock is held while waiting or across a driver call, and no use of memory
// (residence/memory_gate.h): whoever waits can be moved.
//
// Counted: linear, pitched, managed, stream-ordered allocations, arrays (their elements: a lower
// bound) and physical handles (cuMemCreate, alive until released and unmapped). Not counted: memory
// that graphs allocate, contexts, host memory.
#pragma once

#include <stdint.h>

#include "coordinator/channel/fixed_memory.h"
#include "shim/driver.h"
#include "shim/thread_state.h"

namespace lull::shim {

struct Attachment;

enum class MemoryKind : uint8_t { kPointer = 0, kHandle = 1, kMapping = 2, kArray = 3 };

// Reserves; false: over the limit.
bool admit_memory(uint32_t device, uint64_t bytes);
// The driver has refused what was admitted as out of memory. True: the task takes turns, and has waited
// for a change: try again. What was admitted stays so, and is told as wanted, not as held.
// `alone_since_ns`: 0 for an allocation's first wait, then as it was left.
bool wait_for_memory(uint32_t device, uint64_t& alone_since_ns);
void refund_memory(uint32_t device, uint64_t bytes);
// After the driver's success, for what was admitted. `fixed`: it is the driver's own, and why.
void memory_allocated(MemoryKind kind, uint64_t key, uint32_t device, uint64_t bytes,
                      channel::Fixed fixed = channel::Fixed::kNot);
// How much a pitched allocation really takes is known afterwards.
void correct_memory(uint32_t device, uint64_t before, uint64_t actual);
void memory_freed(MemoryKind kind, uint64_t key);
void handle_retained(uint64_t handle);
void handle_mapped(uint64_t handle, uint64_t address);
void range_unmapped(uint64_t address, uint64_t bytes);
void memory_of_context_gone(CUcontext context);
void forget_all_memory();  // fork child

// Held, and what was admitted and is not allocated yet.
uint64_t memory_used_bytes(uint32_t device);
// Held alone: a thread may wait long with what it was admitted for.
uint64_t memory_held_bytes(uint32_t device);
bool takes_turns();
// UINT64_MAX: none. `device` kNoDevice: one that is not in use yet.
uint64_t memory_limit_bytes(uint32_t device);
// The same as the program is told it: a turn's allowance is no size of the device.
uint64_t told_memory_limit_bytes(uint32_t device);

// Publishes the figures of all devices and records that they should be looked at.
void announce_memory(ThreadState& thread, Attachment& link);

void lock_memory();
void unlock_memory();

}  // namespace lull::shim
