// Durations and gaps of kernels, measured by device events of the shim's own around a launch.
//
// Which launches (lull_control.timing_period): none at 0; at 1 (`--timing full`) every one, and
// what cannot be timed is counted in lull_thread.untimed; else about one in timing_period, in
// windows (coordinator/channel/timing_windows.h). Never while any capture is open in the process,
// never around launches with programmatic stream serialisation, never on the legacy stream while
// blocking streams live. Nothing here waits for the device: events are asked later, when another
// launch is timed or a synchronising call has returned.
//
//   free -> recording (begin_timing .. end_timing, owner thread) -> pending -> harvested -> free
//
// The gap of a sample is the time from its end to the begin of the thread's next timed unit; where
// another thread's unit went to the stream before that, to the begin of that one. An untimed unit
// in between makes it unknown. Durations, gaps and starts are corrected for streams that were idle
// (idle_start.h); starts count from a base event (time_base.h). What the two events take themselves
// is still in them: lulld takes it off.
#pragma once

#include <stdint.h>

#include "coordinator/channel/client_view.h"
#include "shim/kernel_identity.h"
#include "shim/stream_slots.h"
#include "shim/thread_state.h"

namespace lull::shim {

struct Attachment;

// The launch path's question, a few relaxed loads. Counts the launch.
inline bool wants_timing(ThreadState& thread, uint32_t period, ShapeEntry& entry) {
  if (period <= 1) return period == 1;
  const uint32_t left = entry.launches_to_window.load(std::memory_order_relaxed);
  if (left != 0) [[likely]] {
    entry.launches_to_window.store(left - 1, std::memory_order_relaxed);
    return thread.window.left != 0;
  }
  return true;
}

struct UnitToTime {
  ShapeEntry* entry;
  uint32_t device;
  uint32_t stream_slot;
  uint64_t sequence;
  uintptr_t stream;
  bool undisturbed;  // nothing of ours may go around it
};
// 0: not timed after all. Otherwise the begin event is on the stream.
uint64_t begin_timing(ThreadState& thread, Attachment& link, const UnitToTime& unit,
                      uint32_t period);
// The end event goes on the stream; `launched` false: the driver refused, the sample is dropped.
void end_timing(ThreadState& thread, uint64_t sample, uintptr_t stream, bool launched);

// An untimed unit of this thread: the gap behind its last sample stays unknown.
void break_chain_slowly(ThreadState& thread);
inline void break_chain(ThreadState& thread) {
  if (thread.last_sample != 0) [[unlikely]] break_chain_slowly(thread);
}

// Reports what has completed.
void harvest_timing(ThreadState& thread, Attachment& link);
bool timing_pending();

void leave_timing(ThreadState& thread);           // thread end
enum class ContextEnd {
  kMay,   // before a call that may destroy it: it must stay whole for launches going on in it
  kWill,  // before a call that destroys it
  kDid,   // afterwards: its events have died with it
};
void timing_context_gone(CUcontext context, ContextEnd end);
void forget_timing();                             // fork child
void lock_timer();
void unlock_timer();

}  // namespace lull::shim
