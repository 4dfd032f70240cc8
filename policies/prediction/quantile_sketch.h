// Quantiles of a stream of lengths of time, in little memory: a histogram of kPerOctave buckets an
// octave (each 4 % wide). Only buckets with samples are kept. When it is full, all counts are
// halved: so it follows drift. Integers only: the same samples give the same figures on every
// machine. Used by the profiles of this folder. No clock, no thread.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class QuantileSketch {
 public:
  static constexpr uint32_t kPerOctave = 16;
  static constexpr uint32_t kFull = 4096;
  static constexpr int64_t kLongestNs = int64_t{1} << 40;  // longer samples count as this long
  static constexpr uint16_t kBuckets = 600;                // every index is below

  struct Bucket {
    uint16_t index = 0;
    uint32_t samples = 0;
  };

  void add(int64_t ns);
  void add(const QuantileSketch& other);
  // Upper edge of the bucket below which `per_mille` thousandths of the samples lie; 0 without any.
  Duration quantile(uint32_t per_mille) const;
  // Its lower edge: the same quantile, never too long.
  Duration quantile_floor(uint32_t per_mille) const;
  uint32_t samples() const { return samples_; }

  // Its buckets, ascending by index. `from` takes buckets over, and leaves out impossible ones.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  static QuantileSketch from(const std::vector<Bucket>& buckets);

 private:
  void add(uint16_t index, uint32_t samples);
  const Bucket* bucket_at(uint32_t per_mille) const;

  uint32_t samples_ = 0;
  std::vector<Bucket> buckets_;
};

}  // namespace lull::policies
