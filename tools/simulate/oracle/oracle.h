// The oracle: knowing the whole future, how much kernel work a low task can do at most, in its own
// order, while the high task does its iterations within an allowance, where all that anybody may do
// is hold a low launch at its gate and let it go. Called by `run_experiment` for every policy, from
// where that policy had brought the low task; and by tests. Pure.
//
// The world it plays is the serial device of simgpu: kernels to their end, in the order in which
// they become the first of their stream, both tasks' host pauses and waits as in the simulator, and
// no control latency. A launch that is held holds its host, whose later calls are late by what goes
// beyond the length of that call; one that was let go keeps its place in the device's queue. One
// iteration of the high task is cut where its host waits for all that it has launched:
//
//   |<- segment ->|<- segment ->|<- pause ->|       inside a segment, allowed to end d later:
//   h1  h2 .. wait h3 ..     wait           h1 ..     every high kernel has a latest start + d;
//     ^^  ^^^^    ^                ^^^^^^^^^          low kernels go as early as they break none,
//        low work                                     each behind what has joined the queue
//
// interval.h plays one segment so. For a low task that is always ready this is the most for this
// d, by exchange: any schedule's next low kernel may be moved forward to the first place where it
// breaks no latest start. Where its host makes it wait, to go sooner is not always better, as will
// be said below. Only those d count at which one more low kernel goes. A kernel may be in
// flight across a cut, or not be begun before it: both are tried. What d each segment gets is
// chosen over all Pareto-best states (how far the low task is, what is in flight, what is spent of
// both allowances), segment by segment (frontier.h). Where these are too many,
//   - `reached` is what the best of a few kept for each amount spent come to;
//   - `most` is a bound from above: Lagrangian relaxation of the mean allowance, iterations beyond
//   the tail allowed to end in any state, and the low task as if it were alone, whichever is least.
//   There the tail limits each segment by itself, not all of an iteration's together, and what is
//   left of low kernels may be rounded more coarsely: both make `most` larger.
//
// Beside low kernels longer than the tail allowance it is the iterations beyond it that count. Then
// iterations, delay and exceeding the tail all have a price, and the low task goes the cheapest
// way (priced.h). How far the allowances' worth goes at the dearest prices is `most`, unless that
// takes too many states.
//
// For a low task on one stream that is always ready, and a high one that waits for all it has
// launched wherever it waits, the figure is the most there is, but for two roundings:
//   - `grid_ns`: what is left of a low kernel at an iteration's start is rounded down to it;
//   - `step`: allowances of a segment that differ by less count as the smallest of them, so that
//   `most` and `reached` are larger than a schedule by less than a step of delay for each segment, but
//   `most` no larger than what the high task's kernels leave of the device; where `reached` is, none was
//   found: 0.
// Where the low task's host makes it wait (still `exact()`), one thing is given to it that a gate
// may not have: a held launch counts from when it could have been let go at the soonest, had the
// low kernels before it begun later and left it in the queue behind them: for nothing, where they
// did not. (`reached` has this too: it is a schedule but for that.) Tests try all gates on small
// tasks: the best of those that let go at once or behind a high kernel does the same, in 11,098 of
// 11,100 cases tried, and never more. What makes the figure smaller:
//   - no low kernel goes later than it could only to make high ones late, so that the next low one
//   joins the queue before them or the next iteration gains: gates that let go at every ns did more
//   in 4 of 4,440 small cases, by 4 to 7 %;
//   - what is queued at the start is played as if its launch could still cost time, once (policies
//   have been seen to do 0.04 of an iteration's work more in a whole run, and no more in a longer);
//   - beside low kernels longer than the tail, a segment shorter than a 32nd of the iteration gets
//   no delay of its own.
// Else (several streams, waits for some) it is an estimate: the low task's order on the device is
// taken to be that of its launches, which gates can always bring about, the high one's to be that
// of the task alone. What runs at the start is not held against it. It knows nothing of jitter,
// several lows, arrivals, or other sharing models.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/simulate/program.h"
#include "tools/simulate/script.h"

namespace lull::simulate {

// What the high task may lose, as a share of its time alone: all its iterations together, and each
// of them, but for a part of them that may exceed it.
struct Allowance {
  double mean = 0.03;
  double tail = 0.05;
  double over = 0.01;
};

// Where a low task is, seen from an instant.
struct LowState {
  uint64_t next = 0;  // the work of the compute engine that has not begun, counted from its start
  int64_t running_ns = 0;  // what is left of the one before, on the device now
  int64_t ready_ns = 0;    // until the next one may begin, for its own task's sake
  int64_t base_ns = 0;  // when its host last came back from a wait, or will: what its calls follow
};

struct OracleOptions {
  int64_t grid_ns = -1;  // -1: a 256th of what an iteration leaves to the low task; 0: none
  // Of an iteration's length; beyond the tail a 16th of the delay. 0: none, and all is tried.
  double step = 1.0 / 512;
  size_t frontier = 300;  // Pareto-best states after a segment; more are too many
};

// Kernel ns per ns.
struct OracleRate {
  double most = 0;     // no schedule does more, as far as rounding goes
  double reached = 0;  // by a schedule that was found, as far as rounding goes, and see above
};

class Oracle {
 public:
  Oracle(const Script& high, bool high_greedy, const Script& low, bool low_greedy,
         const OracleOptions& options = {});
  ~Oracle();
  Oracle(Oracle&&) noexcept;

  bool exact() const;
  // Of one iteration of the high task with nobody beside it, and of the pause after it.
  int64_t alone_ns() const;
  int64_t pause_ns() const;
  LowState seen(const Progress& low) const;

  // Kernel ns per ns, at most, from the start of the first to the end of the last of so many
  // iterations, the low task being at `start` when the first one begins, or (`after_pause`) one
  // pause before that. 0 iterations: 0.
  OracleRate rate(const LowState& start, bool after_pause, uint64_t iterations,
                  const Allowance& allowance);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lull::simulate
