// Quantiles of any number of lengths of time in bounded memory: counts by size, kPerOctave buckets
// an octave (0.8 % wide at most; below 128 ns every value has its own). Only the range of buckets
// in use is kept. Used by the trace analysis, one thread. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lull::trace {

// Sums of lengths stop at the largest that there is: files may say anything.
inline int64_t add_ns(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

class LogHistogram {
 public:
  static constexpr uint32_t kShift = 7;
  static constexpr uint32_t kPerOctave = 1U << kShift;
  static constexpr int64_t kLongestNs = (int64_t{1} << 44) - 1;  // longer ones count as this long

  void add(int64_t ns);

  uint64_t count() const { return count_; }
  int64_t total_ns() const { return total_ns_; }
  int64_t min_ns() const { return min_ns_; }  // 0 without samples
  int64_t max_ns() const { return max_ns_; }
  // Of the sample with rank ceil(share * count), within half a bucket, never outside min and max.
  // 0 without samples.
  double quantile_ns(double share) const;

  // Calls use(lower edge, upper edge, samples) for each bucket with samples, in order.
  template <typename Use>
  void for_each(Use&& use) const {
    for (size_t i = 0; i < samples_.size(); ++i) {
      const auto index = static_cast<uint32_t>(first_ + i);
      if (samples_[i] > 0) use(lower_edge(index), lower_edge(index + 1), samples_[i]);
    }
  }

  size_t kept_bytes() const { return samples_.capacity() * sizeof(uint32_t); }

 private:
  static uint32_t bucket_of(int64_t ns);
  static int64_t lower_edge(uint32_t index);

  uint64_t count_ = 0;
  int64_t total_ns_ = 0, min_ns_ = 0, max_ns_ = 0;
  uint32_t first_ = 0;             // bucket of samples_[0]
  std::vector<uint32_t> samples_;  // a full bucket stays full
};

}  // namespace lull::trace
