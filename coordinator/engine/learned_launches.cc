#include "coordinator/engine/learned_launches.h"

namespace lull::engine {

policies::IterationDetector::Mark LearnedLaunches::launched(const Launched& launch, Instant at,
                                                            CoRunning co_running) {
  const auto mark = detector_.launch(launch.kernel, at, launch.memory_bytes);
  const size_t slot = slot_of(launch.stream);
  if (places_.size() <= slot) places_.resize(slot + 1);
  std::vector<Place>& places = places_[slot];
  const size_t index = launch.sequence % kPlaces;
  if (places.size() <= index) places.resize(std::min(kPlaces, std::max(index + 1, 2 * places.size())));
  latest_ = {slot, index};
  places[index] = {.sequence = launch.sequence,
                   .at = at,
                   .kernel = launch.kernel,
                   .before = before_,
                   .generation = detector_.generation(),
                   .stream = launch.stream,
                   .position = mark.position,
                   .others = co_running.launches,
                   .in_step = mark.in_step && detector_.kernel_at(mark.position) == launch.kernel,
                   .disturbed = co_running.present,
                   .own = co_running.own};
  before_ = launch.kernel;
  return mark;
}

void LearnedLaunches::completed(StreamSlot stream, uint64_t sequence, const CoRunning& co_running) {
  auto* place = const_cast<Place*>(this->place(stream, sequence));
  if (place == nullptr) return;
  place->completed = true;
  place->disturbed |= place->others != co_running.launches;
  place->own = std::max(place->own, co_running.own);
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
  const size_t slot = slot_of(stream), index = sequence % kPlaces;
  if (sequence == 0 || slot >= places_.size() || index >= places_[slot].size()) return nullptr;
  const Place& place = places_[slot][index];
  return place.sequence == sequence && place.stream == stream ? &place : nullptr;
}

const LearnedLaunches::Place* LearnedLaunches::place(const Timed& timed) const {
  const Place* place = this->place(timed.stream, timed.sequence);
  return place != nullptr && place->kernel == timed.kernel ? place : nullptr;
}

void LearnedLaunches::timed(const Place& place, const policies::KernelProfile& kernel,
                            Duration duration, Duration gap) {
  if (place.in_step) positions_.add(place.generation, place.position, kernel, duration, gap);
}

}  // namespace lull::engine
