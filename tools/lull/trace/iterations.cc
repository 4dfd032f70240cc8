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
    skip_ = 0;
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
  if (mark.started) {
    started_ = at;
    keep_start(at.ns);
  }
  if (!mark.in_step) started_ = kNever;
}

// When there are too many, every other one goes, the newest among them, and from then on every other
// one is kept.
void Iterations::keep_start(int64_t at_ns) {
  if (skip_ > 0) {
    skip_ -= 1;
    return;
  }
  skip_ = row_.starts_every - 1;
  row_.starts_ns.push_back(at_ns);
  if (row_.starts_ns.size() < kMaxStarts) return;
  size_t kept = 0;
  for (size_t i = 0; i < row_.starts_ns.size(); i += 2) row_.starts_ns[kept++] = row_.starts_ns[i];
  row_.starts_ns.resize(kept);
  row_.starts_every *= 2;
  static_assert(kMaxStarts % 2 == 0);
  skip_ = row_.starts_every / 2 - 1;
}

IterationRow Iterations::finish() {
  row_.confidence = detector_.confidence_per_mille() / 1000.0;
  row_.lowest_position = detector_.lowest_memory_position();
  row_.lowest_bytes = detector_.lowest_memory_bytes();
  return std::move(row_);
}

}  // namespace lull::trace
