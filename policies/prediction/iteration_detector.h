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
// What counts as the iteration, of all the loops of a program:
//  - The outermost loop that repeats: layers are part of the pass, micro-batches part of the step
//    whose optimizer they feed, as long as the loop around them has launches of its own. A short
//    loop (kLayerLaunches at most) in which the host neither pauses nor waits for the device may be
//    a layer: it is the iteration only when it has repeated kMostInner times without a break.
//  - Not the loop around validation: what interrupts a loop whose unit is a program's iteration
//    (more than kLayerLaunches launches, or a pause of the host in each) and is neither much
//    smaller (an optimizer) nor much larger (another loop) than that unit is an excursion. While it
//    lasts the detector is out of step and reports the period it knows.
//  - Two alternating shapes: the single iteration where most launches are the same kernels in both,
//    the pair of them otherwise.
//  - One launch, where the same unit (a graph) comes again and again, evenly spaced or very often.
//  - Kernels that are not seen again (shapes that vary without end) say nothing for or against;
//    one launch in seven must be the same each time.
//
// Beyond it, seen on held-out programs (tests/unit/policies/held_out_programs.h, five seeds each):
//  - Steps of varying length whose launches are nearly all of inner loops, so that fewer than one in
//    seven tells where in the step it is: a mixture of experts with a random number of them in each
//    layer locks on the layer; speculative decoding locks after 4 to 17 iterations.
//  - One layer in ten of twenty-four left out at random, there and back: locks after 4 to 13, and the
//    period is within 6 % of the usual in 86 to 100 % of the windows.
//  - Random rounds inside (suppression in object detection): one seed of five locks in the sixth.
//  - A random walk over kernels, which comes by the same ones again and again, is taken for a loop
//    in one seed of five, and given up after three rounds that are not its own.
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

  // `at` never goes back; an earlier one counts as the last. `memory_bytes` as held at that time.
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
  // Where a launch of this kernel would be if it came next; nothing out of step, or where it does
  // not belong.
  std::optional<uint32_t> place_of_next(KernelId kernel) const;
  // Changes when positions get another meaning: tables by position start anew.
  uint64_t generation() const { return generation_; }

  uint32_t position() const { return last_position_; }
  Instant iteration_started() const { return started_; }  // kNever before the first
  uint64_t completed() const { return completed_; }       // since the lock
  Duration last_time() const;    // of completed iterations; 0 without any
  Duration median_time() const;  // of the last kTimesKept
  // Share of the launches lately that were where the template has them; 0 while not locked.
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
  uint64_t unit_look_at_ = 0;  // a unit that comes again and again is not looked at before
  uint32_t looks_in_vain_ = 0;
  uint64_t left_at_ = 0;      // launches before the last lock was given up; 0: none was
  uint64_t locked_at_ = 0;    // launches before the lock
  bool resting_ = false;      // the history is not kept
  bool waited_ = false;       // since the last launch
  KernelId last_kernel_;
  uint32_t same_run_ = 0;
  std::vector<IterationTemplate> templates_;
  int current_ = -1;
  uint64_t generation_ = 0;
  int generation_template_ = -1;
  uint32_t found_slack_ = 0;   // of the lock

  // ---- following ----
  uint32_t cursor_ = 0;       // position expected next
  int64_t drift_x16_ = 0;
  int32_t displaced_ = 0;     // last displacement, and how often in a row
  uint32_t displaced_times_ = 0;
  uint32_t contradictions_ = 0;
  uint32_t vain_ = 0;          // rounds of the template in a row that were not the program's
  bool lost_ = false;
  uint64_t lost_for_ = 0;
  size_t return_template_ = 0;
  uint32_t return_cursor_ = 0;
  uint32_t return_run_ = 0;
  uint32_t return_for_ = 0;
  Instant return_at_ = kNever;  // of the launch at position 0 that the run began with
  uint32_t hit_share_x16_ = 0;  // of 1000, smoothed
  uint32_t last_position_ = 0;

  // ---- the iteration in progress ----
  Instant started_ = kNever;
  bool whole_ = false;        // seen from its start, without leaving step
  bool wrapped_ = false;      // ended: the next launch begins one
  uint32_t in_iteration_ = 0;
  uint32_t hits_ = 0;
  uint32_t known_ = 0;        // of them with kernels that the template has
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
