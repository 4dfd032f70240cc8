#include "tools/simulate/oracle/frontier.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

namespace lull::simulate {
namespace {

constexpr size_t kMostStates = 30'000;  // rounded ones; more: a coarser grid
constexpr double kCoarser = 2;
// Where states are left out: classes of what is spent of the mean allowance, and how many states
// stay in each.
constexpr int64_t kBuckets = 32;
constexpr size_t kInBucket = 4;
constexpr int kPrices = 6;  // of a delay, that are tried

}  // namespace

OracleRate Frontier::rate() {
  bool thinned = false;
  const bool over = interval_.plays_over();
  double reached = reach(over ? q_.most_delay : std::min(q_.tail, q_.most_delay), thinned);
  if (!thinned && !over && q_.most_over > 0 && q_.most_delay > q_.tail) {
    reached = reach(q_.most_delay, thinned);
  }
  if (!thinned) return {reached, reached};
  return {std::max(reached, std::min(relaxed(), undisturbed())), reached};
}

// ---- exactly, or nearly: the Pareto-best states after each iteration
// ------------------------------

void Frontier::thin_out(std::vector<Reached>& states, uint64_t iterations) const {
  const auto even =
      static_cast<int64_t>(static_cast<double>(q_.most_delay) * static_cast<double>(iterations) /
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
    now.push_back({.low = interval_.canonical(start, interval_.grid())});
  }
  double best = 0;
  for (uint64_t n = 0; n < q_.iterations; ++n) {
    next.clear();
    for (const Reached& r : now) {
      const int64_t left = q_.most_delay - r.delay;
      const int64_t limit = std::min(most, r.over < q_.most_over ? left : std::min(left, q_.tail));
      const LowState folded = interval_.folded(r.low);
      const Options& options = interval_.known_options(folded, most);
      // What it finds running is not its doing.
      const int64_t found = n == 0 ? least_delay(options) : 0;
      for (const Option& o : options.all) {
        const int64_t delay = o.least - found;
        if (delay > limit) continue;
        Reached to{o.low, r.delay + delay, r.work + o.work, 0, r.over + (delay > q_.tail ? 1 : 0)};
        to.low.next += r.low.next - folded.next;
        if (n + 1 == q_.iterations) {
          best = std::max(best, (r.work + o.work_end) / (q_.time + static_cast<double>(to.delay)));
        }
        next.push_back(to);
      }
    }
    std::swap(now, next);
    if (n + 1 == q_.iterations) break;
    if (now.size() > interval_.limits().frontier) {
      if (now.size() < 16 * interval_.limits().frontier) interval_.prune(now);
      if (now.size() > interval_.limits().frontier) thin_out(now, n + 1), thinned = true;
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
  const auto number = [&](const LowState& low) {
    const auto [found, added] = index.emplace(key_of(low), states.size());
    if (added) states.push_back(low);
    return found->second;
  };
  const auto folded = [&](const LowState& low) {
    return interval_.canonical(interval_.folded(low), grid);
  };
  for (const LowState& start : starts_) number(folded(start));
  Options coarse;
  complete_ = true;
  for (size_t done = 0, depth = 0; depth < q_.iterations && done < states.size(); ++depth) {
    const size_t here = states.size();
    within_.push_back(static_cast<uint32_t>(here));
    for (; done < here; ++done) {
      const int64_t most = std::min(q_.tail, q_.most_delay);
      if (grid != interval_.grid()) interval_.options(states[done], most, grid, coarse);
      const Options& choices =
          grid == interval_.grid() ? interval_.known_options(states[done], most) : coarse;
      const int64_t found = depth == 0 ? least_delay(choices) : 0;
      complete_ = complete_ && choices.complete;
      for (const Option& o : choices.all) {
        const int64_t delay = o.least - found;
        if (delay > most) {
          complete_ = false;
          continue;
        }
        edges_.push_back({number(folded(o.low)), static_cast<float>(delay), o.work, o.work_end});
      }
      first_edge_.push_back(static_cast<uint32_t>(edges_.size()));
      if (states.size() > kMostStates) return false;
    }
  }
  states_ = states.size();
  return true;
}

double Frontier::value(double price) const {
  std::vector<double> before(states_, 0), after(states_, 0);
  const double idle =
      static_cast<double>(interval_.high().alone + interval_.high().pause - interval_.high().work) -
      std::max(0.0, price - 1) * static_cast<double>(q_.tail);
  double jump = 0;  // the most that one of these gains
  double rest = 0;
  for (uint64_t n = 1; n <= q_.iterations; ++n) {
    const auto known = [&](uint64_t depth) {
      return within_[std::min<uint64_t>(depth, within_.size() - 1)];
    };
    double least_gain = 1e300, most_gain = -1e300, least = 1e300, most = 0;
    for (size_t y = 0; n > 1 && y < known(q_.iterations - n + 1); ++y)
      most = std::max(most, before[y]);
    for (size_t x = 0; x < known(q_.iterations - n); ++x) {
      double best = -1e300;
      for (uint32_t e = first_edge_[x]; e < first_edge_[x + 1]; ++e) {
        const Edge& edge = edges_[e];
        best = std::max(best, (n == 1 ? edge.work_end : edge.work) -
                                  price * static_cast<double>(edge.delay) + before[edge.to]);
      }
      after[x] = best;
      least = std::min(least, best);
      least_gain = std::min(least_gain, best - before[x]);
      most_gain = std::max(most_gain, best - before[x]);
    }
    jump = std::max(jump, idle + most - least);
    std::swap(before, after);
    // Settled: every further iteration gains at most this.
    if (n > 8 && most_gain - least_gain < 1e-4 * std::abs(most_gain)) {
      rest = static_cast<double>(q_.iterations - n) * most_gain;
      break;
    }
  }
  double best = 0;
  for (size_t x = 0; x < starts_.size() && x < states_; ++x) best = std::max(best, before[x]);
  if (!complete_ && q_.most_over > 0 && q_.most_delay > q_.tail) {
    rest += static_cast<double>(q_.most_over) * jump +
            std::max(0.0, 1 - price) * static_cast<double>(q_.most_delay);
  }
  return best + rest;
}

double Frontier::relaxed() {
  auto grid = std::max<int64_t>(1, interval_.grid());
  while (!explore(grid)) grid = static_cast<int64_t>(static_cast<double>(grid) * kCoarser);
  const auto bound = [&](double price) {
    const double most = value(price);
    const auto delay = static_cast<double>(q_.most_delay);
    return std::max(most / q_.time, (most + price * delay) / (q_.time + delay));
  };
  double best = std::min(bound(0), bound(1));
  if (q_.most_delay == 0) return best;
  // Convex in the price: by golden section, on its logarithm.
  constexpr double kGolden = 0.6180339887498949;
  double from = -3, to = 5;
  double a = to - kGolden * (to - from), b = from + kGolden * (to - from);
  double at_a = bound(std::exp2(a)), at_b = bound(std::exp2(b));
  for (int i = 0; i < kPrices; ++i) {
    best = std::min({best, at_a, at_b});
    if (at_a < at_b) {
      to = b, b = a, at_b = at_a;
      at_a = bound(std::exp2(a = to - kGolden * (to - from)));
    } else {
      from = a, a = b, at_a = at_b;
      at_b = bound(std::exp2(b = from + kGolden * (to - from)));
    }
  }
  return std::min({best, at_a, at_b});
}

}  // namespace lull::simulate
