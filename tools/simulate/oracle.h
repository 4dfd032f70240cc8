// The oracle: knowing the whole future, how much kernel work a low task can do at most, in its own
// order, while the high task does its iterations within an allowance. Called by `run_experiment`
// for every policy, from where that policy had brought the low task; and by tests. Pure.
//
// The world it plays is the serial device of simgpu: kernels to their end, both tasks' host
// pauses and waits as in the simulator, no control latency, and low work that is launched in good
// time and only ordered on the device. One iteration of the high task is cut where its host waits
// for all that it has launched:
//
//   |<- segment ->|<- segment ->|<- pause ->|       inside a segment, allowed to end d later:
//   h1  h2 .. wait h3 ..     wait           h1 ..     every high kernel has a latest start + d;
//     ^^  ^^^^    ^                ^^^^^^^^^          low kernels go as early as they break none
//        low work
//
// That is the most for this d, by exchange (any schedule's next low kernel may be moved forward
// to the first place where it breaks no latest start). Which d each iteration gets is then chosen:
// exactly, over all Pareto-best states, while there are few of them; else by Lagrangian relaxation of
// the mean allowance, over states rounded to a grid in the oracle's favour. The tail allowance is a
// count in both.
//
// So `rate` is exact for one task on a single stream beside a high task that waits for all it has
// launched wherever it waits, as far as
//   - `grid_ns` rounds what is left of a low kernel, down; the allowance of an iteration goes in
//     steps of `step` of its length and is charged at the lower end;
//   - the Lagrangian's bound is above the best schedule;
//   - a low task whose host keeps it waiting may have its kernel start inside a high one, as if that
//     could be interrupted: whether to wait for the low host instead is not decided. Only then.
// Each errs upwards: `rate` is never below what can be done. Otherwise (`exact()` false: waits for
// some streams only, several streams of the low task) the order on the device is as alone, and it is
// an estimate of the bound. It knows nothing of jitter, several lows, or other sharing models.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/simulate/program.h"
#include "tools/simulate/script.h"

namespace lull::simulate {

// What the high task may lose, as a share of its time alone: all its iterations together, and each of
// them, but for a part of them that may exceed it.
struct Allowance {
  double mean = 0.03;
  double tail = 0.05;
  double over = 0.01;
};

// Where a low task is, seen from an instant.
struct LowState {
  uint64_t next = 0;       // the work of the compute engine that has not begun, counted from its start
  int64_t running_ns = 0;  // what is left of the one before, on the device now
  int64_t ready_ns = 0;    // until the next one may begin, for its own task's sake
  int64_t base_ns = 0;     // when its host last came back from a wait, or will: what its calls follow
};

struct OracleOptions {
  int64_t grid_ns = -1;    // -1: a 256th of the high task's iteration; 0: none
  double step = 1.0 / 512;  // of an iteration's allowance, as a share of its length; 0: none
  size_t frontier = 300;   // most Pareto-best states kept after an iteration before the Lagrangian
};

// Kernel ns per ns.
struct OracleRate {
  double most = 0;
  double reached = 0;  // by a schedule that was found, as far as rounding goes
  bool bound = true;   // `most` is one; else states had to be left out on the way to it
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
  // iterations, the low task being at `start` when the first one begins, or (`after_pause`) one pause
  // before that. 0 iterations: 0.
  OracleRate rate(const LowState& start, bool after_pause, uint64_t iterations,
                  const Allowance& allowance);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lull::simulate
