#include "policies/prediction/quantile_sketch.h"

#include <algorithm>
#include <bit>

namespace lull::policies {
namespace {

// Values below kPerOctave have a bucket each; above, an octave has kPerOctave.
constexpr uint32_t kShift = 4;
static_assert(1U << kShift == QuantileSketch::kPerOctave);

uint16_t bucket_of(int64_t ns) {
  const auto value = static_cast<uint64_t>(ns);
  if (value < QuantileSketch::kPerOctave) return static_cast<uint16_t>(value);
  const uint32_t octave = static_cast<uint32_t>(std::bit_width(value)) - 1;
  const uint64_t within = (value >> (octave - kShift)) - QuantileSketch::kPerOctave;
  return static_cast<uint16_t>((octave - kShift + 1) * QuantileSketch::kPerOctave + within);
}

int64_t upper_edge(uint16_t index) {
  if (index < QuantileSketch::kPerOctave) return index;
  const uint32_t octave = index / QuantileSketch::kPerOctave - 1;
  const uint64_t within = index % QuantileSketch::kPerOctave;
  return static_cast<int64_t>(((QuantileSketch::kPerOctave + within + 1) << octave) - 1);
}

int64_t lower_edge(uint16_t index) { return index == 0 ? 0 : upper_edge(index - 1) + 1; }

}  // namespace

void QuantileSketch::add(int64_t ns) { add(bucket_of(std::clamp<int64_t>(ns, 0, kLongestNs)), 1); }

void QuantileSketch::add(const QuantileSketch& other) {
  for (const Bucket& bucket : other.buckets_) add(bucket.index, bucket.samples);
}

void QuantileSketch::add(uint16_t index, uint32_t samples) {
  auto bucket = std::lower_bound(buckets_.begin(), buckets_.end(), index,
                                 [](const Bucket& b, uint16_t i) { return b.index < i; });
  if (bucket == buckets_.end() || bucket->index != index) {
    bucket = buckets_.insert(bucket, Bucket{index, 0});
  }
  bucket->samples += samples;
  samples_ += samples;
  if (samples_ < kFull) return;
  samples_ = 0;
  for (Bucket& b : buckets_) {
    b.samples /= 2;
    samples_ += b.samples;
  }
  std::erase_if(buckets_, [](const Bucket& b) { return b.samples == 0; });
}

const QuantileSketch::Bucket* QuantileSketch::bucket_at(uint32_t per_mille) const {
  const uint64_t wanted = (uint64_t{samples_} * std::min<uint32_t>(per_mille, 1000) + 999) / 1000;
  uint64_t seen = 0;
  for (const Bucket& bucket : buckets_) {
    seen += bucket.samples;
    if (seen >= std::max<uint64_t>(wanted, 1)) return &bucket;
  }
  return nullptr;
}

Duration QuantileSketch::quantile(uint32_t per_mille) const {
  const Bucket* bucket = bucket_at(per_mille);
  return Duration{bucket == nullptr ? 0 : upper_edge(bucket->index)};
}

Duration QuantileSketch::quantile_floor(uint32_t per_mille) const {
  const Bucket* bucket = bucket_at(per_mille);
  return Duration{bucket == nullptr ? 0 : lower_edge(bucket->index)};
}

QuantileSketch QuantileSketch::from(const std::vector<Bucket>& buckets) {
  QuantileSketch sketch;
  for (const Bucket& bucket : buckets) {
    const bool ascending = sketch.buckets_.empty() || sketch.buckets_.back().index < bucket.index;
    const bool fits = bucket.samples > 0 && bucket.samples < kFull - sketch.samples_;
    if (!ascending || !fits || bucket.index >= kBuckets) continue;
    sketch.buckets_.push_back(bucket);
    sketch.samples_ += bucket.samples;
  }
  return sketch;
}

}  // namespace lull::policies
