// The repeating step of one client, found from its launches alone: the one place where the trace
// tools meet the iteration detector of policies/prediction. Fed by the analysis in the order in
// which the program launched; one thread. Bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policies/prediction/iteration_detector.h"
#include "tools/lull/trace/report.h"

namespace lull::trace {

class Iterations {
 public:
  static constexpr size_t kMaxStarts = 4096;

  // `kernel` is the id of the launched unit.
  void launched(KernelId kernel, Instant at, uint64_t used_bytes);
  IterationRow finish();
  size_t kept_bytes() const { return row_.length.kept_bytes(); }

 private:
  void keep_start(int64_t at_ns);

  policies::IterationDetector detector_;
  IterationRow row_;
  Instant started_ = kNever;         // of the iteration in progress
  uint64_t skip_ = 0;                // iterations until the next start is kept
  int64_t furthest_ns_ = INT64_MAX;  // how far the typical one is from the median
};

}  // namespace lull::trace
