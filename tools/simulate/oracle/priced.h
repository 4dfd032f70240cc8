// The oracle's figure if low kernels are longer than the tail allowance: then what counts is how
// iterations beyond the tail are used. Iterations, delay and exceeding the tail all have a price,
// and the low task goes the cheapest way (Dijkstra): states come in the order of their cost, and
// one is kept unless another that costs no more is as far. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tools/simulate/oracle/interval.h"

namespace lull::simulate {

// For the question that `interval` was asked; the low task begins in any of `starts`.
class Priced {
 public:
  Priced(Interval& interval, std::vector<LowState> starts)
      : interval_(interval), q_(interval.question()), starts_(std::move(starts)) {}

  // A bound by Lagrangian relaxation, or 1 if it took too many labels, and the best schedule that
  // was found: `reached`, or better. The bound need not be sharper than that schedule.
  OracleRate rate(double reached);

 private:
  // What is paid, as time. An iteration costs what it takes alone.
  struct Price {
    double delay = 1;  // of a delay, as a multiple of its length
    double over = 0;   // of exceeding the tail, as a number of iterations
  };
  struct Label {
    double cost = 0;
    LowState low;
    int64_t delay = 0, least = 0;  // of all iterations
    int64_t here = 0;              // `least` of this iteration
    double time = 0;               // of the segments that are done, alone
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
  // Takes labels in the order of their cost. All allowances make one budget, at the price.
  Found search(const Price& price);

  // Prices around this one, by powers of two: `times` steps of `step` to each side.
  static std::vector<Price> about(const Price& price, int times, double step);
  // The middle one of the middle row.
  static Price middle(std::vector<Price>& prices);

  Interval& interval_;
  Question q_;
  std::vector<LowState> starts_;
  size_t labels_ = 0;  // of all searches
};

}  // namespace lull::simulate
