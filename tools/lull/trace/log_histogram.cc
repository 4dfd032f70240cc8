#include "tools/lull/trace/log_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lull::trace {

uint32_t LogHistogram::bucket_of(int64_t ns) {
  const auto value = static_cast<uint64_t>(ns);
  if (value < kPerOctave) return static_cast<uint32_t>(value);
  const uint32_t octave = static_cast<uint32_t>(std::bit_width(value)) - 1;
  const auto within = static_cast<uint32_t>(value >> (octave - kShift)) - kPerOctave;
  return (octave - kShift + 1) * kPerOctave + within;
}

int64_t LogHistogram::lower_edge(uint32_t index) {
  if (index < kPerOctave) return index;
  const uint32_t octave = index / kPerOctave - 1;
  return static_cast<int64_t>(uint64_t{kPerOctave + index % kPerOctave} << octave);
}

void LogHistogram::add(int64_t ns) {
  ns = std::clamp<int64_t>(ns, 0, kLongestNs);
  min_ns_ = count_ == 0 ? ns : std::min(min_ns_, ns);
  max_ns_ = std::max(max_ns_, ns);
  count_ += 1;
  total_ns_ = add_ns(total_ns_, ns);
  const uint32_t bucket = bucket_of(ns);
  if (samples_.empty()) {
    first_ = bucket;
    samples_.resize(1);
  } else if (bucket < first_) {
    samples_.insert(samples_.begin(), first_ - bucket, 0);
    first_ = bucket;
  } else if (bucket - first_ >= samples_.size()) {
    samples_.resize(bucket - first_ + 1);
  }
  uint32_t& samples = samples_[bucket - first_];
  samples += samples != UINT32_MAX ? 1 : 0;
}

double LogHistogram::quantile_ns(double share) const {
  if (count_ == 0) return 0;
  const double wanted = std::max(1.0, std::ceil(share * static_cast<double>(count_)));
  if (wanted <= 1) return static_cast<double>(min_ns_);
  if (wanted >= static_cast<double>(count_)) return static_cast<double>(max_ns_);
  uint64_t before = 0;
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (static_cast<double>(before + samples_[i]) < wanted) {
      before += samples_[i];
      continue;
    }
    const auto index = static_cast<uint32_t>(first_ + i);
    const auto low = static_cast<double>(lower_edge(index));
    const auto width = static_cast<double>(lower_edge(index + 1)) - low - 1;
    const double within = (wanted - static_cast<double>(before) - 0.5) / samples_[i];
    return std::clamp(low + width * within, static_cast<double>(min_ns_),
                      static_cast<double>(max_ns_));
  }
  return static_cast<double>(max_ns_);
}

}  // namespace lull::trace
