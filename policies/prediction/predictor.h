// How long a launch will run and how long the pause after it will be, from what is known of its
// kernel: five ways to say it, and the score that tells which of them says it best.
//
//   mean      the kernel's mean, as the published rule (fikit.h) has it
//   quantile  the kernel's p95, and p10 of its pause
//   pair      the same of the kernel after the launch before it
//   position  the same of the kernel where it stands in the detected iteration
//   best      for each kernel the one that has scored best
//
// The finer ways fall back where too little is known: position on pair, pair on quantile. The
// engine asks at each launch and at each held head, and scores what was said of a launch when its
// measurement comes. Pure; O(1), integers only. What a kernel that was never measured is worth is
// not said here: its task knows.
//
// Three figures, since they serve different ends. `length` is what others must reckon with, and
// errs towards too long; `gap` is what may be filled, and errs towards too short; `expected` is the
// mean of whatever the length was taken from, and may be added up along an iteration, as quantiles
// may not. The mean is all three to itself.
//
// The score is the pinball loss at the quantile that is wanted, 19 : 1 against what is too short for
// a length and 9 : 1 against what is too long for a pause: its minimum is the true quantile, so a
// way that is nearer to it scores better, and one that is only higher does not. (The absolute error
// would reward the median.) It is smoothed over the last kScoreWindow measurements of the kernel,
// for lengths and pauses apart, as the position may tell the pause and not the length. A simpler way
// is kept unless a finer one is better by a sixteenth. Before kEnough measurements the kernel's
// quantile speaks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "policies/prediction/kernel_profile.h"
#include "policies/vocabulary.h"

namespace lull::policies {

enum class Predictor : uint8_t { kMean, kQuantile, kPair, kPosition, kBest };
inline constexpr size_t kPlainPredictors = 4;  // all but kBest, simpler ones first

std::string_view name_of(Predictor predictor);
std::optional<Predictor> predictor_named(std::string_view name);
std::string predictor_names();

// What is known of a launch. Null, or without samples: nothing.
struct Known {
  const KernelProfile* kernel = nullptr;
  const KernelProfile* pair = nullptr;
  const KernelProfile* position = nullptr;
};

// The finest of them with enough samples; null: none but the kernel's own.
const LengthProfile* durations_here(const Known& known);
const LengthProfile* gaps_here(const Known& known);

// Of a kernel with samples; `how` is not kBest.
Duration predicted_length(Predictor how, const Known& known);
Duration expected_length(Predictor how, const Known& known);
Duration predicted_gap(Predictor how, const Known& known);  // < 0: not known

// Which of them has said best of late what came.
class PredictorScore {
 public:
  static constexpr int64_t kScoreWindow = 32;
  static constexpr uint32_t kEnough = 3;

  explicit PredictorScore(uint32_t per_mille) : per_mille_(per_mille) {}
  void add(const std::array<Duration, kPlainPredictors>& said, Duration came);
  Predictor best() const { return best_; }
  // Smoothed, in ns x 1000.
  int64_t loss(Predictor of) const { return loss_[static_cast<size_t>(of)]; }

 private:
  uint32_t per_mille_;
  uint32_t count_ = 0;
  Predictor best_ = Predictor::kQuantile;
  std::array<int64_t, kPlainPredictors> loss_{};
};

// The scores of one kernel.
class PredictorChoice {
 public:
  // What was measured of a launch undisturbed, and what was known of it before. < 0: was not.
  void add(const Known& before, Duration duration, Duration gap);
  Predictor length() const { return length_.best(); }
  Predictor gap() const { return gap_.best(); }

 private:
  PredictorScore length_{LengthProfile::kLongPerMille};
  PredictorScore gap_{LengthProfile::kShortPerMille};
};

}  // namespace lull::policies
