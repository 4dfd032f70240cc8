// How long a task's iterations take now, and how long they took while it had the device to itself:
// the two make its slowdown. An iteration is undisturbed when no other client of its devices had
// work on them from its start to its end. The engine keeps one for each client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

class IterationTimes {
 public:
  static constexpr size_t kLately = 15;       // iterations that count as now
  static constexpr size_t kUndisturbed = 63;  // the last undisturbed ones
  static constexpr uint64_t kTrusted = 3;     // iterations that make a figure

  // `generation`: of the detector. With another one all figures begin anew.
  void add(uint64_t generation, Duration took, bool disturbed);
  // The figure of an earlier run: used until this run has enough iterations.
  void recall(Duration undisturbed, uint64_t count);

  Duration now() const;          // median of the last kLately; 0 with fewer than kTrusted
  Duration undisturbed() const;  // median; 0: not known
  uint64_t undisturbed_count() const { return undisturbed_count_; }
  // now / undisturbed in thousandths; 0: not known.
  uint32_t slowdown_per_mille() const;

 private:
  uint64_t generation_ = 0;
  std::vector<Duration> lately_;  // oldest first
  std::vector<Duration> alone_;   // oldest first
  uint64_t undisturbed_count_ = 0;
  Duration recalled_;
};

}  // namespace lull::policies
