// What the oracle says beside low kernels longer than the tail allowance: it is the iterations
// beyond it that count. Iterations, delay and exceeding the tail all have a price, and the low task
// goes the cheapest way (Dijkstra): states in the order of what they cost, one kept unless another
// that costs no more is as far. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tools/simulate/oracle/interval.h"

namespace lull::simulate {

// Of the question that `interval` was asked, beginning with any of `starts`.
class Priced {
 public:
  Priced(Interval& interval, std::vector<LowState> starts)
      : interval_(interval), q_(interval.question()), starts_(std::move(starts)) {}

  // A bound by Lagrangian relaxation, 1 where it took too many labels, and the best schedule that
  // was found: `reached`, or better. The bound need not be sharper than that.
  OracleRate rate(double reached);

 private:
  // In time of an iteration.
  struct Price {
    double delay = 1;  // of as much delay
    double over = 0;   // of exceeding the tail
  };
  struct Label {
    double cost = 0;
    LowState low;
    int64_t delay = 0, least = 0;  // of all iterations
    int64_t here = 0;              // least, of this one
    double time = 0;               // alone, of the segments that are done
    double work = 0;
    uint64_t iterations = 0, over = 0;
    size_t segment = 0;
  };
  struct Found {
    double most = 0, reached = 0;
    bool complete = true;  // else it took too many labels, and `most` is no bound
    double furthest = -1;
    Label at;  // the furthest
  };

  double iteration() const;
  double budget(const Price& price) const;
  double cost(const Label& label, const Price& price) const;
  // Labels in the order of their cost, all allowances exchanged at the price.
  Found search(const Price& price);

  // Powers of two about it, so many times `step` to each side.
  static std::vector<Price> about(const Price& price, int times, double step);
  // The middle one of the middle row.
  static Price middle(std::vector<Price>& prices);

  Interval& interval_;
  Question q_;
  std::vector<LowState> starts_;
  size_t labels_ = 0;  // of all searches
};

}  // namespace lull::simulate
