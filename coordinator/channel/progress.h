// Which launches of a stream the device reports: those that carry a marker, a value that the device
// writes behind the launch (cuStreamWriteValue64 of the launch's sequence number to the stream's
// word of lull_progress). Shim and simulator ask the same function. Pure; any thread.
//
// A marker costs the client 2.1 us of the device, 0.76 us of the host and a place of the driver's
// queue (measured, docs/hardware, 2026-11-26): so the daemon says how many launches apart they are at
// most (lull_control.marked_every). The next one comes when five to eight eighths of that many have
// gone by; on the first launch behind a wait, when four to seven have: it tells when the device came
// back to the client. How many eighths differs from launch to launch, as if by lot. A fixed share
// would keep step with some programs' requests, and some of their waits would never be told of.
#pragma once

#include <stdint.h>

namespace lull::channel {

// 0 to 3, as if by lot; the same for the same number.
inline uint64_t lot_of(uint64_t number) { return number * 0x9e37'79b9'7f4a'7c15u >> 62; }

// `sequence`: of the launch in its stream, from 1; `marked`: of the last one with a marker, 0 before
// the first; `behind_wait`: the host is known to have waited for all before it; `every`: 0 for no
// markers.
inline bool takes_marker(uint32_t every, uint64_t sequence, uint64_t marked, bool behind_wait) {
  const uint64_t eighths = behind_wait ? 4 + lot_of(sequence) : 5 + lot_of(marked);
  return every != 0 && 8 * (sequence - marked) >= eighths * every;
}

}  // namespace lull::channel
