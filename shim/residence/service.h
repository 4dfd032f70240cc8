// The one thread of the shim's own, in processes that can be moved, from the first allocation on.
// It prepares the host arena ahead, carries out orders of the coordinator, and is the process's own
// coordinator when there is none:
//
//   wait (futex at lull_order.number, 50 ms while not resident, 1 s else)
//     |-- a new order -> drain, move (mover.h), checkpoint -> report -> wait
//     |-- not resident, lulld gone or silent for a second -> GPU lock -> way back -> open the gate
//     +-- host arena smaller than what is swappable -> one piece (host_arena.h) -> wait
//
// An order that cannot be carried out leaves the state that it found. A newer one turns a move
// round. A detached pthread that blocks all signals. A fork child has none until its own first
// allocation. Once the process ends (its exit handlers run) the thread begins nothing, but a way
// back for which a call waits.
#pragma once

#include "shim/driver.h"

namespace lull::shim {

// At each allocation of a process that can be moved; starts the thread once. Any thread, as all
// here.
void want_service();
// The arena has grown or shrunk: look at the host side.
void tell_service();
// Around the program's letting go of a context, in one use of memory: nothing of ours goes on in
// it; what the driver is about to destroy for certain (`dies`) is taken out of it. Then it has
// stayed, or is gone.
void service_context_pauses(CUcontext context, bool dies);
void service_context_stays(CUcontext context);
void service_context_gone(CUcontext context);
void forget_service();  // fork child

}  // namespace lull::shim
