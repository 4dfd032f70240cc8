// Finds the iteration of a program (training step, request) in nothing but the sequence of its
// launches: which kernel, when, and how much device memory was held then.
//
// Called by the engine for each launch of a client, in the order of its launches, and by tools that
// read traces; one thread at a time. Integers only, no clock. It never holds a launch and decides
// nothing.
//
//   Searching --(a repetition is established: launch_history.h)--> Locked, in step
//      ^                                                     follows the template   | misses pile up
//      |                                                             ^              v
//      +---(out of step for too long; its template is remembered)----+-- Locked, out of step
//                                         (a few launches match the template again)
//
// Which loop of a program counts as the iteration:
//  - The outermost loop that repeats and has launches of its own: layers are part of the pass,
//    micro-batches part of the step whose optimizer they feed. A short loop (kLayerLaunches at
//    most) in which the host neither pauses nor waits for the device may be a layer: it is the
//    iteration only when it has repeated kMostInner times without a break.
//  - Not the loop around validation. If a loop may be the iteration (more than kLayerLaunches
//    launches, or the host pauses or waits in each repetition), what interrupts it is an excursion,
//    unless it is much smaller than the iteration (an optimizer) or much larger (another loop).
//    During an excursion the detector is out of step and reports the period it knows.
//  - If two shapes alternate: one iteration, if most launches are the same kernels in both, else
//    the pair.
//  - One launch, if the same unit (a graph) comes again and again, evenly spaced or very often.
//  - Kernels that are not seen again (shapes that vary without end) say nothing for or against;
//    one launch in seven must be the same each time.
//
// What it does badly, seen on held-out programs (tests/unit/policies/held_out_programs.h; five seeds
// of each):
//  - Steps of varying length that consist almost only of inner loops: fewer than one launch in
//    seven tells its place in the step. A mixture of experts with a random number of experts in
//    each layer locks on the layer; speculative decoding locks after 4 to 17 iterations.
//  - One layer in ten of 24 is left out at random, forward and backward: it locks after 4 to 13
//    iterations, and the period is within 6 % of the usual in 86 to 100 % of the windows.
//  - An inner loop of random length (suppression in object detection): one seed of five locks only
//    in the sixth iteration.
//  - A random walk over kernels meets the same ones again and again. In one seed of five it is
//    taken for a loop, and given up after three iterations that it did not follow.
//
// The period is the usual number of launches between two starts. An iteration begins where the
// host's longest regular pause is, else after its longest regular wait for the device, else where
// the repetition began when it was first seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/prediction/iteration_template.h"
#include "policies/prediction/launch_history.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class IterationDetector {
 public:
  static constexpr size_t kTimesKept = 15;
  static constexpr size_t kRemembered = 3;  // templates, with the one in use

  // What one launch meant.
  struct Mark {
    bool in_step = false;     // locked, and the launch belongs to the iteration at `position`
    uint32_t position = 0;    // 0 .. period - 1; in step only
    bool started = false;     // an iteration begins with this launch
    bool completed = false;   // one has ended with the launch before: it took `took`
    Duration took;
    uint32_t launches = 0;    // of the completed one
  };

  // An `at` before the last one counts as the last one. `memory_bytes`: as held at that time.
  Mark launch(KernelId kernel, Instant at, uint64_t memory_bytes = 0);
  // The host has waited for the device since the last launch.
  void waited() { waited_ = true; }

  bool locked() const { return current_ >= 0; }
  bool in_step() const { return locked() && !lost_; }
  // 0 while not locked.
  uint32_t period() const;
  // The kernel at a position of the template (0 .. template_length() - 1), for predictors.
  uint32_t template_length() const;
  KernelId kernel_at(uint32_t position) const;
  // Where a launch of this kernel would be if it came next; nothing if out of step, or if the
  // kernel does not belong there.
  std::optional<uint32_t> place_of_next(KernelId kernel) const;
  // Changes when positions get another meaning: then tables by position start anew.
  uint64_t generation() const { return generation_; }

  uint32_t position() const { return last_position_; }
  Instant iteration_started() const { return started_; }  // kNever before the first
  uint64_t completed() const { return completed_; }       // since the lock
  Duration last_time() const;    // of completed iterations; 0 without any
  Duration median_time() const;  // of the last kTimesKept
  // Share of recent launches that were where the template has them; 0 while not locked.
  uint32_t confidence_per_mille() const;
  // Where the iteration holds least memory, and how much; of the last completed one.
  uint32_t lowest_memory_position() const { return lowest_position_; }
  uint64_t lowest_memory_bytes() const { return lowest_bytes_; }
  uint64_t launches() const { return launches_; }

 private:
  void analyse();
  void lock(const LaunchHistory::Repetition& found);
  void unlock();
  void use(size_t index, uint32_t cursor);
  Mark follow(KernelId kernel, Instant at, uint64_t memory_bytes);
  void look_for_return(KernelId kernel, Instant at);
  void begin(Instant at, Mark& mark);
  void score(bool hit);
  IterationTemplate& current() { return templates_[static_cast<size_t>(current_)]; }
  const IterationTemplate& current() const { return templates_[static_cast<size_t>(current_)]; }

  LaunchHistory history_;
  uint64_t analyse_at_ = 5;
  uint64_t unit_look_at_ = 0;  // before this launch, a unit that repeats is not looked at
  uint32_t looks_in_vain_ = 0;
  uint64_t left_at_ = 0;      // launches made when the last lock was given up; 0: none was
  uint64_t locked_at_ = 0;    // launches made when it locked
  bool resting_ = false;      // the history is not kept
  bool waited_ = false;       // since the last launch
  KernelId last_kernel_;
  uint32_t same_run_ = 0;
  std::vector<IterationTemplate> templates_;
  int current_ = -1;
  uint64_t generation_ = 0;
  int generation_template_ = -1;
  uint32_t found_slack_ = 0;   // of the repetition that it locked on

  // ---- following ----
  uint32_t cursor_ = 0;       // position expected next
  int64_t drift_x16_ = 0;
  int32_t displaced_ = 0;     // last displacement, and how often in a row
  uint32_t displaced_times_ = 0;
  uint32_t contradictions_ = 0;
  uint32_t vain_ = 0;          // iterations in a row that the program hardly followed
  bool lost_ = false;
  uint64_t lost_for_ = 0;
  size_t return_template_ = 0;
  uint32_t return_cursor_ = 0;
  uint32_t return_run_ = 0;
  uint32_t return_for_ = 0;
  Instant return_at_ = kNever;  // when the run began, if it began at position 0
  uint32_t hit_share_x16_ = 0;  // per mille, smoothed
  uint32_t last_position_ = 0;

  // ---- the iteration in progress ----
  Instant started_ = kNever;
  bool whole_ = false;        // seen from its start, without leaving step
  bool wrapped_ = false;      // it has ended: the next launch begins another
  uint32_t in_iteration_ = 0;
  uint32_t hits_ = 0;
  uint32_t known_ = 0;        // launches in it whose kernel the template has
  uint64_t low_bytes_ = UINT64_MAX;
  uint32_t low_position_ = 0;
  uint64_t bytes_at_lowest_ = UINT64_MAX;  // at lowest_position_, this time

  // ---- completed ones ----
  uint64_t completed_ = 0;
  std::vector<Duration> times_;      // the last kTimesKept, oldest first
  std::vector<uint32_t> lengths_;
  uint32_t period_ = 0;
  uint32_t lowest_position_ = 0;
  uint64_t lowest_bytes_ = 0;
  uint64_t launches_ = 0;
  Instant last_at_{INT64_MIN};
};

}  // namespace lull::policies
