// Whether a call is one that the arena has a part in: the program's own, in a process that can be moved. Asked
// before `thread_state.depth` goes up.
#pragma once

#include "shim/residence/memory_gate.h"
#include "shim/thread_state.h"

namespace lull::shim {

inline bool moves() {
  return can_move.load(std::memory_order_relaxed) && thread_state.depth == 0;
}

}  // namespace lull::shim
