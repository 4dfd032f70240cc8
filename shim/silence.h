// How long lulld has shown a held thread no sign of life. The sign is lull_control.looks, which
// goes up whenever lulld looks at the client; a held thread rings its doorbell every 50 ms, so a
// lulld that runs looks many times a second. One that is stopped, or stuck on a disk, does not.
//
// Time is CLOCK_MONOTONIC, on simulated GPUs too: it stands while the machine is suspended. A look
// that comes late, because the thread itself was stopped, counts for no more than kMostALookNs:
// lulld had no doorbell to answer meanwhile. Pure; owned by the thread that is held.
#pragma once

#include <stdint.h>

#include <algorithm>

namespace lull::shim {

inline constexpr uint64_t kSilenceNs = 1'000'000'000;
inline constexpr uint64_t kMostALookNs = 100'000'000;

class Silence {
 public:
  Silence(uint32_t looks, uint64_t now_ns) : looks_(looks), looked_ns_(now_ns) {}

  // Called about every 50 ms. True: lulld is taken for stopped.
  bool lasts_too_long(uint32_t looks, uint64_t now_ns) {
    const uint64_t passed_ns = std::min(now_ns - looked_ns_, kMostALookNs);
    silent_ns_ = looks == looks_ ? silent_ns_ + passed_ns : 0;
    looks_ = looks;
    looked_ns_ = now_ns;
    return silent_ns_ >= kSilenceNs;
  }

 private:
  uint32_t looks_;
  uint64_t looked_ns_;
  uint64_t silent_ns_ = 0;
};

}  // namespace lull::shim
