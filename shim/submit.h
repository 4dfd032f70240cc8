// The way of one unit of device work through the shim: kernel, graph, large copy or memset.
//
//   [call site] -> identify -> gate (may wait) -> [memory gate] -> record into the ring -> [event]
//            -> the driver -> [event] -> count -> [marker: the device writes the sequence number]
//
// The record goes first, so that lulld closes other gates as early as it can; a launch that the
// driver refuses is cancelled by a second record. Inlined into each launch hook: with an open
// gate it costs one table look-up, one clock reading and one 64-byte record.
#pragma once

#include "coordinator/channel/progress.h"
#include "shim/call_site.h"
#include "shim/captures.h"
#include "shim/connection.h"
#include "shim/devices.h"
#include "shim/driver.h"
#include "shim/kernel_identity.h"
#include "shim/kernel_timer.h"
#include "shim/launch_gate.h"
#include "shim/residence/memory_gate.h"
#include "shim/stream_slots.h"
#include "shim/thread_state.h"

namespace lull::shim {

struct Unit {
  const void* handle;
  Shape shape;
  uintptr_t stream;                        // normalised
  Counter counter = Counter::kLaunches;
  uint64_t bytes = 0;                      // copies
  uint32_t default_ns = channel::kUnknownLength;  // when it was never measured
  bool gated = true;
  // Programmatic stream serialisation: nothing of ours goes before or behind it.
  bool undisturbed = false;
  bool uses_memory = true;  // false: the caller sees to the memory gate
};

// Whether a marker goes behind this unit of its stream; registers the progress page on first need.
bool prepare_markers(ThreadState& thread, Attachment& link);
inline bool marks(ThreadState& thread, Attachment& link, const Unit& unit, StreamRef stream,
                  uint64_t sequence) {
  const uint32_t every = channel::marked_every(*link.control, stream.device);
  if (every == 0) [[likely]] return false;
  StreamSlot& slot = stream_slots[stream.slot];
  const uint64_t marked = slot.marked.load(std::memory_order_relaxed);
  const bool behind_wait = slot.synced.load(std::memory_order_relaxed) + 1 == sequence;
  if (!channel::takes_marker(every, sequence, marked, behind_wait)) return false;
  if (stream.slot == channel::kUntrackedStream || unit.undisturbed) return false;
  if (unit.stream == kLegacyHandle && live_blocking_streams.load(std::memory_order_relaxed) > 0) {
    return false;
  }
  const Markers state = link.markers.load(std::memory_order_acquire);
  const bool ready = state == Markers::kReady ||
                     (state == Markers::kUnknown && prepare_markers(thread, link));
  if (ready) slot.marked.store(sequence, std::memory_order_relaxed);
  return ready;
}
void write_marker(ThreadState& thread, Attachment& link, uintptr_t stream, uint32_t slot,
                  uint64_t sequence);
void cancel_launch(ThreadState& thread, Attachment& link, uint32_t kernel, StreamRef stream,
                   uint64_t sequence);
// Before a context dies: its registration of the progress page dies with it.
void markers_context_gone(CUcontext context);

inline void fill_launch(channel::lull_record& record, uint32_t kernel, StreamRef stream,
                        uint64_t sequence, uint64_t bytes, uint32_t flags, uint32_t ticket,
                        uint32_t charged_ns, uint64_t called_ticks) {
  record.kind = channel::kRecordLaunch;
  record.kernel = kernel;
  record.device = stream.device;
  record.stream = stream.slot;
  record.sequence = sequence;
  record.tsc = called_ticks;
  record.value0 = bytes;
  record.value1 = charged_ns;
  record.flags = flags;
  record.ticket = ticket;
  record.device_start = 0;
}
void push_shared_launch(ThreadState& thread, Attachment& link, uint32_t kernel, StreamRef stream,
                        uint64_t sequence, uint64_t bytes, uint32_t flags, uint32_t ticket,
                        uint32_t charged_ns, uint64_t called_ticks);

template <typename Call>
[[gnu::always_inline]] inline CUresult forward(ThreadState& thread, Call&& call) {
  OwnCall own(thread);
  return call();
}

// For a call that uses device memory and is no unit of work.
template <typename Call>
inline CUresult forward_use(ThreadState& thread, Call&& call, bool uses_memory = true) {
  const MemoryUse use(thread, uses_memory);
  return forward(thread, call);
}

template <typename Call>
[[gnu::always_inline]] inline CUresult submit(const Unit& unit, Call&& call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) [[unlikely]] return call();
  Attachment* link = enter(thread);
  if (link == nullptr || is_capturing(unit.stream)) [[unlikely]] {
    return forward_use(thread, call, unit.uses_memory);
  }
  const StreamRef stream = find_stream(thread, unit.stream);
  if (stream.device == kNoDevice) [[unlikely]] return forward_use(thread, call, unit.uses_memory);
  // Early: the clock takes longer than the look-up, and nothing waits for it before the record.
  const uint32_t mode = channel::record_mode(*link->control);
  uint64_t called = mode >= channel::kRecordTimed ? channel::ticks() : 0;
  const uint32_t site =
      takes_call_sites() && unit.counter == Counter::kLaunches ? call_site(thread) : 0;
  ShapeEntry& shape = find_shape(unit.handle, unit.shape, site);
  const uint32_t kernel = shape.slot.load(std::memory_order_relaxed);

  uint32_t ticket = 0;
  uint32_t charged_ns = 0;
  const uint64_t gate = channel::load_gate(*link->control, stream.device);
  if (channel::gate_state(gate) != channel::GateState::kOpen && unit.gated) [[unlikely]] {
    ticket = pass_gate(thread, *link, stream.device, stream.slot, kernel, unit.default_ns,
                       charged_ns);
    if (called != 0) called = channel::ticks();  // it goes now
  }
  const MemoryUse use(thread, unit.uses_memory);

  const uint64_t sequence = next_sequence(stream);
  const bool marked = marks(thread, *link, unit, stream, sequence);
  const bool recorded = mode != channel::kRecordNothing;
  if (recorded) [[likely]] {
    const uint32_t flags = channel::kFlagCharged | (marked ? channel::kFlagMarker : 0);
    if (thread.shares_slot) [[unlikely]] {
      push_shared_launch(thread, *link, kernel, stream, sequence, unit.bytes, flags, ticket,
                         charged_ns, called);
    } else if (channel::lull_record* record = channel::begin_record(
                   *thread.slot, thread.ring, thread.cached_tail)) [[likely]] {
      fill_launch(*record, kernel, stream, sequence, unit.bytes, flags, ticket, charged_ns, called);
      channel::commit_record(*thread.slot);
    } else {
      count(thread, *link, Counter::kUnrecorded, 1);
      look_now_and_then(*link);
    }
    ring_doorbell(*link);
  }

  const uint32_t period = channel::timing_period(*link->control);
  uint64_t sample = 0;
  if (wants_timing(thread, period, shape)) [[unlikely]] {
    sample = begin_timing(
        thread, *link,
        {&shape, stream.device, stream.slot, sequence, unit.stream, unit.undisturbed}, period);
  }
  if (sample == 0) break_chain(thread);

  const CUresult result = forward(thread, call);

  if (sample != 0) [[unlikely]] {
    end_timing(thread, sample, unit.stream, result == CUDA_SUCCESS);
  }
  if (result != CUDA_SUCCESS) [[unlikely]] {
    if (recorded) cancel_launch(thread, *link, kernel, stream, sequence);
    return result;
  }
  count(thread, *link, unit.counter, 1);
  if (unit.counter == Counter::kLaunches) {
    const uint32_t inside = shape.graph_kernels.load(std::memory_order_relaxed);
    if (inside != 0) [[unlikely]] count(thread, *link, Counter::kGraphKernels, inside);
  }
  if (marked) [[unlikely]] write_marker(thread, *link, unit.stream, stream.slot, sequence);
  return result;
}

// A small or blocking copy: counted, never held, recorded only for a trace. It runs beside the
// kernels, so the gap between the kernels around it stays a gap.
void record_aside(ThreadState& thread, Attachment& link, const Unit& unit, uint64_t called_ticks);
template <typename Call>
inline CUresult submit_aside(const Unit& unit, Call&& call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  Attachment* link = enter(thread);
  const MemoryUse use(thread);
  if (link == nullptr || is_capturing(unit.stream)) return forward(thread, call);
  const bool recorded = channel::record_mode(*link->control) == channel::kRecordEverything;
  const uint64_t called = recorded ? channel::ticks() : 0;
  const CUresult result = forward(thread, call);
  if (result != CUDA_SUCCESS) return result;
  count(thread, *link, unit.counter, 1);
  if (recorded) [[unlikely]] record_aside(thread, *link, unit, called);
  return result;
}

// When a call that waits begins, ticks: for traces only, else 0.
inline uint64_t wait_begins(Attachment& link) {
  return channel::record_mode(*link.control) == channel::kRecordEverything ? channel::ticks() : 0;
}

// Around a call after whose success the host knows work to be complete. `remember(seen)` runs
// before the call.
template <typename Remember, typename Call>
inline CUresult synchronise(Remember&& remember, Call&& call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  Attachment* link = enter(thread);
  if (link == nullptr) return forward(thread, call);
  SeenSequences seen;
  remember(thread, seen);
  const uint64_t began = wait_begins(*link);
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS) {
    if (seen.count != 0) report_complete(thread, *link, seen, began);
    harvest_timing(thread, *link);
    look_for_unknown_device(*link);
  }
  return result;
}

}  // namespace lull::shim
