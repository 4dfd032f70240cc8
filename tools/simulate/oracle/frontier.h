// What the oracle says: all Pareto-best states after each segment, one segment after the other, or,
// where these are too many, the best of a few and bounds from above, priced.h's among them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/simulate/oracle/interval.h"

namespace lull::simulate {

// Of the question that `interval` was asked, beginning with any of `starts`.
class Frontier {
 public:
  Frontier(Interval& interval, std::vector<LowState> starts)
      : interval_(interval), q_(interval.question()), starts_(std::move(starts)) {}

  OracleRate rate();
  // As if the high task were not there, over any time that it may take: a bound.
  double undisturbed() const;

 private:
  struct Reached {
    LowState low;
    int64_t delay = 0;  // of all iterations so far
    int64_t least = 0;  // of this one
    double work = 0, work_end = 0;
    uint64_t over = 0;
  };
  // Between rounded states.
  struct Edge {
    uint32_t to = 0;
    float delay = 0;
    double work = 0, work_end = 0;
  };

  // No iteration is delayed by more than `most`. `thinned`: states were left out.
  double reach(int64_t most, bool& thinned);
  // The best few for each share of the allowances that is spent; finer about the even pace.
  void thin_out(std::vector<Reached>& states, double iterations) const;

  // ---- a bound: the mean allowance has a price ----
  // No sharper than `reached`, which some schedule does.
  double relaxed(double reached);
  // All rounded states that can be reached at the start of a segment, in the order of how soon.
  bool explore(int64_t grid);
  // The most of work - price * delay over all iterations. Where longer delays let more go, those
  // that exceed the tail are not played: they may end in any state, and have the device do nothing
  // but the two tasks' work.
  // After so many sweeps, what is left gains at most what the last of them did.
  double value(double price, uint64_t sweeps) const;

  Interval& interval_;
  Question q_;
  std::vector<LowState> starts_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> first_edge_;  // by state
  std::vector<uint32_t> within_;      // states that can be reached in so many segments
  size_t states_ = 0;
  int64_t found_ = 0;     // least delay by what runs at the start: nobody's doing
  bool complete_ = true;  // none of them gains by an iteration that exceeds the tail
};

}  // namespace lull::simulate
