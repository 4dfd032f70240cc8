// Holds every call that uses device memory while that memory is not on the device, or on its way.
//
//   hook --> [launch gate] --> MemoryUse use(thread) --> driver --> ~MemoryUse
//                                  |
//                 open: counted in a cache line of the thread's own, goes
//                 shut: waits until the service thread opens it again (service.h): no other
//                 deadline
//
// The launch gate comes first: a thread that waits there uses nothing. In a process that cannot be
// moved
// (`can_move` false) a MemoryUse is one load of a constant and one branch. In one that can it is
// two locked instructions on a line that no other thread writes.
//
// Calls that only wait (synchronisation, queries of streams and events) are not held: what was
// submitted before completes in any case. Calls made inside the driver or by the shim (thread.depth
// != 0) are not held. Any thread; a thread that is cancelled inside the driver gives its use back
// as it ends.
#pragma once

#include <stdint.h>

#include <atomic>

#include "shim/thread_state.h"

namespace lull::shim {

// Decided at the process's first attach, before its first allocation, and never again (a fork child
// decides for itself): `lull run --suspendable` or stronger, or the operator's rule
// (lull_welcome.moves).
extern std::atomic<bool> can_move;

// Waits while the gate is shut, unless the calling thread is inside already: one inside another
// counts with it.
void begin_use(ThreadState& thread);
void end_use(ThreadState& thread);
// The calling thread ends, maybe in the midst of uses.
void end_all_uses(ThreadState& thread);

class MemoryUse {
 public:
  // `uses` false: nothing to hold.
  explicit MemoryUse(ThreadState& thread, bool uses = true) : thread_(thread) {
    if (can_move.load(std::memory_order_relaxed) && thread.depth == 0 && uses) [[unlikely]] {
      counted_ = true;
      begin_use(thread);
    }
  }
  ~MemoryUse() {
    if (counted_) [[unlikely]]
      end_use(thread_);
  }
  MemoryUse(const MemoryUse&) = delete;

 private:
  ThreadState& thread_;
  bool counted_ = false;
};

// Of the service thread: shuts the gate; true once no call is inside any more, false at the
// deadline (CLOCK_MONOTONIC; the gate stays shut, `open_memory_gate` undoes it).
bool shut_memory_gate(uint64_t deadline_ns);
void open_memory_gate();
// How many threads wait at the shut gate.
uint32_t held_at_memory_gate();
void forget_memory_gate();  // fork child; ends the uses of its one thread too

}  // namespace lull::shim
