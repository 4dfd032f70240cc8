#include "tools/simulate/oracle/frontier.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

#include "tools/simulate/oracle/priced.h"

namespace lull::simulate {
namespace {

// Bounds of the graph of rounded states: a few states per low kernel and segment, in 200 MB. If
// there are more, the grid becomes coarser.
constexpr size_t kMostStates = 500'000;
constexpr size_t kMostEdges = 6'000'000;
constexpr int64_t kCoarser = 2;
// Edges that are looked at to compare prices: a fifth of a second.
constexpr size_t kMostLooks = 100'000'000;
constexpr uint64_t kLeastSweeps = 32;
// A bound this near to a schedule is good enough: it is nearer than a step.
constexpr double kNear = 0.998;
// Where states are left out: in how many classes the spent mean allowance falls, and how many
// states stay in each.
constexpr int64_t kBuckets = 32;
constexpr size_t kInBucket = 4;
constexpr int kPrices = 6;  // that are tried for a delay

}  // namespace

OracleRate Frontier::rate() {
  bool thinned = false;
  const bool over = interval_.plays_over();
  double reached = reach(over ? q_.most_delay : std::min(q_.tail, q_.most_delay), thinned);
  if (!thinned && !over && q_.most_over > 0 && q_.most_delay > q_.tail) {
    reached = reach(q_.most_delay, thinned);
  }
  const bool priced_too = over && interval_.limits().step > 0;
  if (!thinned && !priced_too) return {reached, reached};
  OracleRate rate{undisturbed(), reached};
  if (reached >= kNear * rate.most) return rate;
  if (priced_too) {
    const OracleRate priced = Priced(interval_, starts_).rate(reached);
    rate = {std::min(rate.most, priced.most), std::max(reached, priced.reached)};
    if (priced.most < 1) return {std::max(rate.most, rate.reached), rate.reached};
  }
  rate.most = std::min(rate.most, relaxed(reached));
  rate.most = std::max(rate.most, rate.reached);
  return rate;
}

// ---- exactly, or nearly: the Pareto-best states after each segment ------------------------------

void Frontier::thin_out(std::vector<Reached>& states, double iterations) const {
  const auto even = static_cast<int64_t>(static_cast<double>(q_.most_delay) * iterations /
                                         static_cast<double>(q_.iterations));
  const int64_t buckets = kBuckets;
  const int64_t coarse = q_.most_delay / buckets + 1;
  const int64_t fine = q_.tail / buckets + 1;
  const auto place = [&](const Reached& r) {
    const int64_t ahead = r.delay - even;
    const bool near = std::abs(ahead) < buckets * fine;
    return std::tuple(r.over, near, near ? (ahead + buckets * fine) / fine : r.delay / coarse);
  };
  std::sort(states.begin(), states.end(), [&](const Reached& a, const Reached& b) {
    return std::tuple(place(a), b.low.next, a.low.running_ns, a.delay) <
           std::tuple(place(b), a.low.next, b.low.running_ns, b.delay);
  });
  size_t kept = 0, in_bucket = 0;
  auto last = place(states.front());
  for (const Reached& state : states) {
    const auto now = place(state);
    in_bucket = now == last ? in_bucket + 1 : 1;
    last = now;
    if (in_bucket <= kInBucket) states[kept++] = state;
  }
  states.resize(kept);
}

double Frontier::reach(int64_t most, bool& thinned) {
  std::vector<Reached> now, next;
  for (const LowState& start : starts_) {
    Reached first{.low = interval_.canonical(start, interval_.grid())};
    // The delay by what runs at the start is not charged.
    first.delay = first.least = -interval_.least_delay(interval_.folded(first.low));
    now.push_back(first);
  }
  const size_t segments = interval_.high().segments.size();
  double best = 0;
  for (uint64_t n = 0; n < q_.iterations * segments; ++n) {
    const size_t segment = n % segments;
    const bool last = n + 1 == q_.iterations * segments;
    next.clear();
    for (const Reached& r : now) {
      const int64_t longest = r.over < q_.most_over ? most : std::min(most, q_.tail);
      const int64_t left = std::min(q_.most_delay - r.delay, longest - r.least);
      const LowState folded = interval_.folded(r.low);
      for (const Option& o : interval_.known_options(segment, folded, most).all) {
        if (o.least > left) continue;
        Reached to{o.low, r.delay + o.least, r.least + o.least, r.work + o.work, 0, r.over};
        if (segment + 1 == segments) {
          to.over += to.least > q_.tail ? 1 : 0;
          to.least = 0;
        }
        to.low.next += r.low.next - folded.next;
        if (last) {
          best = std::max(best, (r.work + o.work_end) / (q_.time + static_cast<double>(to.delay)));
        }
        next.push_back(to);
      }
    }
    std::swap(now, next);
    if (last) break;
    if (now.size() > interval_.limits().frontier) {
      if (now.size() < 16 * interval_.limits().frontier) interval_.prune(now);
      if (now.size() > interval_.limits().frontier) {
        thin_out(now, static_cast<double>(n + 1) / static_cast<double>(segments));
        thinned = true;
      }
    }
    interval_.prune(now);
  }
  return best;
}

// ---- bounds -----------------------------------------------------------------------------------

double Frontier::undisturbed() const {
  double best = 0;
  for (LowState low : starts_) {
    const auto shortest = static_cast<int64_t>(q_.time);
    int64_t free = low.running_ns;
    int64_t work = interval_.at(low.next + interval_.length() - 1).kernel ? low.running_ns : 0;
    while (free < shortest + q_.most_delay) {
      const int64_t start = std::max(free, low.ready_ns);
      const Link& link = interval_.at(low.next);
      interval_.begin(low, start);
      const int64_t before =
          work + (link.kernel ? std::clamp<int64_t>(shortest - start, 0, link.length) : 0);
      if (free <= shortest) best = std::max(best, static_cast<double>(before) / q_.time);
      free = start + link.length;
      work += link.kernel ? link.length : 0;
      if (free > shortest) {
        best = std::max(best, static_cast<double>(work) / static_cast<double>(free));
      }
    }
  }
  return best;
}

bool Frontier::explore(int64_t grid) {
  edges_.clear();
  first_edge_.assign(1, 0);
  within_.clear();
  std::unordered_map<Key, uint32_t, KeyHash> index;
  std::vector<LowState> states;
  const auto number = [&](size_t segment, const LowState& low) {
    Key key = key_of(low);
    key[4] = static_cast<int64_t>(segment);
    const auto [found, added] = index.emplace(key, states.size());
    if (added) states.push_back(low);
    return found->second;
  };
  const auto folded = [&](const LowState& low) {
    return interval_.canonical(interval_.folded(low), grid);
  };
  found_ = 0;
  for (const LowState& start : starts_) {
    number(0, folded(start));
    found_ = std::max(found_, interval_.least_delay(folded(start)));
  }
  const size_t segments = interval_.high().segments.size();
  const int64_t most = std::min(q_.tail, q_.most_delay);
  Options coarse;
  complete_ = true;
  for (size_t done = 0, n = 0; n < q_.iterations * segments && done < states.size(); ++n) {
    const size_t here = states.size();
    const size_t segment = n % segments;
    within_.push_back(static_cast<uint32_t>(here));
    for (; done < here; ++done) {
      if (grid != interval_.grid()) interval_.options(segment, states[done], most, grid, coarse);
      const Options& choices =
          grid == interval_.grid() ? interval_.known_options(segment, states[done], most) : coarse;
      complete_ = complete_ && choices.complete;
      for (const Option& o : choices.all) {
        if (o.least - (n < segments ? found_ : 0) > most) {
          complete_ = false;
          continue;
        }
        edges_.push_back({number((segment + 1) % segments, folded(o.low)),
                          static_cast<float>(o.least), o.work, o.work_end});
      }
      first_edge_.push_back(static_cast<uint32_t>(edges_.size()));
      if (states.size() > kMostStates || edges_.size() > kMostEdges) return false;
    }
  }
  states_ = states.size();
  return true;
}

double Frontier::value(double price, uint64_t sweeps) const {
  std::vector<double> before(states_, 0), after(states_, 0);
  const size_t segments = interval_.high().segments.size();
  const double idle =
      static_cast<double>(interval_.high().alone + interval_.high().pause - interval_.high().work) -
      std::max(0.0, price - 1) * static_cast<double>(q_.tail);
  double jump = 0;  // the most that an iteration beyond the tail gains
  double rest = 0;
  std::vector<double> earlier = before;  // the values after `since` iterations
  uint64_t since = 0;
  // Calls `act` for the states at the start of a segment that can be reached within `iterations`.
  const auto each = [&](size_t segment, uint64_t iterations, const auto& act) {
    for (size_t n = segment; n < within_.size() && n / segments <= iterations; n += segments) {
      for (uint32_t x = n == 0 ? 0 : within_[n - 1]; x < within_[n]; ++x) act(x);
    }
  };
  for (uint64_t n = 1; n <= q_.iterations; ++n) {
    double least_gain = 1e300, most_gain = -1e300, most_since = -1e300, least = 1e300, most = 0;
    if (n > 1) {
      each(0, q_.iterations - n + 1, [&](uint32_t y) { most = std::max(most, before[y]); });
    }
    for (size_t segment = segments; segment-- > 0;) {
      const bool last = segment + 1 == segments;
      const std::vector<double>& then = last ? before : after;
      each(segment, q_.iterations - n, [&](uint32_t x) {
        double best = -1e300;
        for (uint32_t e = first_edge_[x]; e < first_edge_[x + 1]; ++e) {
          const Edge& edge = edges_[e];
          best = std::max(best, (n == 1 && last ? edge.work_end : edge.work) -
                                    price * static_cast<double>(edge.delay) + then[edge.to]);
        }
        after[x] = best;
        if (segment > 0) return;
        least = std::min(least, best);
        least_gain = std::min(least_gain, best - before[x]);
        most_gain = std::max(most_gain, best - before[x]);
        most_since = std::max(most_since, best - earlier[x]);
      });
    }
    jump = std::max(jump, idle + most - least);
    std::swap(before, after);
    // Settled: every further iteration gains at most this.
    if (n > 8 && most_gain - least_gain < 1e-4 * std::abs(most_gain)) {
      rest = static_cast<double>(q_.iterations - n) * most_gain;
      break;
    }
    // Each further n - since iterations gain no more than the last n - since did.
    const uint64_t left = q_.iterations - n;
    if (n >= sweeps && left > 0) {
      rest = static_cast<double>((left + n - since - 1) / (n - since)) * most_since;
      break;
    }
    if ((n & (n - 1)) == 0 && 2 * n <= sweeps) earlier = before, since = n;
  }
  double best = 0;
  for (size_t x = 0; x < starts_.size() && x < states_; ++x) best = std::max(best, before[x]);
  if (!complete_ && q_.most_over > 0 && q_.most_delay > q_.tail) {
    rest += static_cast<double>(q_.most_over) * jump +
            std::max(0.0, 1 - price) * static_cast<double>(q_.most_delay);
  }
  return best + rest + price * static_cast<double>(found_);
}

double Frontier::relaxed(double reached) {
  int64_t grid = std::max<int64_t>(1, interval_.grid());
  while (!explore(grid)) grid *= kCoarser;
  const auto bound = [&](double price, uint64_t sweeps) {
    const double most = value(price, sweeps);
    const auto delay = static_cast<double>(q_.most_delay);
    return std::max(most / q_.time, (most + price * delay) / (q_.time + delay));
  };
  uint64_t sweeps = kLeastSweeps;
  while (sweeps * edges_.size() < kMostLooks) sweeps *= 2;
  double best = 1e300, at = 0;
  const auto attempt = [&](double price) {
    const double most = bound(price, sweeps);
    if (most < best) best = most, at = price;
    return most;
  };
  attempt(0);
  if (q_.most_delay > 0) {
    attempt(1);
    // The bound is convex in the price: golden-section search on the price's logarithm.
    constexpr double kGolden = 0.6180339887498949;
    double from = -3, to = 5;
    double a = to - kGolden * (to - from), b = from + kGolden * (to - from);
    double at_a = attempt(std::exp2(a)), at_b = attempt(std::exp2(b));
    for (int i = 0; i < kPrices && reached < kNear * best; ++i) {
      if (at_a < at_b) {
        to = b, b = a, at_b = at_a;
        at_a = attempt(std::exp2(a = to - kGolden * (to - from)));
      } else {
        from = a, a = b, at_a = at_b;
        at_b = attempt(std::exp2(b = from + kGolden * (to - from)));
      }
    }
  }
  if (sweeps < q_.iterations && reached < kNear * best) {
    best = std::min(best, bound(at, q_.iterations));
  }
  return best;
}

}  // namespace lull::simulate
