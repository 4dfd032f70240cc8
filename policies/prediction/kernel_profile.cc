#include "policies/prediction/kernel_profile.h"

#include <algorithm>
#include <bit>

namespace lull::policies {
namespace {

// Values below kPerOctave have a bucket each; above, an octave has kPerOctave.
constexpr uint32_t kShift = 4;
static_assert(1U << kShift == KernelProfile::kPerOctave);

uint16_t bucket_of(int64_t ns) {
  const auto value = static_cast<uint64_t>(ns);
  if (value < KernelProfile::kPerOctave) return static_cast<uint16_t>(value);
  const uint32_t octave = static_cast<uint32_t>(std::bit_width(value)) - 1;
  const uint64_t within = (value >> (octave - kShift)) - KernelProfile::kPerOctave;
  return static_cast<uint16_t>((octave - kShift + 1) * KernelProfile::kPerOctave + within);
}

int64_t upper_edge(uint16_t index) {
  if (index < KernelProfile::kPerOctave) return index;
  const uint32_t octave = index / KernelProfile::kPerOctave - 1;
  const uint64_t within = index % KernelProfile::kPerOctave;
  return static_cast<int64_t>(((KernelProfile::kPerOctave + within + 1) << octave) - 1);
}

void follow(int64_t& mean_x1024, uint64_t count, int64_t sample) {
  const int64_t weight =
      static_cast<int64_t>(std::min<uint64_t>(count, KernelProfile::kMeanWindow));
  mean_x1024 += (sample * 1024 - mean_x1024) / weight;
}

}  // namespace

void KernelProfile::add(Duration duration, Duration gap, bool disturbed) {
  const int64_t ns = std::clamp<int64_t>(duration.ns, 0, kLongestNs);
  if (gap.ns >= 0 && !(disturbed && gap_count_ >= kTrusted)) {
    gap_count_ += 1;
    follow(gap_mean_x1024_, gap_count_, std::min(gap.ns, kLongestNs));
  }
  if (disturbed && count_ >= kTrusted && ns >= mean().ns) return;
  count_ += 1;
  last_ = Duration{ns};
  follow(mean_x1024_, count_, ns);

  const uint16_t index = bucket_of(ns);
  auto bucket = std::lower_bound(histogram_.begin(), histogram_.end(), index,
                                 [](const Bucket& b, uint16_t i) { return b.index < i; });
  if (bucket == histogram_.end() || bucket->index != index) {
    bucket = histogram_.insert(bucket, Bucket{index, 0});
  }
  bucket->samples += 1;
  histogram_samples_ += 1;
  if (histogram_samples_ < kHistogramFull) return;
  histogram_samples_ = 0;
  for (Bucket& b : histogram_) {
    b.samples /= 2;
    histogram_samples_ += b.samples;
  }
  std::erase_if(histogram_, [](const Bucket& b) { return b.samples == 0; });
}

Duration KernelProfile::quantile(uint32_t per_mille) const {
  const uint64_t wanted =
      (uint64_t{histogram_samples_} * std::min<uint32_t>(per_mille, 1000) + 999) / 1000;
  uint64_t seen = 0;
  for (const Bucket& bucket : histogram_) {
    seen += bucket.samples;
    if (seen >= std::max<uint64_t>(wanted, 1)) return Duration{upper_edge(bucket.index)};
  }
  return Duration{};
}

}  // namespace lull::policies
