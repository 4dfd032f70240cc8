// The stream captures that are open in the process, by the stream that each began in. The hooks of
// streams, contexts and threads tell; launches, timing and the service thread ask. Any thread.
//
//   none --begin--> open --end, its stream destroyed, its context or thread gone--> none
//
// An invalidated capture stays open until the program ends it, as in the driver. Streams that only
// joined a capture are not known here: the capture outlives them.
#pragma once

#include <stdint.h>

#include <atomic>

#include "shim/driver.h"
#include "shim/thread_state.h"

namespace lull::shim {

// How many are open; may read high while a call is under way, never low.
extern std::atomic<int32_t> open_captures;

bool asks_driver_whether_capturing(uintptr_t handle);
// `handle`: normalised (stream_slots.h).
inline bool is_capturing(uintptr_t handle) {
  if (open_captures.load(std::memory_order_relaxed) <= 0) [[likely]]
    return false;
  return asks_driver_whether_capturing(handle);
}

// Around the driver's call that begins one.
void capture_begins();
void capture_began(ThreadState& thread, uintptr_t handle, bool success);
// After the driver has ended the capture that began in that stream.
void capture_ended(ThreadState& thread, uintptr_t handle);

// Around the driver's call that destroys a stream: the capture that began in it ends with it. True:
// there is one, and `stream_with_capture_gone` follows.
bool begins_in_stream(CUstream stream);
void stream_with_capture_gone(CUstream stream, bool success);
// Before the driver destroys the context, and with it the captures that began in its streams.
void captures_of_context_gone(CUcontext context);
// A thread ends, and its default stream with it.
void captures_of_thread_gone(ThreadState& thread);

void forget_captures();  // fork child
void lock_captures();
void unlock_captures();

}  // namespace lull::shim
