// How late the player's calls were: a histogram of fixed size with 3 % resolution.
// Filled by the player's one thread. Pure.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lull::play {

class Lateness {
 public:
  void add(uint64_t late_ns) {
    ++counts_[bucket(late_ns)];
    ++total_;
    if (late_ns > max_ns_) max_ns_ = late_ns;
  }
  void clear() { *this = Lateness(); }
  uint64_t count() const { return total_; }
  uint64_t max_ns() const { return max_ns_; }
  // The smallest bucket bound that at least the share `q` of the values do not exceed.
  uint64_t quantile_ns(double q) const {
    if (total_ == 0) return 0;
    const auto wanted = static_cast<uint64_t>(q * static_cast<double>(total_) + 0.999999);
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= wanted) return upper(i) < max_ns_ ? upper(i) : max_ns_;
    }
    return max_ns_;
  }

 private:
  static constexpr unsigned kSteps = 32;  // per doubling
  static constexpr unsigned kStepBits = 5;
  static constexpr unsigned kDoublings = 40;
  static size_t bucket(uint64_t value) {
    if (value < kSteps) return value;
    const auto power = static_cast<unsigned>(std::bit_width(value)) - 1;  // >= kStepBits
    const size_t at =
        size_t{power - kStepBits + 1} * kSteps + ((value >> (power - kStepBits)) - kSteps);
    return at < kSteps * kDoublings ? at : kSteps * kDoublings - 1;
  }
  static uint64_t upper(size_t at) {
    if (at < kSteps) return at;
    const unsigned shift = static_cast<unsigned>(at / kSteps) - 1;
    return ((kSteps + at % kSteps + 1) << shift) - 1;
  }
  std::array<uint64_t, size_t{kSteps} * kDoublings> counts_{};
  uint64_t total_ = 0, max_ns_ = 0;
};

}  // namespace lull::play
