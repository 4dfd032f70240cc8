// When the host makes its next call: the rule of workload.h as arithmetic.
// Used by the player for every operation; tests drive it with a made-up clock. Pure.
//
//   deadline(i) = ready + pause                             absolute, in model ns
//   ready       = deadline(i) + max(call_ns, took)          after an asynchronous call
//               = returned                                  after a blocking one
//
// So a late wake-up is caught up by the calls that follow, while a call that was held up inside
// the driver, or a wait for the device, moves the rest of the timeline as it would in the program.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lull::play {

class HostTimeline {
 public:
  // The iteration starts, or the host has nothing to catch up.
  void restart(uint64_t now_ns) { ready_ns_ = now_ns; }
  uint64_t ready_ns() const { return ready_ns_; }
  uint64_t deadline_ns(uint64_t pause_ns) const { return ready_ns_ + pause_ns; }

  void async_call(uint64_t deadline_ns, uint64_t call_ns, uint64_t called_ns,
                  uint64_t returned_ns) {
    ready_ns_ = deadline_ns + std::max(call_ns, returned_ns - called_ns);
  }
  void blocking_call(uint64_t returned_ns) { ready_ns_ = returned_ns; }

 private:
  uint64_t ready_ns_ = 0;
};

}  // namespace lull::play
