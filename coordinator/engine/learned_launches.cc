#include "coordinator/engine/learned_launches.h"

namespace lull::engine {

policies::IterationDetector::Mark LearnedLaunches::launched(const Launched& launch, Instant at) {
  const auto mark = detector_.launch(launch.kernel, at, launch.memory_bytes);
  if (places_.empty()) places_.resize(kPlaces);
  places_[index(launch.stream, launch.sequence)] = {.stream = launch.stream,
                                                    .sequence = launch.sequence,
                                                    .kernel = launch.kernel,
                                                    .before = before_,
                                                    .generation = detector_.generation(),
                                                    .position = mark.position,
                                                    .in_step = mark.in_step};
  before_ = launch.kernel;
  return mark;
}

void LearnedLaunches::iteration(Duration took, bool disturbed) {
  times_.add(detector_.generation(), took, disturbed);
}

const LearnedLaunches::Place* LearnedLaunches::place(const Timed& timed) const {
  if (timed.sequence == 0 || places_.empty()) return nullptr;
  const Place& place = places_[index(timed.stream, timed.sequence)];
  const bool same = place.sequence == timed.sequence && place.stream == timed.stream &&
                    place.kernel == timed.kernel;
  return same ? &place : nullptr;
}

void LearnedLaunches::timed(const Place& place, const Timed& timed, bool disturbed) {
  if (!place.in_step) return;
  positions_.add(place.generation, place.position, timed.duration, timed.gap, disturbed);
}

}  // namespace lull::engine
