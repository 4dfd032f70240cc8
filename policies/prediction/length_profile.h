// One length of time that comes again and again, learnt from measurements as they come: its mean,
// its last value, its quantiles. Two of it make a KernelProfile; pure, integers only: the same
// samples give the same figures on every machine. O(1) a sample; it predicts nothing itself.
//
// The mean follows: beyond kMeanWindow samples it is exponential, and the histogram is halved when
// full. Two things are done beyond that.
//
// Company. A sample taken while others, or its own client on another stream, had work on the device is
// `disturbed`: what it says is the length and that work in its way, which moves it one way only (a
// kernel seems longer, the pause after it shorter). Of what company lengthens, the shortest is all that is known until one is
// undisturbed: others' kernels can be a hundred times as long. Pauses vary by themselves, so of what
// it shortens the first kTrusted samples count as they come. From then on a disturbed one counts
// neither where it is long nor where it is short: to take only those that seem credible would bias the
// mean towards them.
//
// Drift. A sample is outside when it is beyond p99, or below p1, by an eighth of it and kNoise. So
// many outside on the same side, with none between that contradicts, make a drift; what was known is
// forgotten, and the profile begins again with them:
//
//   on the side to which company moves nothing (a shorter kernel)   kDrift, disturbed or not
//   on the other, undisturbed                                       kDrift
//   on the other, disturbed                                         kDriftInCompany or more
//
// For the last, waiting alone must not explain them. Of n waits that spread evenly from none the
// least is about 1/n of the longest; e^-kUnlikely is the chance that it is more than kUnlikely times
// that. So a kernel three times as long is noticed in kDriftInCompany samples where the waits are up
// to as long as it is, in more where they are longer, and one that only waits is not, unless it never
// waits for little. It begins with the undisturbed samples of the run where there are some,
// else with the one that company has moved least, the shortest of a kernel's; and is put right by the
// first ones that did not wait. A disturbed sample that is not outside says nothing against a shorter
// kernel, which may be outside and moved back: kSilent such for each that is outside are borne.
// What is forgotten is kept aside until the next drift. If that one leads back to it, the two were no
// drifts but two lengths taking turns, and are kept together from then on; except a length in which
// nobody ever saw the task alone: that was company, and is dropped.
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
  static constexpr uint32_t kDriftInCompany = 32;
  static constexpr uint32_t kUnlikely = 12;
  static constexpr uint32_t kSilent = 8;
  static constexpr int64_t kNoise = 1000;  // ns
  // What is cautious for a length that others have to fit in, or that has to fit elsewhere.
  static constexpr uint32_t kLongPerMille = 950;
  static constexpr uint32_t kShortPerMille = 100;

  enum class Company : int8_t { kShortens = -1, kLengthens = 1 };
  explicit LengthProfile(Company company) : company_(company) {}

  void add(int64_t ns, bool disturbed);

  uint64_t count() const { return count_; }
  // How often what was known was forgotten.
  uint32_t relearnt() const { return relearnt_; }
  Duration mean() const { return {mean_x1024_ / 1024}; }
  Duration last() const { return last_; }
  // Upper edge of the bucket below which `per_mille` thousandths of the samples lie; 0 without any.
  Duration quantile(uint32_t per_mille) const { return sketch_.quantile(per_mille); }
  // p95, never too short, and p10, never too long; kept at hand.
  Duration at_most() const { return {at_most_ns_}; }
  Duration at_least() const { return {at_least_ns_}; }

  // Whether it is as samples of this length have been, from p1 to p99.
  bool has_seen(int64_t ns) const { return count_ > 0 && ns >= p1_ns_ && ns <= p99_ns_; }

  // All that is known, to be kept and taken up again; `take_up` corrects what cannot be.
  struct Saved {
    uint64_t count = 0;
    int64_t mean_x1024 = 0;
    Duration last;
    std::vector<QuantileSketch::Bucket> buckets;
  };
  Saved saved() const { return {count_, mean_x1024_, last_, sketch_.buckets()}; }
  void take_up(const Saved& saved);

 private:
  static constexpr uint32_t kEnough = kDriftInCompany;  // weight of samples outside that makes a drift

  void forget();
  void count(int64_t ns, bool alone);
  void derive();
  bool notice(int64_t ns, bool disturbed);
  void end_run();
  void relearn();

  Company company_;
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
  int64_t run_nearest_ = 0;        // that company has moved least, and most
  int64_t run_farthest_ = 0;
  std::vector<int64_t> run_;       // the undisturbed ones
  bool run_alone_ = true;          // false: begun again with what company has moved least

  // ---- what was forgotten last ----
  QuantileSketch left_;
  int64_t left_mean_x1024_ = 0;
};

}  // namespace lull::policies
