// The program's contexts and streams that are alive, for the service thread: whose work has to be
// done before memory moves, and in which context it can copy and pin. Empty in a process that
// cannot be moved.
//
// Hooks tell, from any thread; the service thread asks. The driver is asked about a stream only
// under the lock that its end waits for, so never about one that is gone.
#pragma once

#include <stdint.h>

#include "shim/driver.h"
#include "shim/residence/context_wait.h"

namespace lull::shim {

void context_lives(CUcontext context, CUdevice ordinal);
// Before the driver may destroy it: nothing new is begun in it until one of the next two. The
// caller holds a use of memory throughout (memory_gate.h), so that nobody looks at its work
// meanwhile.
void context_pauses(CUcontext context);
// It was not destroyed.
void context_stays(CUcontext context);
// It was, and its streams with it.
void context_ends(CUcontext context);
// In the calling thread's current context.
void stream_lives(CUstream stream);
void stream_ends(CUstream stream);

// A context on that device, null: none. The newest: a program's short-lived ones come first.
CUcontext context_on(CUdevice ordinal);

enum class Work { kDone, kUnderWay };
// Whether anything that was submitted is not complete yet. Waits for nothing, puts nothing into a
// stream. Another thread's per-thread stream cannot be asked about, and is not. No capture may be
// open. Leaves another context current.
Work work_of_program();
// Waits until the driver knows nothing under way in any of the contexts: for what cannot be asked
// about. `deadline_ns`: CLOCK_MONOTONIC; with the memory gate shut (context_wait.h).
ContextWork wait_for_work(uint64_t deadline_ns);

void forget_live_contexts();  // fork child
void lock_live_contexts();
void unlock_live_contexts();

}  // namespace lull::shim
