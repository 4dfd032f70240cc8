// The one thread of the shim's own, in processes that can be moved, from the first allocation on. It
// prepares the host arena ahead, carries out orders of the coordinator, and is the process's own coordinator
// when there is none:
//
//   wait (futex at lull_order.number, 50 ms while not resident, 1 s else)
//     |-- order's target is another state -> drain, move (mover.h), checkpoint -> report -> wait
//     |-- not resident, and lulld gone or silent for a second -> lock of the GPU -> way back -> open the gate
//     +-- host arena smaller than what is swappable -> one piece (host_arena.h) -> wait
//
// A detached pthread that blocks all signals. A fork child has none until its own first allocation.
#pragma once

#include "shim/driver.h"

namespace lull::shim {

// At each allocation of a process that can be moved; starts the thread once.
void want_service();
// The arena has grown or shrunk: look at the host side.
void tell_service();
void service_context_gone(CUcontext context);
void forget_service();  // fork child

}  // namespace lull::shim
