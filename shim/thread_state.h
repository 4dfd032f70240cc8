// What the shim keeps per application thread, in static thread-local storage (initial-exec, zero
// at birth, nothing to construct). Owner thread only.
#pragma once

#include <stdint.h>

#include "coordinator/channel/layout.h"
#include "coordinator/channel/timing_windows.h"

namespace lull::shim {

struct Attachment;
struct SiteCache;

struct ThreadState {
  // > 0: inside a driver call of ours or of a hook's. Hooks reached then only forward.
  uint32_t depth;
  uint32_t unattached_calls;
  // What the following pointers belong to; compared with `attachment` on each launch.
  Attachment* attachment;
  channel::lull_thread* slot;
  channel::lull_record* ring;
  uint64_t cached_tail;
  uint32_t slot_index;
  bool shares_slot;          // no slot of its own was left: pushes take Attachment::shared_lock
  bool exit_registered;
  uint32_t next_ticket;
  channel::ThreadWindow window;
  uint64_t last_sample;      // id of the timing sample whose gap is open, 0: none
  uint32_t per_thread_ref;   // CU_STREAM_PER_THREAD's slot + 1, 0: none yet
  uint32_t per_thread_device;
  // The stream of the last launch and what find_stream said; valid for one stream_generation.
  uintptr_t recent_stream;
  uint32_t recent_generation;
  uint32_t recent_slot;
  uint32_t recent_device;
  uint32_t recent_owned;
  SiteCache* sites;  // call_site.h; null: not asked for yet
  uint32_t use_line;  // memory_gate.cc: the line it counts in + 1, 0: none yet
  uint32_t uses;      // memory_gate.cc: calls it is inside of that use device memory
};

extern thread_local constinit ThreadState thread_state;

// Around every call of the real driver that a hook makes: what the driver calls inside is not
// the program's. Leaves no trace when the thread is cancelled in between: the state dies with it.
class OwnCall {
 public:
  explicit OwnCall(ThreadState& thread) : thread_(thread) { ++thread_.depth; }
  ~OwnCall() { --thread_.depth; }
  OwnCall(const OwnCall&) = delete;

 private:
  ThreadState& thread_;
};

}  // namespace lull::shim
