// The union of intervals that come nearly in order (several streams, each in its own order), in
// bounded memory: they wait in a window of kWindow and leave it sorted. One that comes later than
// that counts only as far as it reaches behind what has left. Used by the trace analysis and the
// exporters, one thread. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tools/lull/trace/log_histogram.h"

namespace lull::trace {

class BusyUnion {
 public:
  static constexpr size_t kWindow = 1U << 15;
  // Each maximal busy interval, in order of time.
  using Sink = std::function<void(int64_t start_ns, int64_t end_ns)>;

  BusyUnion() = default;
  explicit BusyUnion(Sink sink) : sink_(std::move(sink)) {}

  void add(int64_t start_ns, int64_t end_ns);
  void finish();  // nothing is added afterwards

  // After finish().
  bool empty() const { return !any_; }
  int64_t first_ns() const { return first_ns_; }
  int64_t last_ns() const { return last_ns_; }
  int64_t busy_ns() const { return busy_ns_; }
  const LogHistogram& idle() const { return idle_; }  // the gaps between busy intervals

  size_t kept_bytes() const {
    return waiting_.capacity() * sizeof(waiting_[0]) + idle_.kept_bytes();
  }

 private:
  void sort();
  void retire(size_t how_many);

  Sink sink_;
  std::vector<std::pair<int64_t, int64_t>> waiting_;
  size_t sorted_ = 0;  // so many of them, from the front
  bool any_ = false;
  int64_t first_ns_ = 0, last_ns_ = 0, busy_ns_ = 0;
  int64_t open_from_ns_ = 0, open_until_ns_ = 0;  // the busy interval that may still grow
  LogHistogram idle_;
};

}  // namespace lull::trace
