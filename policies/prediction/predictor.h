// Predicts how long a launch will run and how long the pause after it will be, from what is known
// of its kernel. There are five ways, and a score that tells which of them is best.
//
//   mean      the kernel's mean, as the published rule (fikit.h) has it
//   quantile  the kernel's p95, and p10 of its pause
//   pair      the same of the kernel after the launch before it
//   position  the same of the kernel where it stands in the detected iteration
//   best      for each kernel the one that has scored best
//
// The finer ways fall back where too little is known: position on pair, pair on quantile. The
// engine asks at each launch, and when one is held. It scores what was said of a launch when the
// launch's measurement comes. Pure; O(1), integers only. A kernel that was never measured is not
// predicted here: its task does that.
//
// There are three figures, for different uses. `length` is what others must be prepared for: rather
// too long than too short. `gap` is what others may fill: rather too short than too long.
// `expected` is the mean of the samples that the length was taken from; unlike quantiles, it may be
// added up along an iteration. With `mean` all three are means.
//
// The score is the pinball loss at the wanted quantile. For a length, too short counts 19 times as
// much as too long; for a pause, too long counts 9 times as much as too short. The true quantile
// has the least loss, so a way that is nearer to it scores better, and one that is only higher does
// not. (The absolute error would reward the median.) The score is smoothed over the last
// kScoreWindow measurements of the kernel. Lengths and pauses are scored apart: the position may
// tell the pause and not the length. A finer way is used only if it is better by a sixteenth.
// Before kEnough measurements `quantile` is used.
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

// The finest profile with enough samples; null: only the kernel's own has.
const LengthProfile* durations_here(const Known& known);
const LengthProfile* gaps_here(const Known& known);

// Of a kernel with samples; `how` is not kBest.
Duration predicted_length(Predictor how, const Known& known);
Duration expected_length(Predictor how, const Known& known);
Duration predicted_gap(Predictor how, const Known& known);  // < 0: not known

// Which of the ways has lately predicted best.
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
  // An undisturbed measurement of a launch, and what was known before it. < 0: not measured.
  void add(const Known& before, Duration duration, Duration gap);
  Predictor length() const { return length_.best(); }
  Predictor gap() const { return gap_.best(); }

 private:
  PredictorScore length_{LengthProfile::kLongPerMille};
  PredictorScore gap_{LengthProfile::kShortPerMille};
};

}  // namespace lull::policies
