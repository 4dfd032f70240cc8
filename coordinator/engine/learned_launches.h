// What a client's launches teach beside its kernels' lengths: its iteration, how long each position
// of the iteration takes, and iteration times. The engine keeps one for each client and feeds it
// every launch and measurement. Pure. It decides nothing: status shows it, and policies may be told.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "coordinator/engine/events.h"
#include "coordinator/engine/flight.h"
#include "policies/prediction/iteration_detector.h"
#include "policies/prediction/iteration_times.h"
#include "policies/prediction/position_profiles.h"

namespace lull::engine {

class LearnedLaunches {
 public:
  static constexpr size_t kPlaces = 1024;  // launches of a stream whose measurement may still come

  // Where a launch stood, for the measurement that comes later.
  struct Place {
    uint64_t sequence = 0;  // 0: none
    Instant at;
    KernelId kernel;
    KernelId before;        // the client's launch before it; 0: none
    uint64_t generation = 0;
    StreamSlot stream;
    uint32_t position = 0;
    uint32_t others = 0;     // launches of other clients on its device before it
    bool in_step = false;    // and the iteration has this kernel there
    bool disturbed = false;  // others had work on its device between its launch and its completion
    bool completed = false;
    Duration own;  // the largest CoRunning::own meanwhile
  };
  static_assert(sizeof(Place) == 64);
  // Co-running work beside a launch: whether another client has work on the device now, how many launches all other
  // clients have made on it, and the client's own work.
  struct CoRunning {
    bool present = false;
    uint32_t launches = 0;  // may wrap: compared for equality only
    Duration own;           // the length of its longest launch on another stream
  };

  // Takes the client's launches in their order. If the mark says `completed`, `iteration` is to be called.
  policies::IterationDetector::Mark launched(const Launched& launch, Instant at,
                                             CoRunning co_running);
  // The host has waited for the device since the last launch.
  void waited() { detector_.waited(); }
  // That launch is complete.
  void completed(StreamSlot stream, uint64_t sequence, const CoRunning& co_running);
  // The place of the latest launch, and the place of a launch of this kernel if it came next.
  const Place& latest() const { return places_[latest_.first][latest_.second]; }
  Place next(KernelId kernel) const;
  void iteration(Duration took, bool disturbed);
  // The launch that was measured; null when it is too long ago or not named.
  const Place* place(const Timed& timed) const;
  // The launch of that number on its stream; null when it is too long ago.
  const Place* place(StreamSlot stream, uint64_t sequence) const;
  // Takes an undisturbed measurement of a launch (< 0: this part was not measured). `position`: what is known of its
  // position; null: nothing. `kernel`: what is known of the kernel at all positions.
  void timed(const Place& place, const policies::KernelProfile& kernel, Duration duration, Duration gap);
  const policies::KernelProfile* position(const Place& place,
                                          const policies::KernelProfile& kernel) const {
    return place.in_step ? positions_.find(place.generation, place.position, kernel) : nullptr;
  }

  const policies::IterationDetector& detector() const { return detector_; }
  policies::IterationTimes& times() { return times_; }
  const policies::IterationTimes& times() const { return times_; }

 private:
  policies::IterationDetector detector_;
  policies::PositionProfiles positions_;
  policies::IterationTimes times_;
  std::vector<std::vector<Place>> places_;  // by stream; each as long as it has been needed
  std::pair<size_t, size_t> latest_;        // stream and place
  KernelId before_;
};

}  // namespace lull::engine
