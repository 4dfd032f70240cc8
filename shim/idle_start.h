// What a kernel's two timing events did not see. Pure; called by kernel_timer when a sample is
// settled.
//
// On a busy stream the begin event happens when the work before it ends, and the kernel starts at
// once. On an idle one the event happens as soon as the host has submitted it, before the host has
// even called for the kernel: the time between the two calls (the lead) is in the measured
// duration, missing from the gap before it, and the start is early by as much. In the same way a
// kernel that ends before the host has submitted the end event (the trail) seems to run until then.
//
//   host      record(begin)|--lead-->|launch()|--trail-->|record(end)
//   device    B....................K=====K...................E          measured: B to E
//
// A stream that was busy may run dry while the host is held up between the two calls: then the
// begin event happened somewhere within the lead, and the run is known by its bounds only
// (`ran_dry`).
//
// Lead and trail are taken from the return of one call to the return of the next, because what a
// call does after it has submitted (about the same for each) cancels out. A thread that loses its
// processor in between makes them anything; hence the bounds.
#pragma once

#include <stdint.h>

namespace lull::shim {

// A lead or trail longer than this was no two calls in a row.
inline constexpr uint64_t kPlausibleLeadNs = 100'000;
// A lead longer than this on a busy stream: the host was held up, or waited for a place in a full
// queue. A launch call takes 4 us, twice that under a profiler.
inline constexpr uint64_t kHeldUpNs = 20'000;
// The end event cannot have been waiting for a kernel that ended this close to its submission.
inline constexpr uint64_t kTrailSlackNs = 200;

struct MeasuredUnit {
  uint64_t measured_ns = 0;  // between the two events
  bool idle = false;         // the stream had nothing to do when the begin event was submitted
  bool ran_dry = false;      // it had nothing to do any more when the kernel was
  uint64_t lead_ns = 0;      // on the device's clock
  uint64_t trail_ns = 0;
  uint64_t shortest_ns = UINT64_MAX;  // the shortest run of this kernel seen so far
};
struct SettledUnit {
  uint64_t duration_ns = 0;
  uint64_t start_shift_ns = 0;  // how much later than the begin event it started
  uint64_t end_shift_ns = 0;    // how much earlier than the end event it ended
  bool trusted = false;         // may lower `shortest_ns`
};

inline SettledUnit settle(const MeasuredUnit& unit) {
  SettledUnit out{unit.measured_ns, 0, 0, true};
  if (unit.ran_dry) {
    const uint64_t least = unit.measured_ns > unit.lead_ns ? unit.measured_ns - unit.lead_ns : 0;
    const bool seen = unit.shortest_ns != UINT64_MAX;
    const uint64_t likely = seen && unit.shortest_ns > least ? unit.shortest_ns : least;
    if (likely != 0 && likely < unit.measured_ns) out.duration_ns = likely;
    out.start_shift_ns = unit.measured_ns - out.duration_ns;
    out.trusted = false;
    return out;
  }
  if (!unit.idle) return out;
  const uint64_t shortest =
      unit.shortest_ns < unit.measured_ns ? unit.shortest_ns : unit.measured_ns;
  if (unit.lead_ns >= unit.measured_ns) {
    // Held up after it had submitted the kernel: nothing is known of this run but its bounds.
    out = {shortest, unit.measured_ns - shortest, 0, false};
    return out;
  }
  out.trusted = unit.lead_ns <= kPlausibleLeadNs;
  out.start_shift_ns = unit.lead_ns;
  out.duration_ns = unit.measured_ns - unit.lead_ns;
  if (!out.trusted && unit.shortest_ns < unit.measured_ns && out.duration_ns < shortest) {
    out.duration_ns = shortest;
    out.start_shift_ns = unit.measured_ns - shortest;
  }
  if (out.duration_ns <= unit.trail_ns + kTrailSlackNs) {
    // It ended before anybody waited for its end: what is left is an upper bound.
    out.trusted = false;
    if (unit.shortest_ns < out.duration_ns) {
      out.end_shift_ns = out.duration_ns - unit.shortest_ns;
      out.duration_ns = unit.shortest_ns;
    }
  }
  return out;
}

}  // namespace lull::shim
