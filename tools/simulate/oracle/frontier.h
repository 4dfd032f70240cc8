// Computes the oracle's figure. It keeps all Pareto-best states after each segment, one segment
// after the other. Where these are too many, it keeps a few of the best, and computes bounds from
// above, among them that of priced.h. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/simulate/oracle/interval.h"

namespace lull::simulate {

// For the question that `interval` was asked; the low task begins in any of `starts`.
class Frontier {
 public:
  Frontier(Interval& interval, std::vector<LowState> starts)
      : interval_(interval), q_(interval.question()), starts_(std::move(starts)) {}

  OracleRate rate();
  // A bound: the low task as if it were alone, over any time that the high task may take.
  double undisturbed() const;

 private:
  struct Reached {
    LowState low;
    int64_t delay = 0;  // of all iterations so far
    int64_t least = 0;  // of this one
    double work = 0, work_end = 0;
    uint64_t over = 0;
  };
  // From one rounded state to another.
  struct Edge {
    uint32_t to = 0;
    float delay = 0;
    double work = 0, work_end = 0;
  };

  // No iteration is delayed by more than `most`. `thinned`: states were left out.
  double reach(int64_t most, bool& thinned);
  // Keeps the best few for each amount of the allowances spent; finer near an even pace.
  void thin_out(std::vector<Reached>& states, double iterations) const;

  // ---- a bound: the mean allowance has a price ----
  // It need not be sharper than `reached`, which some schedule does.
  double relaxed(double reached);
  // Finds all rounded states that can be at the start of a segment, the soonest first. False: they
  // are too many.
  bool explore(int64_t grid);
  // The most of work - price * delay over all iterations. Iterations that exceed the tail are not
  // played. If longer delays would let more go, such an iteration may end in any state, and the
  // device is taken to do nothing but the two tasks' work in it.
  // After `sweeps` iterations the rest are not played either: they gain at most what the last did.
  double value(double price, uint64_t sweeps) const;

  Interval& interval_;
  Question q_;
  std::vector<LowState> starts_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_edge_;  // by state
  std::vector<uint32_t> within_;      // by number of segments: how many states can be reached
  size_t states_ = 0;
  int64_t found_ = 0;     // least delay by what runs at the start: it is not charged
  bool complete_ = true;  // no state gains by an iteration that exceeds the tail
};

}  // namespace lull::simulate
