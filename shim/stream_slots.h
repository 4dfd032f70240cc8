// CUstream -> stream slot of the channel (0 .. 62), with the sequence number of the last unit
// given to it. Slot 63 stands for every stream that found no slot. Any thread; the launch path
// takes no lock for a stream it has seen.
//
// A stream has one slot for the thread that launched on it first, which counts without a locked
// instruction, and when others launch on it too, a second one for all of them. (A dead owner's
// thread state may come back as another thread's: still one owner at a time.)
//
//   unknown handle --first unit--> bound --cuStreamDestroy, context gone--> free (sequence stays)
//
// Handles are normalised before they come here: the null stream is CU_STREAM_LEGACY in a plain
// call and CU_STREAM_PER_THREAD in a _ptsz one. The legacy stream has one slot a device, the
// per-thread stream one a thread.
#pragma once

#include <stdint.h>

#include <atomic>

#include "coordinator/channel/layout.h"
#include "shim/driver.h"
#include "shim/thread_state.h"

namespace lull::shim {

struct Attachment;

// What variant of a call it is says what its null stream means.
enum class DefaultStream : bool { kLegacy, kPerThread };
inline uintptr_t normalise(CUstream stream, DefaultStream variant) {
  const auto handle = reinterpret_cast<uintptr_t>(stream);
  if (handle != 0) return handle;
  return variant == DefaultStream::kLegacy ? 1 : 2;
}
inline constexpr uintptr_t kLegacyHandle = 1;     // CU_STREAM_LEGACY
inline constexpr uintptr_t kPerThreadHandle = 2;  // CU_STREAM_PER_THREAD
inline CUstream stream_of(uintptr_t handle) { return reinterpret_cast<CUstream>(handle); }

struct alignas(64) StreamSlot {
  std::atomic<uint64_t> sequence;  // last one given out
  std::atomic<uint64_t> synced;    // last one that the host is known to have waited for
  std::atomic<uint64_t> marked;    // last one with a marker
  std::atomic<uint64_t> asides;    // of them copies that run beside the units (submit.h)
  std::atomic<uint32_t> used;
  std::atomic<uint32_t> others;    // the slot of all other threads + 1, 0: none yet
  std::atomic<ThreadState*> owner;  // null: of the others
  uint32_t device;
  bool blocking;                   // synchronises with the legacy stream
  uintptr_t handle;
  CUcontext context;
};
extern StreamSlot stream_slots[channel::kMaxStreams];

struct StreamRef {
  uint32_t slot;
  uint32_t device;  // kNoDevice: no current context
  uint32_t owned;   // 1: by the calling thread
};

inline constexpr uint32_t kStreamTable = 1024;  // a power of two
// handle << 12 | device << 8 | slot; 0 empty, 1 a hole.
extern std::atomic<uint64_t> stream_table[kStreamTable];
extern std::atomic<uint32_t> only_legacy_ref;  // one-device processes: slot of the legacy stream + 1

inline uint32_t stream_hash(uintptr_t handle) {
  return static_cast<uint32_t>((handle * 0x9e3779b97f4a7c15ULL) >> 54);
}

StreamRef bind_stream(ThreadState& thread, uintptr_t handle);
StreamRef bind_others(uint32_t slot, uint32_t device);

// The calling thread's slot of the stream whose first slot this is.
inline StreamRef own_part(ThreadState& thread, uint32_t slot, uint32_t device) {
  const StreamSlot& stream = stream_slots[slot];
  if (stream.owner.load(std::memory_order_relaxed) == &thread) [[likely]] {
    return {slot, device, 1};
  }
  const uint32_t others = stream.others.load(std::memory_order_acquire);
  return others != 0 ? StreamRef{others - 1, device, 0} : bind_others(slot, device);
}

inline uint64_t next_sequence(StreamRef stream) {
  std::atomic<uint64_t>& sequence = stream_slots[stream.slot].sequence;
  if (stream.owned == 0) [[unlikely]] return sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint64_t next = sequence.load(std::memory_order_relaxed) + 1;
  sequence.store(next, std::memory_order_relaxed);
  return next;
}

StreamRef find_stream_slowly(ThreadState& thread, uintptr_t handle);

// Counts what makes a remembered stream wrong: slots freed, handles that mean another stream.
extern std::atomic<uint32_t> stream_generation;

[[gnu::always_inline]] inline StreamRef find_stream(ThreadState& thread, uintptr_t handle) {
  if (thread.recent_stream == handle &&
      thread.recent_generation == stream_generation.load(std::memory_order_relaxed)) [[likely]] {
    return {thread.recent_slot, thread.recent_device, thread.recent_owned};
  }
  return find_stream_slowly(thread, handle);
}

// The first slot of a stream that has had work, kUntrackedStream: none. Binds nothing.
uint32_t slot_if_bound(ThreadState& thread, uintptr_t handle);

// How many units the stream has been given by all threads, copies aside left out: two units with
// numbers in a row went to it one behind the other. 0: not known. Other threads may be launching.
uint64_t units_of_stream(ThreadState& thread, uintptr_t handle);

// Streams made and gone; `blocking` is known from the creation flags.
void stream_created(CUstream stream, bool blocking);
// Before the driver destroys it.
void stream_destroyed(CUstream stream);
// Before a context dies. Its streams count as complete.
void streams_of_context_gone(CUcontext context);
void release_per_thread_stream(ThreadState& thread);
void forget_streams();  // fork child

// Live streams that synchronise with the legacy stream: while there are any, the shim enqueues
// nothing of its own on the legacy stream.
extern std::atomic<int32_t> live_blocking_streams;

// ---- what the host has seen complete -----------------------------------------------------------
// Taken before a synchronising call, reported after it succeeded.
struct SeenSequences {
  uint32_t count = 0;
  struct {
    uint8_t slot;
    uint64_t sequence;
  } of[channel::kMaxStreams];
};
void remember_stream(ThreadState& thread, uintptr_t handle, SeenSequences& seen);
void remember_device(uint32_t device, SeenSequences& seen);
// `began`: ticks when the call began, 0: not taken.
void report_complete(ThreadState& thread, Attachment& link, const SeenSequences& seen,
                     uint64_t began);

// cuEventRecord: what a later wait for the event proves. A lossy table; an entry that was pushed
// out proves nothing.
void event_recorded(ThreadState& thread, CUevent event, uintptr_t handle);
void event_forgotten(CUevent event);
void remember_event(CUevent event, SeenSequences& seen);

void lock_streams();
void unlock_streams();

}  // namespace lull::shim
