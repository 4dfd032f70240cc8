#include "policies/prediction/predictor.h"

#include <algorithm>

namespace lull::policies {
namespace {

constexpr std::string_view kNames[] = {"mean", "quantile", "pair", "position", "best"};
// A place is asked if it has this many samples.
constexpr uint64_t kPlaceKnown = 3;

// The finest place that `how` may use and that has enough samples. `of` chooses lengths or gaps.
template <typename Of>
const LengthProfile* here(Predictor how, const Known& known, Of of) {
  for (const auto& [at_least, place] : {std::pair{Predictor::kPosition, known.position},
                                        std::pair{Predictor::kPair, known.pair}}) {
    if (how >= at_least && place != nullptr && of(*place).count() >= kPlaceKnown) {
      return &of(*place);
    }
  }
  return nullptr;
}
template <typename Of>
const LengthProfile& source(Predictor how, const Known& known, Of of) {
  const LengthProfile* place = here(how, known, of);
  return place != nullptr ? *place : of(*known.kernel);
}

const LengthProfile& durations(const KernelProfile& profile) { return profile.durations(); }
const LengthProfile& gaps(const KernelProfile& profile) { return profile.gaps(); }

}  // namespace

std::string_view name_of(Predictor predictor) { return kNames[static_cast<size_t>(predictor)]; }

std::optional<Predictor> predictor_named(std::string_view name) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<Predictor>(found - std::begin(kNames));
}

std::string predictor_names() {
  std::string names;
  for (const std::string_view name : kNames) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

const LengthProfile* durations_here(const Known& known) {
  return here(Predictor::kPosition, known, durations);
}
const LengthProfile* gaps_here(const Known& known) { return here(Predictor::kPosition, known, gaps); }

Duration predicted_length(Predictor how, const Known& known) {
  const LengthProfile& from = source(how, known, durations);
  return how == Predictor::kMean ? from.mean() : from.at_most();
}

Duration expected_length(Predictor how, const Known& known) {
  return source(how, known, durations).mean();
}

Duration predicted_gap(Predictor how, const Known& known) {
  const LengthProfile& from = source(how, known, gaps);
  if (from.count() == 0) return Duration{-1};
  return how == Predictor::kMean ? from.mean() : from.at_least();
}

void PredictorScore::add(const std::array<Duration, kPlainPredictors>& said, Duration came) {
  count_ += 1;
  const int64_t weight = std::min<int64_t>(count_, kScoreWindow);
  for (size_t i = 0; i < kPlainPredictors; ++i) {
    const int64_t short_by = came.ns - said[i].ns;
    const int64_t loss =
        short_by > 0 ? short_by * per_mille_ : -short_by * (1000 - int64_t{per_mille_});
    loss_[i] += (loss - loss_[i]) / weight;
  }
  if (count_ < kEnough) return;
  const int64_t least = *std::min_element(loss_.begin(), loss_.end());
  size_t simplest = 0;
  while (loss_[simplest] > least + least / 16) ++simplest;
  best_ = static_cast<Predictor>(simplest);
}

void PredictorChoice::add(const Known& before, Duration duration, Duration gap) {
  if (before.kernel == nullptr || before.kernel->count() == 0) return;
  std::array<Duration, kPlainPredictors> said;
  const auto all_say = [&](auto how) {
    for (size_t i = 0; i < kPlainPredictors; ++i) said[i] = how(static_cast<Predictor>(i), before);
  };
  if (duration.ns >= 0) {
    all_say(predicted_length);
    length_.add(said, duration);
  }
  if (gap.ns < 0 || before.kernel->gap_count() == 0) return;
  all_say(predicted_gap);
  gap_.add(said, gap);
}

}  // namespace lull::policies
