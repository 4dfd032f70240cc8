// The oracle knows the whole future. It says how much kernel work a low task can do at most, in its
// own order, while the high task keeps its iterations within an allowance. All that it may do is to
// hold a low launch at its gate and let it go. `run_experiment` calls it for every policy, from
// where that policy had brought the low task; tests call it, too. Pure.
//
// It plays the serial device of simgpu: kernels run to their end, in the order in which they become
// the first of their stream. Host pauses and waits of both tasks are as in the simulator. There is
// no control latency. A held launch holds its host: if it is held for longer than the call takes,
// the host's later calls are late by the rest. A launch that was let go keeps its place in the
// device's queue. An iteration of the high task is cut where its host waits for all its launches:
//
//   |<- segment ->|<- segment ->|<- pause ->|       inside a segment, allowed to end d later:
//   h1  h2 .. wait h3 ..     wait           h1 ..     every high kernel has a latest start + d;
//     ^^  ^^^^    ^                ^^^^^^^^^          low kernels go as early as they break none,
//        low work                                     each behind what has joined the queue
//
// interval.h plays one segment in this way. For a low task that is always ready, no schedule does
// more for this d, by exchange: the next low kernel of any schedule may be moved forward to the
// first place where it breaks no latest start. If the low task's host makes it wait, to go sooner
// is not always better (see below). Only those d count at which one more low kernel goes. A kernel
// may be in flight across a cut, or not begin before it: both are tried. frontier.h chooses the d
// of each segment, one segment after the other, over all Pareto-best states: how far the low task
// is, what is in flight, what is spent of both allowances. Where these states are too many,
//   - `reached` is the best result of a few states that are kept for each amount spent;
//   - `most` is a bound from above: the lesser of a Lagrangian relaxation of the mean allowance, in
//   which iterations beyond the tail may end in any state, and of the low task as if it were alone.
//   In the relaxation the tail limits each segment by itself, not those of an iteration together,
//   and what is left of low kernels may be rounded more coarsely: both make `most` larger.
//
// If low kernels are longer than the tail allowance, what counts is how iterations beyond the tail
// are used. Then iterations, delay and exceeding the tail all have a price, and the low task goes
// the cheapest way (priced.h). `most` is how far the worth of the allowances goes, at the prices at
// which it goes least far, unless the search takes too many states.
//
// If the low task has one stream and is always ready, and the high task waits for all that it has
// launched wherever it waits, the figure is exact but for two roundings:
//   - `grid_ns`: what is left of a low kernel at an iteration's start is rounded down to it;
//   - `step`: delays of a segment that differ by less count as the smallest of them. So `most` and
//   `reached` exceed a real schedule by less than a step of delay for each segment. `most` is no
//   more than the high task's kernels leave of the device; a `reached` above that counts as 0.
// If the low task's host makes it wait (still `exact()`), the low task gets one thing that a gate
// may not be able to give: a held launch counts as let go at the soonest, as if the low kernels
// before it had begun later and the launch had queued behind them, at no cost where they had not.
// (`reached` gets this, too; otherwise it is a real schedule.) Tests try all gates on small tasks.
// The best gate that lets go at once or behind a high kernel does the same in 11,098 of 11,100
// cases tried, and never more. Three things make the figure too small:
//   - No low kernel goes later than it could only to make high kernels late, so that the next low
//   one joins the queue before them or the next iteration gains. Gates that let go at any ns did
//   more in 4 of 4,440 small cases, by 4 to 7 %.
//   - What is queued at the start is played as if its launch could still cost time, once. (Policies
//   were seen to do 0.04 of an iteration's work more in a whole run, and no more in a longer one.)
//   - If low kernels are longer than the tail, a segment shorter than a 32nd of the iteration gets
//   no delay of its own.
// In other cases (several streams, waits for some of the work) the figure is an estimate: low
// kernels are taken to run in the order of their launches, which gates can always bring about, and
// high ones in the order of the high task alone. Delay by what runs at the start is not charged.
// The oracle knows nothing of jitter, several low tasks, arrivals, or other sharing models.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/simulate/program.h"
#include "tools/simulate/script.h"

namespace lull::simulate {

// What the high task may lose, as a share of its time alone: over all iterations (`mean`), and in
// each (`tail`), but for a share of the iterations (`over`) that may exceed the tail.
struct Allowance {
  double mean = 0.03;
  double tail = 0.05;
  double over = 0.01;
};

// Where a low task is, seen from an instant.
struct LowState {
  uint64_t next = 0;  // the first compute work that has not begun, counted from the task's start
  int64_t running_ns = 0;  // what is left of the work before it, on the device now
  int64_t ready_ns = 0;    // until the next work may begin, as far as its own task goes
  int64_t base_ns = 0;  // when its host last came back from a wait, or will: calls count from there
};

struct OracleOptions {
  int64_t grid_ns = -1;  // -1: a 256th of what an iteration leaves to the low task; 0: none
  // As a share of an iteration's length; beyond the tail a 16th of the delay. 0: all delays count.
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
  // How long one iteration of the high task takes alone, and the pause after it.
  int64_t alone_ns() const;
  int64_t pause_ns() const;
  LowState seen(const Progress& low) const;

  // Kernel ns per ns, at most, from the start of the first iteration to the end of the last. The
  // low task is at `start` when the first iteration begins, or (`after_pause`) one pause before
  // that. 0 iterations: 0.
  OracleRate rate(const LowState& start, bool after_pause, uint64_t iterations,
                  const Allowance& allowance);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lull::simulate
