// Which launches of a stream the device reports: those that carry a marker, a value that the device
// writes behind the launch (cuStreamWriteValue64 of the launch's sequence number to the stream's
// word of lull_progress). Shim and simulator ask the same function. Pure; any thread.
//
// A marker costs the client 2.1 us of the device, 0.76 us of the host and a place of the driver's
// queue (measured, docs/hardware, 2026-11-26): so the daemon says how many launches go by between
// two of them (lull_control.marked_every). Where the host waits in between, the next launch has one
// sooner: it tells when the device came back to the client. How much sooner, a quarter of them to not
// at all, differs from marker to marker, so that each of a program's waits is told of by and by.
#pragma once

#include <stdint.h>

namespace lull::channel {

// `sequence`: of the launch in its stream, from 1; `marked`: of the last one with a marker, 0 before
// the first; `behind_wait`: the host is known to have waited for all before it; `every`: 0 for no
// markers.
inline bool takes_marker(uint32_t every, uint64_t sequence, uint64_t marked, bool behind_wait) {
  if (every == 0) return false;
  const uint64_t since = sequence - marked;
  if (since >= every || !behind_wait) return since >= every;
  const uint64_t quarters = 1 + (marked * 0x9e37'79b9'7f4a'7c15u >> 62);  // 1 to 4, as if by lot
  return 4 * since >= quarters * every;
}

}  // namespace lull::channel
