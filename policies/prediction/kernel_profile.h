// What is known of one kernel of one task: how long it runs, and how long the pause after it is.
//
// Learnt from measured durations as they come. The mean follows drift: beyond kMeanWindow samples
// it is exponential. Quantiles come from a histogram of kPerOctave buckets an octave (each 4 %
// wide), halved when full, so that it follows too. Integers only: the same samples give the same
// figures on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class KernelProfile {
 public:
  static constexpr int64_t kMeanWindow = 256;
  static constexpr uint32_t kPerOctave = 16;
  static constexpr uint32_t kHistogramFull = 4096;
  static constexpr int64_t kLongestNs = int64_t{1} << 40;  // longer samples count as this long

  // Samples that are trusted as they come; from here on disturbed ones are looked at askance.
  static constexpr uint64_t kTrusted = 8;

  // `gap` < 0: not known. `disturbed`: other work was on the device meanwhile, which makes a kernel
  // seem longer and its gap anything. Once kTrusted samples are there, such a sample counts only
  // where it is shorter than the mean, and its gap not at all.
  void add(Duration duration, Duration gap, bool disturbed = false);

  uint64_t count() const { return count_; }
  Duration mean() const { return {mean_x1024_ / 1024}; }
  Duration last() const { return last_; }
  // Upper edge of the bucket below which `per_mille` thousandths of the samples lie; 0 without any.
  Duration quantile(uint32_t per_mille) const;

  uint64_t gap_count() const { return gap_count_; }
  Duration mean_gap() const { return {gap_count_ == 0 ? -1 : gap_mean_x1024_ / 1024}; }

 private:
  struct Bucket {
    uint16_t index = 0;
    uint32_t samples = 0;
  };

  uint64_t count_ = 0;
  int64_t mean_x1024_ = 0;
  Duration last_;
  uint64_t gap_count_ = 0;
  int64_t gap_mean_x1024_ = 0;
  uint32_t histogram_samples_ = 0;
  std::vector<Bucket> histogram_;  // by index; only those with samples
};

}  // namespace lull::policies
