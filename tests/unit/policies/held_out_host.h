// A host thread that launches: its clock, its dice, and the sequence so far.
//
// Used by held_out_programs.cc and held_out_noises.cc to write sequences down; it judges nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/policies/held_out_programs.h"

namespace lull::held_out {

class Host {
 public:
  explicit Host(uint64_t seed) : dice_(seed) {}

  void launch(std::string_view name, uint64_t shape = 0) {
    uint64_t id = 0xcbf29ce484222325ULL ^ (shape * 0x9e3779b97f4a7c15ULL);
    for (const char c : name) id = (id ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    now_ns_ += 3'500 + below(4'000) + (chance(0.01) ? below(60'000) : 0);
    sequence_.launches.push_back({KernelId{id ^ (id >> 31)}, Instant{now_ns_}});
  }
  // A few shapes' worth of one operation: `count` launches.
  void several(std::string_view name, uint64_t count, uint64_t shape = 0) {
    for (uint64_t i = 0; i < count; ++i) launch(name, shape);
  }
  void pause_us(uint64_t us) { now_ns_ += static_cast<int64_t>(us * 750 + below(us * 500 + 1)); }
  uint64_t below(uint64_t n) { return n == 0 ? 0 : dice_() % n; }
  uint64_t between(uint64_t least, uint64_t most) { return least + below(most - least + 1); }
  bool chance(double p) { return static_cast<double>(dice_() >> 11) * 0x1.0p-53 < p; }
  void phase(uint32_t phase) {
    phase_ = phase;
    began_ = sequence_.launches.size();
  }

  // Excursions end here without counting as an iteration.
  void skip() { began_ = sequence_.launches.size(); }
  void end(std::vector<Range> right = {}) {
    lengths_.push_back(static_cast<uint32_t>(sequence_.launches.size() - began_));
    sequence_.ends.push_back({sequence_.launches.size(), std::move(right), phase_});
    began_ = sequence_.launches.size();
  }
  // The usual length of the iterations, give or take per mille of it, is right wherever nothing
  // else was said.
  Sequence done(uint32_t tolerance_per_mille = 0, std::vector<Range> also = {}) {
    if (!lengths_.empty()) {
      std::nth_element(lengths_.begin(),
                       lengths_.begin() + static_cast<ptrdiff_t>(lengths_.size() / 2),
                       lengths_.end());
      const uint32_t usual = lengths_[lengths_.size() / 2];
      const uint32_t off = usual * tolerance_per_mille / 1000;
      also.push_back({usual - off, usual + off});
    }
    for (IterationEnd& end : sequence_.ends) {
      if (end.right.empty()) end.right = also;
    }
    return std::move(sequence_);
  }

 private:
  std::mt19937_64 dice_;
  Sequence sequence_;
  std::vector<uint32_t> lengths_;
  int64_t now_ns_ = 0;
  size_t began_ = 0;
  uint32_t phase_ = 0;
};

}  // namespace lull::held_out
