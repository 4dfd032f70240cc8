#include "coordinator/engine/learned_launches.h"

namespace lull::engine {

policies::IterationDetector::Mark LearnedLaunches::launched(const Launched& launch, Instant at,
                                                            Company company) {
  const auto mark = detector_.launch(launch.kernel, at, launch.memory_bytes);
  if (places_.empty()) places_.resize(kPlaces);
  latest_ = index(launch.stream, launch.sequence);
  places_[latest_] = {
      .sequence = launch.sequence,
      .at = at,
      .kernel = launch.kernel,
      .before = before_,
      .generation = detector_.generation(),
      .stream = launch.stream,
      .position = mark.position,
      .others = company.launches,
      .in_step = mark.in_step && detector_.kernel_at(mark.position) == launch.kernel,
      .disturbed = company.present};
  before_ = launch.kernel;
  return mark;
}

void LearnedLaunches::completed(StreamSlot stream, uint64_t sequence, uint32_t others_launches) {
  Place& place = places_[index(stream, sequence)];
  if (place.sequence != sequence || place.stream != stream) return;
  place.completed = true;
  place.disturbed |= place.others != others_launches;
}

LearnedLaunches::Place LearnedLaunches::next(KernelId kernel) const {
  const auto position = detector_.place_of_next(kernel);
  return {.kernel = kernel,
          .before = before_,
          .generation = detector_.generation(),
          .position = position.value_or(0),
          .in_step = position.has_value()};
}

void LearnedLaunches::iteration(Duration took, bool disturbed) {
  times_.add(detector_.generation(), took, disturbed);
}

const LearnedLaunches::Place* LearnedLaunches::place(StreamSlot stream, uint64_t sequence) const {
  if (sequence == 0 || places_.empty()) return nullptr;
  const Place& place = places_[index(stream, sequence)];
  return place.sequence == sequence && place.stream == stream ? &place : nullptr;
}

const LearnedLaunches::Place* LearnedLaunches::place(const Timed& timed) const {
  const Place* place = this->place(timed.stream, timed.sequence);
  return place != nullptr && place->kernel == timed.kernel ? place : nullptr;
}

void LearnedLaunches::timed(const Place& place, const policies::KernelProfile& kernel,
                            const Timed& timed) {
  if (!place.in_step) return;
  positions_.add(place.generation, place.position, kernel, timed.duration, timed.gap);
}

}  // namespace lull::engine
