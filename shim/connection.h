// The way to lulld: attach, detach, re-attach, fork.
//
//              cuInit, a launch           end of file, descriptor lost, fork child
//   detached --------------------> attached -----------------------------------> detached
//            at most once a second
//
// Attaching happens inside one of the program's own driver calls and is bounded in time. A region
// once mapped stays mapped for ever, so a thread that still looks at an old one is safe; a thread
// notices the change by comparing its own pointer with `attachment`.
//
// There is no thread of the shim's, but one in processes whose memory moves (residence/service.h).
// Detached means: every gate is open and nothing is recorded.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "coordinator/channel/client_view.h"
#include "coordinator/channel/ticks.h"
#include "shim/driver.h"
#include "shim/system.h"
#include "shim/thread_state.h"

namespace lull::shim {

enum class Markers : uint32_t { kUnknown, kReady, kImpossible };

struct Attachment {
  channel::Region region;
  channel::lull_control* control;
  channel::lull_client* client;
  int fd;
  dev_t fd_device;
  ino_t fd_inode;
  std::atomic<uint32_t> gone;          // 1: detached
  std::atomic<uint64_t> threads_taken;  // bit set: thread slot in use
  Lock shared_lock;                    // guards the last slot, shared by threads without one
  std::atomic<uint32_t> shared_held;   // 1: some thread's held launch stands in the shared slot
  std::atomic<uint32_t> untold;        // 1: the coordinator did not say how long some work takes
  std::atomic<uint64_t> silent_at;     // launch_gate.cc: its looks when it was found silent; 0: never
  // The progress page, as the device sees it.
  std::atomic<Markers> markers;
  CUdeviceptr progress_address;
  CUcontext progress_context;
  Lock markers_lock;
};

// Null: detached.
extern std::atomic<Attachment*> attachment;

// cuInit: attaches now if it can. Says so on stderr, once a process, when it cannot and the user
// asked for lull. Returns what cuInit shall return.
CUresult attach_at_init();

// The attachment with this thread's slot in it, or null. For `enter` only.
Attachment* enter_slowly(ThreadState& thread);
extern std::atomic<bool> attach_attempted;
inline constexpr uint32_t kCallsBetweenClockLooks = 64;

// On every hooked call that reports something: one load and one compare when all is as before.
inline Attachment* enter(ThreadState& thread) {
  // Acquire: pairs with the release of a complete attachment in connection.cc.
  Attachment* now = attachment.load(std::memory_order_acquire);
  if (now != nullptr && thread.attachment == now) [[likely]] return now;
  // A program without a daemon pays a counter, and one clock reading in 64 calls.
  if (now == nullptr && attach_attempted.load(std::memory_order_relaxed) &&
      ++thread.unattached_calls % kCallsBetweenClockLooks != 0) {
    return nullptr;
  }
  return enter_slowly(thread);
}

// Its thread_ends will be told when the thread ends, however it does. Once the process has tried to attach.
void register_thread_end(ThreadState& thread);
// The socket of the coordinator that this process has had; null: none yet.
const char* coordinator_path();

// Looks whether lulld is still there; detaches and wakes all held threads if not. False: gone.
bool still_there(Attachment& link);
// For what a dead daemon shows in no other way: a record that finds its ring full (one that drains,
// and a burst, look the same), a launch that nobody holds because the daemon is silent. Looks, at
// most every 50 ms.
void look_now_and_then(Attachment& link);

// A device of this program is unknown to lulld: one line on stderr, once a process.
void say_unknown_device(Attachment& link);
// On paths that wait anyway.
inline void look_for_unknown_device(Attachment& link) {
  if (channel::unknown_devices(*link.control) != 0) [[unlikely]]
    say_unknown_device(link);
}

void ring_doorbell_slowly(Attachment& link);
inline void ring_doorbell(Attachment& link) {
  if (channel::daemon_sleeps(*link.control)) [[unlikely]] ring_doorbell_slowly(link);
}

// False: the ring is full.
bool push_shared(ThreadState& thread, Attachment& link, const channel::lull_record& record);
inline void push(ThreadState& thread, Attachment& link, const channel::lull_record& record) {
  if (thread.shares_slot) [[unlikely]] {
    push_shared(thread, link, record);
    return;
  }
  channel::push_record_cached(*thread.slot, thread.ring, thread.cached_tail, record);
}
// Records that the calling thread can push now without losing one.
uint32_t ring_room(ThreadState& thread, Attachment& link);
enum class Counter {
  kLaunches, kGraphKernels, kCopies, kMemsets, kHeldNs, kUntimed, kUnheld, kUnrecorded
};
void count_shared(ThreadState& thread, Attachment& link, Counter counter, uint64_t amount);
inline uint64_t& counter_word(channel::lull_thread& slot, Counter counter) {
  switch (counter) {
    case Counter::kLaunches: return slot.launches;
    case Counter::kGraphKernels: return slot.graph_kernels;
    case Counter::kCopies: return slot.copies;
    case Counter::kMemsets: return slot.memsets;
    case Counter::kUntimed: return slot.untimed;
    case Counter::kUnheld: return slot.unheld;
    case Counter::kUnrecorded: return slot.unrecorded;
    default: return slot.held_ns;
  }
}
inline void count(ThreadState& thread, Attachment& link, Counter counter, uint64_t amount) {
  if (thread.shares_slot) [[unlikely]] return count_shared(thread, link, counter, amount);
  channel::add_count(counter_word(*thread.slot, counter), amount);
}

// The environment's --memory for this process, UINT64_MAX: none. --job: the limit is the job's.
uint64_t own_memory_limit_bytes();
bool memory_limit_is_the_jobs();

}  // namespace lull::shim
