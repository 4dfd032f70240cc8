// The only place where an application thread waits.
//
//   gate open ------------------------------------------> go            (load_gate in submit.h)
//   credit, spent + predicted <= granted ---------------> go, no ticket; where lulld has not said
//                                                         yet how long it is: held until it has
//   otherwise: held. Ticket and launch stand in the thread slot, kRecordHeld is pushed, the
//   doorbell rung; then futex slices of at most 50 ms until
//       the gate opens or the credit suffices    -> go
//       released_ticket is this thread's ticket  -> go
//       lulld is gone (end of file, detached)    -> go
//       lulld is silent (silence.h)              -> go, and so does every launch until it looks
//       again
//
// Called by the thread that launches, holding no lock, never for work in a capture. The wait is
// no cancellation point; a cancelled thread is cancelled in the program's own code afterwards.
#pragma once

#include <stdint.h>

#include "shim/thread_state.h"

namespace lull::shim {

struct Attachment;

// `default_ns`: what work counts as that lulld has said nothing about yet. kUnknownLength fits no
// credit, but one for a unit of any length: what the task did in an earlier run lulld may well
// know. A coordinator that says nothing for 50 ms is not waited for again.
//
// Returns the ticket under which the launch was held, 0 if it was not. `charged_ns`: the credit spent
// on it, 0 where none was.
uint32_t pass_gate(ThreadState& thread, Attachment& link, uint32_t device, uint32_t stream_slot,
                   uint32_t kernel_slot, uint32_t default_ns, uint32_t& charged_ns);

}  // namespace lull::shim
