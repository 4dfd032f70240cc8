// How much longer a program waits for a coordinator's answer.
//
// The bound is one of the time in which the program runs. A look that comes late, because the
// program was stopped or got no processor, counts for no more than kMostALookNs: lulld, on the same
// machine, may have had no chance to answer meanwhile. silence.h does the same for held threads.
// Time is CLOCK_MONOTONIC. Pure; owned by the thread that waits.
#pragma once

#include <stdint.h>

#include <algorithm>

#include "shim/silence.h"

namespace lull::shim {

class Patience {
 public:
  Patience(uint64_t bound_ns, uint64_t now_ns) : left_ns_(bound_ns), looked_ns_(now_ns) {}

  // Called about every 50 ms. 0: it is over.
  uint64_t left_ns(uint64_t now_ns) {
    left_ns_ -= std::min({now_ns - looked_ns_, kMostALookNs, left_ns_});
    looked_ns_ = now_ns;
    return left_ns_;
  }

 private:
  uint64_t left_ns_;
  uint64_t looked_ns_;
};

}  // namespace lull::shim
