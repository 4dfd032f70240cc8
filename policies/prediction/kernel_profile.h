// What is known of one kernel of one task: how long it runs, and how long the pause after it is.
//
// Learnt from measured durations as they come. The mean follows drift: beyond kMeanWindow samples
// it is exponential. Quantiles come from a histogram of kPerOctave buckets an octave (each 4 %
// wide), halved when full, so that it follows too. Integers only: the same samples give the same
// figures on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/prediction/quantile_sketch.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class KernelProfile {
 public:
  static constexpr int64_t kMeanWindow = 256;
  static constexpr uint32_t kPerOctave = QuantileSketch::kPerOctave;
  static constexpr uint32_t kHistogramFull = QuantileSketch::kFull;
  static constexpr int64_t kLongestNs = QuantileSketch::kLongestNs;

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
  Duration quantile(uint32_t per_mille) const { return durations_.quantile(per_mille); }

  uint64_t gap_count() const { return gap_count_; }
  Duration mean_gap() const { return {gap_count_ == 0 ? -1 : gap_mean_x1024_ / 1024}; }
  Duration last_gap() const { return last_gap_; }  // < 0: none known
  // As `quantile`; < 0 without any.
  Duration gap_quantile(uint32_t per_mille) const {
    return gap_count_ == 0 ? Duration{-1} : gaps_.quantile(per_mille);
  }

  // All that is known, to be kept and taken up again; `from` corrects what cannot be.
  struct Saved {
    uint64_t count = 0;
    int64_t mean_x1024 = 0;
    Duration last;
    uint64_t gap_count = 0;
    int64_t gap_mean_x1024 = 0;
    Duration last_gap{-1};
    std::vector<QuantileSketch::Bucket> durations;
    std::vector<QuantileSketch::Bucket> gaps;
  };
  Saved saved() const;
  static KernelProfile from(const Saved& saved);

 private:
  uint64_t count_ = 0;
  int64_t mean_x1024_ = 0;
  Duration last_;
  uint64_t gap_count_ = 0;
  int64_t gap_mean_x1024_ = 0;
  Duration last_gap_{-1};
  QuantileSketch durations_;
  QuantileSketch gaps_;
};

}  // namespace lull::policies
