// Copies the backings out into the host arena and back, in a pipeline of chunks over the copy engines, and
// gives each backing's memory to the device as soon as its contents are safe. Service thread only, with
// the memory gate shut and the device's work drained.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

struct MoveResult {
  CUresult result;     // CUDA_ERROR_OUT_OF_MEMORY of a way back: still out, nothing lost
  uint64_t bytes;
  const char* reason;  // static, one line; empty where it is done
};
// Publishes its progress; minds pace and chunk of the order before each chunk. A way out that fails in its
// midst brings back what was out.
MoveResult move_out();
MoveResult move_back();

}  // namespace lull::shim
