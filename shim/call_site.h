// Where in the program a launch was called from: up to 16 return addresses, as a number that is the
// same for the same path. Asked for by LULL_CALL_SITES=1; off, it is one load a launch.
//
//   launch -> a remembered walk from the same place, word for word the same -> number   (warm)
//          \ none: unw_backtrace -> hash -> known to the thread -> number
//                                       \ new: addresses -> text -> kernel_identity
//
// libunwind is opened by name when the first launch wants it, RTLD_LOCAL, so that its _Unwind_*
// functions replace nobody's; without it there are no call sites. No lock of the shim is held
// across it. It reads the stack as the code's unwind tables say and checks an address only where
// the tables end, so it is not asked at all on a stack that is not the thread's own (coroutines,
// signal stacks), with less than kStackNeeded bytes left, or from a signal that interrupted it. In a
// fork child it stays off: its locks may have been held. What remains is code with wrong unwind
// tables, and a library unloaded and another loaded in its place: hence off by default.
#pragma once

#include <stdint.h>

#include <atomic>

#include "shim/thread_state.h"

namespace lull::shim {

inline constexpr uint32_t kCallSiteFrames = 16;
inline constexpr uintptr_t kStackNeeded = 96 << 10;

enum class CallSites : uint32_t { kOff, kWanted, kOn };
extern std::atomic<CallSites> call_sites;

inline bool takes_call_sites() {
  return call_sites.load(std::memory_order_relaxed) != CallSites::kOff;
}
// For find_shape; 0: none.
uint32_t call_site(ThreadState& thread);

void ask_for_call_sites();                    // attached: reads the environment, once
void leave_call_sites(ThreadState& thread);   // thread end
void forget_call_sites();                     // fork child

}  // namespace lull::shim
