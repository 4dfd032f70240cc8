// Which launches of a stream the device reports: those that carry a marker, a value that the device
// writes behind the launch (cuStreamWriteValue64 of the launch's sequence number to the stream's
// word of lull_progress). Shim and simulator ask the same function. Pure; any thread.
//
// A marker takes a place of the driver's queue, as a launch does: a program that fills the queue
// gets less far ahead of the device with one behind each launch. So the daemon asks a client whose
// launches are short for few (kProgressSeldom), and then
//
//   sequence   done +1 ............ +kMarkedAhead | ............................
//   marker     each                               | every kMarkEvery-th
//
// A queue that runs dry is followed launch by launch, one that never does in groups.
#pragma once

#include <stdint.h>

#include "coordinator/channel/layout.h"

namespace lull::channel {

// Launches ahead of the device that carry a marker each: a sixteenth of what a driver queues.
inline constexpr uint64_t kMarkedAhead = 64;
// One launch in so many beyond: a sixteenth of the queue goes to markers at most.
inline constexpr uint64_t kMarkEvery = 16;

// `sequence` of the launch on its stream, from 1; `done`: the last one of the stream known
// complete.
inline bool takes_marker(uint32_t mode, uint64_t sequence, uint64_t done) {
  if (mode != kProgressSeldom) return mode == kProgressEvery;
  return sequence % kMarkEvery == 0 || sequence <= done + kMarkedAhead;
}

}  // namespace lull::channel
