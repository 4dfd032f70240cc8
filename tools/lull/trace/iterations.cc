#include "tools/lull/trace/iterations.h"

#include <cstdlib>
#include <utility>

namespace lull::trace {

void Iterations::launched(KernelId kernel, Instant at, uint64_t used_bytes) {
  const auto mark = detector_.launch(kernel, at, used_bytes);
  // A loop inside the iteration may have been taken for it at first: its figures are not kept.
  const uint64_t period = detector_.period();
  if (period > 0 && (period > 2 * row_.launches_each || 2 * period < row_.launches_each)) {
    row_ = IterationRow();
    furthest_ns_ = INT64_MAX;
    row_.launches_each = period;
  }
  if (mark.completed) {
    row_.iterations += 1;
    row_.length.add(mark.took.ns);
    const int64_t away_ns = std::abs(mark.took.ns - detector_.median_time().ns);
    if (started_ != kNever && away_ns <= furthest_ns_) {
      furthest_ns_ = away_ns;
      row_.typical_from_ns = started_.ns;
      row_.typical_until_ns = started_.ns + mark.took.ns;
    }
  }
  if (mark.started) started_ = at;
  if (!mark.in_step) started_ = kNever;
}

IterationRow Iterations::finish() {
  row_.confidence = detector_.confidence_per_mille() / 1000.0;
  row_.lowest_position = detector_.lowest_memory_position();
  row_.lowest_bytes = detector_.lowest_memory_bytes();
  return std::move(row_);
}

}  // namespace lull::trace
