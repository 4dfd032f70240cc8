// Copies the backings out into the host arena and back, in a pipeline of chunks over the copy
// engines, and gives each backing's memory to the device as soon as its contents are safe. Service
// thread only, with the memory gate shut and the device's work drained.
//
//   out:   [host piece ready] -> copy -> copy -> ..        back:  new memory -> copy -> copy -> ..
//                                 |  done                            |  meanwhile
//                                 +-> the backing's memory           +-> new memory of the next
//                                 ones
//                                     goes, while others copy
//
// One stream and one run of chunks a device. What is absent stays in the host arena until the move
// back has brought all of it: a move that is broken off is undone by the other one.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

// A chunk: 0.6 ms of a link that copies 55 GB/s, so that its fixed costs (3 us) and a wake-up
// between two of them do not show, and a pace or another order is minded within a millisecond.
inline constexpr uint64_t kChunkBytes = 32ULL << 20;
// Chunks' worth of copies under way on a device: one runs, one waits behind it.
inline constexpr uint64_t kChunksUnderWay = 2;

enum class MoveEnd {
  kDone,
  kReplaced,  // `goes_on` said no
  kNoHostMemory,
  kNoDeviceMemory,  // of a way back, or a copy failed: all is out again, nothing lost
  kFailed,          // the driver refused something
};
struct MoveResult {
  MoveEnd end;
  const char* reason;  // static, one line; empty where it is done
};
// Asked before each chunk; false breaks the move off.
using GoesOn = bool (*)();
// Both publish their progress, and mind pace and chunk of the order before each chunk. Broken off,
// backings are where they are: some present, some absent.
MoveResult move_out(GoesOn goes_on);
// A copy that the driver refuses in a context that has failed ends nothing: the program will be
// told so.
MoveResult move_back(GoesOn goes_on);

// Device memory that a move out frees, and that a move back needs on that device.
uint64_t present_bytes();
uint64_t absent_bytes(uint32_t device);

}  // namespace lull::shim
