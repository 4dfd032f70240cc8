// The program's contexts and streams that are alive, for the service thread: whose work has to be
// done before memory moves, and in which context it can copy and pin. Empty in a process that
// cannot be moved.
//
// Hooks tell, from any thread; the service thread asks. The driver is asked about a stream only
// under the lock that its end waits for, so never about one that is gone.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

void context_lives(CUcontext context, CUdevice ordinal);
// Before the driver may destroy it: not used any more until `context_lives` or `context_ends`.
void context_pauses(CUcontext context);
// Before the driver destroys it, and its streams with it.
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
// Waits until the driver knows nothing under way any more: for what cannot be asked about. Not for
// ever where the driver can help it: `timeout_ms` bounds it where the driver has checkpoints.
// False: it passed. Submitted work waits meanwhile for nothing of ours.
bool wait_for_work(uint32_t timeout_ms);

void forget_live_contexts();  // fork child
void lock_live_contexts();
void unlock_live_contexts();

}  // namespace lull::shim
