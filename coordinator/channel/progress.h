// Which launches of a stream the device reports: those that carry a marker, a value that the device
// writes behind the launch (cuStreamWriteValue64 of the launch's sequence number to the stream's
// word of lull_progress). Shim and simulator ask the same function. Pure; any thread.
//
// A marker costs the client 2.1 us of the device, 0.76 us of the host and a place of the driver's
// queue (measured, docs/hardware, 2026-11-26): so the daemon says how many launches go by between
// two of them (lull_control.marked_every). Where the host waits in between, the next launch has one
// already when half of them have gone by: it tells when the device came back to the client.
#pragma once

#include <stdint.h>

namespace lull::channel {

// `since`: how many launches of the stream it is behind the last one with a marker, from 1;
// `behind_wait`: the host is known to have waited for all before it; `every`: 0 for no markers.
inline bool takes_marker(uint32_t every, uint64_t since, bool behind_wait) {
  return every != 0 && (since >= every || (behind_wait && 2 * since >= every));
}

}  // namespace lull::channel
