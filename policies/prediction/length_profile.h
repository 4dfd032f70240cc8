// One length of time that is measured again and again: its mean, its last value, its quantiles. Two
// such profiles make a KernelProfile. Pure, integers only: the same samples give the same figures
// on every machine. O(1) a sample. It predicts nothing itself.
//
// The mean follows the samples: beyond kMeanWindow of them it is exponential, and the histogram is
// halved when full. Two more things are done.
//
// Co-running work. A sample is `disturbed` if others, or the same client on another stream, had
// work on the device meanwhile. Such work moves a sample one way only: a kernel seems longer, the
// pause after it shorter. Of a kernel, only the shortest disturbed sample is kept until an
// undisturbed one comes: others' kernels can be a hundred times as long. Pauses vary by themselves,
// so their first kTrusted samples all count. After that no disturbed sample counts, long or short:
// to count only those that seem credible would bias the mean.
//
// Drift. A sample is outside if it is above p99, or below p1, by more than an eighth of that
// quantile and more than kNoise. If there are enough samples outside on the same side, and none
// between that contradicts, that is a drift: the profile forgets what it knew and begins again with
// them. Enough:
//
//   on the side to which others' work moves nothing (a shorter kernel)   kDrift, disturbed or not
//   on the other, undisturbed                                            kDrift
//   on the other, disturbed                                              kDriftCoRunning or more
//
// In the last case, waiting for others must not explain the samples. If n waits are spread evenly
// from 0 on, the shortest is about 1/n of the longest; the chance that it is more than kUnlikely
// times that is e^-kUnlikely. So a kernel that has become three times as long is noticed in
// kDriftCoRunning samples if waits are up to as long as the kernel, in more samples if they are
// longer. A kernel that only waits is not taken for a longer one, unless all its waits are long.
// A disturbed sample that is not outside does not contradict a shorter kernel: others' work may
// have moved it back. kSilent such samples are accepted for each one outside.
//
// The profile begins again with the undisturbed samples of the run. If there are none, it begins
// with the sample that others' work moved least, for a kernel the shortest; the first samples that
// did not wait correct that. What was forgotten is kept aside until the next drift. If that drift
// leads back to it, the profile has two lengths that take turns, and keeps both from then on. But a
// length of which no sample was undisturbed is dropped: others' work caused it.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/prediction/quantile_sketch.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class LengthProfile {
 public:
  static constexpr int64_t kMeanWindow = 256;
  static constexpr int64_t kLongestNs = QuantileSketch::kLongestNs;
  static constexpr uint64_t kTrusted = 8;
  static constexpr uint32_t kDrift = 8;
  static constexpr uint32_t kDriftCoRunning = 32;
  static constexpr uint32_t kUnlikely = 12;
  static constexpr uint32_t kSilent = 8;
  static constexpr int64_t kNoise = 1000;  // ns
  // The cautious quantiles: long for a length that must fit elsewhere, short for one to be filled.
  static constexpr uint32_t kLongPerMille = 950;
  static constexpr uint32_t kShortPerMille = 100;

  enum class CoRunning : int8_t { kShortens = -1, kLengthens = 1 };
  explicit LengthProfile(CoRunning co_running) : co_running_(co_running) {}

  void add(int64_t ns, bool disturbed);

  uint64_t count() const { return count_; }
  // How often what was known was forgotten.
  uint32_t relearnt() const { return relearnt_; }
  Duration mean() const { return {mean_x1024_ / 1024}; }
  Duration last() const { return last_; }
  // Upper edge of the bucket below which `per_mille` thousandths of the samples lie; 0 without any.
  Duration quantile(uint32_t per_mille) const { return sketch_.quantile(per_mille); }
  // The p95, rounded up, and the p10, rounded down; kept at hand.
  Duration at_most() const { return {at_most_ns_}; }
  Duration at_least() const { return {at_least_ns_}; }

  // Whether `ns` lies between the p1 and the p99 of the samples.
  bool has_seen(int64_t ns) const { return count_ > 0 && ns >= p1_ns_ && ns <= p99_ns_; }

  // All that is known, to be kept and taken up again; `take_up` corrects impossible values.
  struct Saved {
    uint64_t count = 0;
    int64_t mean_x1024 = 0;
    Duration last;
    std::vector<QuantileSketch::Bucket> buckets;
  };
  Saved saved() const { return {count_, mean_x1024_, last_, sketch_.buckets()}; }
  void take_up(const Saved& saved);

 private:
  static constexpr uint32_t kEnough =
      kDriftCoRunning;  // weight of samples outside that makes a drift

  void forget();
  void count(int64_t ns, bool alone);
  void derive();
  bool notice(int64_t ns, bool disturbed);
  void end_run();
  void relearn();

  CoRunning co_running_;
  uint64_t count_ = 0;
  int64_t mean_x1024_ = 0;
  Duration last_;
  QuantileSketch sketch_;
  bool seen_alone_ = false;  // some of it is undisturbed
  uint32_t relearnt_ = 0;
  // Of the sketch.
  int64_t p1_ns_ = 0;
  int64_t p99_ns_ = 0;
  int64_t at_least_ns_ = 0;
  int64_t at_most_ns_ = 0;

  // ---- samples outside, on one side, not counted yet ----
  int run_side_ = 0;               // -1 shorter, 1 longer, 0 none
  uint32_t run_weight_ = 0;
  uint32_t run_outside_ = 0;
  uint32_t run_silent_ = 0;
  int64_t run_nearest_ = 0;        // the sample that others' work moved least, and most
  int64_t run_farthest_ = 0;
  std::vector<int64_t> run_;       // the undisturbed ones
  bool run_alone_ = true;          // false: `run_` is the sample that others' work moved least

  // ---- what was forgotten last ----
  QuantileSketch left_;
  int64_t left_mean_x1024_ = 0;
};

}  // namespace lull::policies
