// Waits for all work of a context, with a deadline: cuCtxSynchronize has none, and other threads'
// per-thread streams can be asked about in no other way. A thread of its own, started at the first
// wait, calls it; the service thread watches that one.
//
//   none --first wait--> idle --asked--> waiting --the driver returns--> idle
//
// Past the deadline it stays in the driver until that work has completed: it puts nothing into a
// stream, so the program does not notice. A later wait begins when it is back.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

enum class ContextWork { kDone, kUnderWay, kCannotAsk };

// Of the service thread, with the memory gate shut. `deadline_ns`: CLOCK_MONOTONIC. kCannotAsk: no
// thread, or the driver refuses the question (a capture is open). The work of a context that has
// failed is done.
ContextWork wait_for_context(CUcontext context, uint64_t deadline_ns);
// Before that context may be destroyed, any thread: returns once nobody waits in it, after a second
// at the latest (the driver's own destruction of a context waits for its work).
void leave_context(CUcontext context);

void forget_context_wait();  // fork child

}  // namespace lull::shim
