#include "tools/simulate/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tools/simulate/flow.h"

namespace lull::simulate {
namespace {

constexpr size_t kMostStates = 30'000;  // rounded ones; more: a coarser grid
constexpr double kCoarser = 2;
// Where states are left out: classes of what is spent of the mean allowance, and how many states
// stay in each.
constexpr int64_t kBuckets = 32;
constexpr size_t kInBucket = 4;
constexpr int kPrices = 6;  // of a delay, that are tried

// Beside kernels longer than the tail, prices are in an iteration's time, and those that are tried
// powers of two about these: far and then close.
constexpr double kMiddleDelay = 64, kMiddleOver = 64;
constexpr int kFar = 20, kClose = 3;
// Where a schedule is looked for there: into how many parts each allowance is cut, how many labels
// there may be, and how much of the allowances may be wasted on the way.
constexpr int64_t kParts[] = {4, 64};
constexpr size_t kMostLabels = 60'000;
constexpr double kLoss = 0.1, kNear = 0.99;
constexpr int64_t kBeyond = 16;  // of a delay beyond the tail: a step
constexpr int64_t kChunks = 8;   // of the tail: for so long low kernels begin together
constexpr int64_t kAheads = 4;   // of the way to the high host's first wait
constexpr int64_t kTiny = 32;    // of an iteration: a segment that gets no allowance of its own

// ---- one segment, one allowance -----------------------------------------------------------------

struct Option {
  LowState low;
  int64_t delay = 0;
  int64_t least = 0;    // for which one low kernel fewer would have gone: a step is one option
  double work = 0;      // until the next iteration begins
  double work_end = 0;  // until this one ends
};

struct Played {
  LowState low;
  int64_t delay = 0;
  int64_t missing = kEver;  // the least more that would have let another low kernel go
  int64_t work = 0, work_end = 0;
  bool crossing = false;  // the last low kernel began before the end and goes on; without it:
  LowState before;
  int64_t before_work = 0;
};

}  // namespace

class Oracle::Impl {
 public:
  Impl(const Script& high, bool high_greedy, const Script& low, bool low_greedy,
       const OracleOptions& options)
      : high_(high_of(high, high_greedy)), chain_(chain_of(low, low_greedy)), options_(options) {
    end_.resize(high_.flow.works.size());
    base_.resize(high_.flow.waits.size() + 1);
    const int64_t idle = high_.alone + high_.pause - high_.work;
    grid_ = options.grid_ns >= 0 ? options.grid_ns : (idle + high_.alone / 32) / 256;
    for (const Work& work : high_.flow.works) {
      if (work.stretch == 0) most_ahead_ = std::max(most_ahead_, work.offset);
    }
    most_ahead_ = std::max(most_ahead_, high_.flow.waits.front().arrive);
    done_.assign(1, 0);
    for (const Link& link : chain_.links) {
      done_.push_back(done_.back() + (link.kernel ? link.length : 0));
    }
  }

  bool exact() const { return high_.exact && chain_.in_order; }
  int64_t alone() const { return high_.alone; }
  int64_t pause() const { return high_.pause; }

  LowState seen(const Progress& low) const {
    const int64_t length = static_cast<int64_t>(chain_.links.size());
    if (length == 0) return {};
    LowState state;
    state.next = low.completed + (low.running.ns >= 0 ? 1 : 0);
    state.running_ns = std::max<int64_t>(0, low.running.ns);
    const Link& link = at(state.next);
    if (low.between) {
      state.base_ns = low.due.ns - chain_.begin;
    } else {
      const size_t call = std::min(low.call, chain_.calls.size() - 1);
      state.base_ns = low.waiting ? -link.horizon : low.due.ns - chain_.calls[call];
      // The host is about to wait for what runs, or waits: it comes back no sooner than that ends.
      const bool waits = state.next == low.launched && state.next > 0 && at(state.next - 1).waited;
      if (waits) {
        state.base_ns = low.waiting ? state.running_ns : std::min(state.base_ns, state.running_ns);
      }
    }
    state.ready_ns = std::max({int64_t{0}, state.running_ns, state.base_ns + link.offset});
    return canonical(state, 0);
  }

  OracleRate rate(LowState start, bool after_pause, uint64_t iterations,
                  const Allowance& allowance) {
    if (iterations == 0 || !chain_.works) return {};
    const double all =
        allowance.mean * static_cast<double>(high_.alone) * static_cast<double>(iterations);
    most_delay_ = static_cast<int64_t>(all + 1e-6);
    tail_ = static_cast<int64_t>(allowance.tail * static_cast<double>(high_.alone) + 1e-6);
    most_over_ = static_cast<uint64_t>(allowance.over * static_cast<double>(iterations) + 1e-9);
    time_ = static_cast<double>(iterations) * static_cast<double>(high_.alone) +
            static_cast<double>(iterations - 1) * static_cast<double>(high_.pause);
    iterations_ = iterations;
    std::vector<LowState> starts{canonical(start, 0)};
    if (after_pause) {
      Played waited;
      run_low(start, 0, high_.pause, high_.pause, waited);
      starts = {canonical(waited.low, 0)};
      if (waited.crossing) starts.push_back(canonical(waited.before, 0));
    }
    if (plays_over() && options_.step > 0) return priced(starts);
    bool thinned = false;
    const int64_t within = std::min(tail_, most_delay_);
    double reached = frontier(starts, plays_over() ? most_delay_ : within, thinned);
    if (!thinned && !plays_over() && most_over_ > 0 && most_delay_ > tail_) {
      reached = frontier(starts, most_delay_, thinned);
    }
    if (!thinned) return {reached, reached};
    const double most = std::max(reached, std::min(relaxed(starts), undisturbed(starts)));
    return {most, reached};
  }

 private:
  const Link& at(uint64_t next) const { return chain_.links[next % chain_.links.size()]; }

  // Times that are over say nothing; the rest is rounded down.
  LowState canonical(LowState low, int64_t grid) const {
    const auto down = [](int64_t value, int64_t to) {
      return to <= 1 ? value : (value >= 0 ? value / to : -((-value + to - 1) / to)) * to;
    };
    const Link& link = at(low.next);
    const bool kept_waiting = low.ready_ns > low.running_ns && low.ready_ns > 0 &&
                              low.ready_ns == low.base_ns + link.offset;
    low.running_ns = down(std::max<int64_t>(0, low.running_ns), grid);
    low.ready_ns = std::max(down(std::max<int64_t>(0, low.ready_ns), grid), low.running_ns);
    low.base_ns = kept_waiting ? low.ready_ns - link.offset : down(low.base_ns, 8 * grid);
    low.base_ns = std::max(low.base_ns, -link.horizon);
    return low;
  }

  // The next link begins at `start`.
  void begin(LowState& low, int64_t start) const {
    const Link& link = at(low.next);
    const int64_t end = start + link.length;
    if (link.waited) low.base_ns = std::max(end + link.wait_lag, low.base_ns + link.arrive);
    low.next += 1;
    const Link& next = at(low.next);
    low.running_ns = end;
    low.ready_ns = std::max(end + next.lag, low.base_ns + next.offset);
  }

  // Low work with nobody else from `free` to `boundary`; its times become relative to that.
  void run_low(LowState low, int64_t free, int64_t end, int64_t boundary, Played& played) const {
    LowState before = low;
    played.crossing = false;
    while (true) {
      const int64_t start = std::max(free, low.ready_ns);
      if (start >= boundary) break;
      const Link& link = at(low.next);
      if (link.kernel) {
        played.work_end += std::max<int64_t>(0, std::min(end, start + link.length) - start);
      }
      if (start + link.length > boundary) {
        before = low;
        before.running_ns = 0;
        played.crossing = true;
        played.before_work = played.work;
      }
      if (link.kernel) played.work += std::min(boundary, start + link.length) - start;
      begin(low, start);
      free = start + link.length;
    }
    low.running_ns = std::max<int64_t>(0, free - boundary);
    const auto shift = [&](LowState& state) {
      state.ready_ns -= boundary;
      state.base_ns -= boundary;
    };
    shift(low);
    shift(before);
    played.low = low;
    played.before = before;
  }

  Played play(const Segment& segment, const LowState& from, int64_t ahead, int64_t allowed,
              bool last) {
    const Flow& flow = high_.flow;
    Played played;
    LowState low = from;
    int64_t free = low.running_ns;
    base_[segment.first_stretch] = -ahead;
    int64_t back = 0;
    for (const Item& item : segment.items) {
      if (item.wait) {
        const Wait& wait = flow.waits[item.index];
        back = base_[item.index] + wait.arrive;
        for (const uint32_t work : wait.on) back = std::max(back, end_[work]);
        base_[item.index + 1] = back;
        continue;
      }
      const Work& work = flow.works[item.index];
      int64_t ready = base_[work.stretch] + work.offset;
      for (const uint32_t before : work.after) {
        if (flow.works[before].stretch >= segment.first_stretch)
          ready = std::max(ready, end_[before]);
      }
      if (!work.compute) {
        end_[item.index] = ready + work.length;
        continue;
      }
      int64_t rest = work.length;
      const int64_t finish = high_.latest[item.index] + work.length + allowed;
      while (true) {
        const int64_t start = std::max(free, low.ready_ns);
        ready = std::max(ready, free);
        // Only the last one may be held back for a low kernel that is not there yet.
        if (start > ready && start >= ready + rest && item.index != segment.last) break;
        // The part of the high kernel that is done before the low one is there.
        const int64_t done = std::clamp<int64_t>(start - ready, 0, rest);
        const Link& link = at(low.next);
        const int64_t over = start + link.length + (rest - done) - finish;
        if (over > 0) {
          played.missing = std::min(played.missing, over);
          break;
        }
        rest -= done;
        if (link.kernel) played.work += link.length;
        begin(low, start);
        free = start + link.length;
      }
      free = end_[item.index] = std::max(ready, free) + rest;
    }
    back = std::max<int64_t>(0, back);
    played.delay = std::max<int64_t>(0, back - segment.alone);
    // What was running at the start, and is not counted in its link.
    if (from.running_ns > 0 && at(from.next + chain_.links.size() - 1).kernel) {
      played.work += std::min(from.running_ns, back);
    }
    played.work_end = played.work;
    run_low(low, free, back, back + (last ? high_.pause : 0), played);
    return played;
  }

  // How much delay is worth looking at from here on. Where an iteration beyond the tail is held
  // (`hold`), only what a kernel or a wait of the low task asks for comes after that.
  int64_t limit(const LowState& low, int64_t spent, int64_t most) const {
    const bool every = !plays_over() || options_.step <= 0 || low.ready_ns > low.running_ns;
    const int64_t beyond = every ? most : low.ready_ns + at(low.next).length;
    return std::min(most - spent, std::max(tail_ - spent, beyond));
  }

  // What an iteration may come to that begins with `low` so, the high one's host `ahead` of it.
  void options(const LowState& low, int64_t ahead, int64_t limit_ns, int64_t grid,
               std::vector<Option>& out) {
    out.assign(1, {.low = low});
    std::vector<Option> next;
    const auto step = static_cast<int64_t>(options_.step * static_cast<double>(high_.alone));
    for (size_t s = 0; s < high_.segments.size(); ++s) {
      const bool last = s + 1 == high_.segments.size();
      next.clear();
      for (const Option& from : out) {
        const bool tiny = plays_over() && step > 0 && high_.segments[s].alone < high_.alone / kTiny;
        const int64_t most = tiny ? 0 : limit(from.low, from.least, limit_ns);
        int64_t undelayed = 0;
        for (int64_t allowed = 0; allowed <= most;) {
          // Several more kernels within a step are one option.
          int64_t top = allowed;
          if (step > 0 && allowed > 0) {
            const int64_t to_tail = tail_ - from.least;
            top = allowed <= to_tail ? std::min(allowed + step, to_tail)
                                     : allowed + std::max(step, allowed / kBeyond);
            top = std::min(most, top);
          }
          const Played played = play(high_.segments[s], from.low, s == 0 ? ahead : 0, top, last);
          if (allowed == 0) undelayed = played.delay;
          const int64_t least = std::max(undelayed, std::min(allowed, played.delay));
          const auto keep = [&](const LowState& state, int64_t work, int64_t work_end) {
            next.push_back({canonical(state, grid), from.delay + played.delay, from.least + least,
                            from.work + static_cast<double>(work),
                            from.work + static_cast<double>(work_end)});
          };
          keep(played.low, played.work, played.work_end);
          if (played.crossing && next.back().low.running_ns > 0) {
            keep(played.before, played.before_work,
                 last ? played.work_end : std::min(played.work_end, played.before_work));
          }
          if (played.missing >= kEver) break;
          allowed = top + played.missing;
        }
      }
      std::swap(out, next);
      if (high_.segments.size() > 1 || plays_over()) prune(out);
    }
  }

  // Whoever starts from `a` can do whatever may be done from `b`.
  bool no_worse(const LowState& a, const LowState& b) const {
    if (a.next < b.next || a.running_ns > b.running_ns || a.ready_ns > b.ready_ns) return false;
    if (a.base_ns <= b.base_ns) return true;
    for (uint64_t i = b.next; i < a.next; ++i) {  // a new base since then?
      if (at(i).waited || i > b.next + chain_.links.size()) return true;
    }
    return false;
  }

  template <typename State>
  void prune(std::vector<State>& states) const {
    std::sort(states.begin(), states.end(), [](const State& a, const State& b) {
      return std::tie(b.low.next, a.delay, a.low.running_ns, a.low.ready_ns, b.work_end) <
             std::tie(a.low.next, b.delay, b.low.running_ns, b.low.ready_ns, a.work_end);
    });
    std::vector<State> kept;
    for (const State& state : states) {
      bool dominated = false;
      for (auto other = kept.rbegin(); other != kept.rend() && !dominated; ++other) {
        dominated = other->delay <= state.delay && other->work_end >= state.work_end &&
                    no_worse(other->low, state.low);
        if constexpr (requires { state.over; }) dominated = dominated && other->over <= state.over;
        if constexpr (requires { state.least; })
          dominated = dominated && other->least <= state.least;
      }
      if (!dominated) kept.push_back(state);
    }
    states = std::move(kept);
  }

  // ---- exactly, or nearly: the Pareto-best states after each iteration ----
  struct Reached {
    LowState low;
    int64_t delay = 0;
    double work = 0, work_end = 0;
    uint64_t over = 0;
  };
  using Key = std::array<int64_t, 6>;
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      for (const int64_t part : key) {
        hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };
  static Key key_of(const LowState& low, int64_t ahead, int64_t most) {
    return {static_cast<int64_t>(low.next), low.running_ns, low.ready_ns, low.base_ns, ahead, most};
  }

  // Of the low task's first iteration; the same of any other.
  const std::vector<Option>& known_options(const LowState& low, int64_t ahead, int64_t most) {
    const auto [found, added] = known_.try_emplace(key_of(low, ahead, most));
    if (added) options(low, ahead, most, grid_, found->second);
    return found->second;
  }

  static int64_t least_delay(const std::vector<Option>& options) {
    int64_t least = kEver;
    for (const Option& o : options) least = std::min(least, o.least);
    return least;
  }

  // The best few for each share of the allowances that is spent; finer about the even pace.
  void thin_out(std::vector<Reached>& states, uint64_t iterations) const {
    const auto even =
        static_cast<int64_t>(static_cast<double>(most_delay_) * static_cast<double>(iterations) /
                             static_cast<double>(iterations_));
    const int64_t buckets = kBuckets;
    const int64_t coarse = most_delay_ / buckets + 1;
    const int64_t fine = tail_ / buckets + 1;
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

  double frontier(const std::vector<LowState>& starts, int64_t most, bool& thinned) {
    std::vector<Reached> now, next;
    for (const LowState& start : starts) now.push_back({.low = canonical(start, grid_)});
    const uint64_t length = chain_.links.size();
    double best = 0;
    for (uint64_t n = 0; n < iterations_; ++n) {
      next.clear();
      for (const Reached& r : now) {
        const int64_t left = most_delay_ - r.delay;
        const int64_t limit = std::min(most, r.over < most_over_ ? left : std::min(left, tail_));
        LowState folded = r.low;
        folded.next %= length;
        const std::vector<Option>& all = known_options(folded, 0, most);
        // What it finds running is not its doing.
        const int64_t found = n == 0 ? least_delay(all) : 0;
        for (const Option& o : all) {
          const int64_t delay = o.least - found;
          if (delay > limit) continue;
          Reached to{o.low, r.delay + delay, r.work + o.work, 0, r.over + (delay > tail_ ? 1 : 0)};
          to.low.next += r.low.next - folded.next;
          if (n + 1 == iterations_) {
            best = std::max(best, (r.work + o.work_end) / (time_ + static_cast<double>(to.delay)));
          }
          next.push_back(to);
        }
      }
      std::swap(now, next);
      if (n + 1 == iterations_) break;
      if (now.size() > options_.frontier) {
        if (now.size() < 16 * options_.frontier) prune(now);
        if (now.size() > options_.frontier) thin_out(now, n + 1), thinned = true;
      }
      prune(now);
    }
    return best;
  }

  // Whether low kernels may need an iteration that exceeds the tail.
  bool plays_over() const {
    return most_over_ > 0 && most_delay_ > tail_ && chain_.longest > tail_;
  }

  // ---- bounds -----------------------------------------------------------------------------------

  // As if the high task were not there, over any time that it may take.
  double undisturbed(const std::vector<LowState>& starts) const {
    double best = 0;
    for (LowState low : starts) {
      const auto shortest = static_cast<int64_t>(time_);
      int64_t free = low.running_ns;
      int64_t work = at(low.next + chain_.links.size() - 1).kernel ? low.running_ns : 0;
      while (free < shortest + most_delay_) {
        const int64_t start = std::max(free, low.ready_ns);
        const Link& link = at(low.next);
        begin(low, start);
        const int64_t before =
            work + (link.kernel ? std::clamp<int64_t>(shortest - start, 0, link.length) : 0);
        if (free <= shortest) best = std::max(best, static_cast<double>(before) / time_);
        free = start + link.length;
        work += link.kernel ? link.length : 0;
        if (free > shortest) {
          best = std::max(best, static_cast<double>(work) / static_cast<double>(free));
        }
      }
    }
    return best;
  }

  struct Edge {
    uint32_t to = 0;
    float delay = 0;
    double work = 0, work_end = 0;
  };

  // All rounded states that can be reached, in the order of how soon.
  bool explore(const std::vector<LowState>& starts, int64_t grid) {
    edges_.clear();
    first_edge_.assign(1, 0);
    within_.clear();
    std::unordered_map<Key, uint32_t, Hash> index;
    std::vector<LowState> states;
    const auto number = [&](const LowState& low) {
      const auto [found, added] = index.emplace(key_of(low, 0, 0), states.size());
      if (added) states.push_back(low);
      return found->second;
    };
    const uint64_t length = chain_.links.size();
    const auto folded = [&](LowState low) {
      low.next %= length;
      return canonical(low, grid);
    };
    for (const LowState& start : starts) number(folded(start));
    std::vector<Option> coarse;
    for (size_t done = 0, depth = 0; depth < iterations_ && done < states.size(); ++depth) {
      const size_t here = states.size();
      within_.push_back(static_cast<uint32_t>(here));
      for (; done < here; ++done) {
        const int64_t most = std::min(tail_, most_delay_);
        if (grid != grid_) options(states[done], 0, most, grid, coarse);
        const std::vector<Option>& choices =
            grid == grid_ ? known_options(states[done], 0, most) : coarse;
        const int64_t found = depth == 0 ? least_delay(choices) : 0;
        for (const Option& o : choices) {
          const int64_t delay = o.least - found;
          if (delay > most) continue;
          edges_.push_back({number(folded(o.low)), static_cast<float>(delay), o.work, o.work_end});
        }
        first_edge_.push_back(static_cast<uint32_t>(edges_.size()));
        if (states.size() > kMostStates) return false;
      }
    }
    states_ = states.size();
    return true;
  }

  // The most of work - price * delay over all iterations. Those that exceed the tail are not
  // played: they may end in any state, and have the device do nothing but the two tasks' work.
  double value(const std::vector<LowState>& starts, double price) const {
    std::vector<double> before(states_, 0), after(states_, 0);
    const double idle = static_cast<double>(high_.alone + high_.pause - high_.work) -
                        std::max(0.0, price - 1) * static_cast<double>(tail_);
    double jump = 0;  // the most that one of these gains
    double rest = 0;
    for (uint64_t n = 1; n <= iterations_; ++n) {
      const auto known = [&](uint64_t depth) {
        return within_[std::min<uint64_t>(depth, within_.size() - 1)];
      };
      double least_gain = 1e300, most_gain = -1e300, least = 1e300, most = 0;
      for (size_t y = 0; n > 1 && y < known(iterations_ - n + 1); ++y)
        most = std::max(most, before[y]);
      for (size_t x = 0; x < known(iterations_ - n); ++x) {
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
        rest = static_cast<double>(iterations_ - n) * most_gain;
        break;
      }
    }
    double best = 0;
    for (size_t x = 0; x < starts.size() && x < states_; ++x) best = std::max(best, before[x]);
    if (most_delay_ > tail_) {
      rest += static_cast<double>(most_over_) * jump +
              std::max(0.0, 1 - price) * static_cast<double>(most_delay_);
    }
    return best + rest;
  }

  double relaxed(const std::vector<LowState>& starts) {
    auto grid = std::max<int64_t>(1, grid_);
    while (!explore(starts, grid))
      grid = static_cast<int64_t>(static_cast<double>(grid) * kCoarser);
    const auto bound = [&](double price) {
      const double most = value(starts, price);
      const auto delay = static_cast<double>(most_delay_);
      return std::max(most / time_, (most + price * delay) / (time_ + delay));
    };
    double best = bound(1);
    if (most_delay_ == 0) return best;
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

  // ---- beside low kernels longer than the tail --------------------------------------------------

  // In time of an iteration.
  struct Price {
    double delay = 1;  // of as much delay
    double over = 0;   // of exceeding the tail
  };
  struct Label {
    double cost = 0;
    LowState low;
    int64_t ahead = -1;  // of the high one's host, which is held where its next iteration begins
    int64_t delay = 0, least = 0;
    int64_t found = 0;  // what it finds running delays the first iteration, and is not its doing
    double work = 0;
    uint64_t iterations = 0, over = 0;
  };
  enum class Keep : uint8_t {
    kOne,   // the cheapest to be so far, all allowances exchanged at the price: a bound
    kSome,  // the cheapest for each part of the allowances that is spent, and nothing beyond them
  };
  struct Found {
    double most = 0, reached = 0;
    double furthest = -1;
    Label at;                                       // the furthest
    std::vector<std::pair<double, double>> course;  // furthest so far, and its cost
    Price price;
  };

  LowState folded(LowState low) const {
    low.next %= chain_.links.size();
    return low;
  }

  double done(const LowState& low) const {
    const uint64_t length = chain_.links.size();
    const bool kernel = at(low.next + length - 1).kernel;
    return static_cast<double>(static_cast<int64_t>(low.next / length) * done_.back() +
                               done_[low.next % length] - (kernel ? low.running_ns : 0));
  }

  double budget(const Price& price) const {
    return iteration() *
               (static_cast<double>(iterations_) + static_cast<double>(most_over_) * price.over) +
           static_cast<double>(most_delay_) * price.delay;
  }
  double cost(const Label& label, const Price& price) const {
    return iteration() * (static_cast<double>(label.iterations) +
                          static_cast<double>(label.over) * price.over) +
           static_cast<double>(label.least) * price.delay;
  }
  double iteration() const { return static_cast<double>(high_.alone + high_.pause); }

  // Low kernels begin, and the high iteration only now.
  Label hold(const Label& from, const Price& price) const {
    Label to = from;
    int64_t waited = 0;
    do {
      waited = std::max(to.low.running_ns, to.low.ready_ns);
      begin(to.low, waited);
    } while (options_.step > 0 && to.low.running_ns < tail_ / kChunks);
    to.low.running_ns -= waited;
    to.low.ready_ns -= waited;
    to.low.base_ns -= waited;
    to.low = canonical(to.low, grid_);
    const int64_t coarse = options_.step > 0 ? most_ahead_ / kAheads + 1 : 1;
    to.ahead = std::max<int64_t>(0, from.ahead) + waited;
    to.ahead = std::min(most_ahead_, (to.ahead + coarse - 1) / coarse * coarse);
    // Fewer of them would have been enough.
    const int64_t least = from.ahead < 0 && options_.step > 0
                              ? std::max<int64_t>(0, waited - tail_ / kChunks)
                              : waited;
    to.delay += waited;
    to.least += least;
    to.cost += static_cast<double>(least) * price.delay;
    if (from.ahead < 0) to.over += 1, to.cost += iteration() * price.over;
    return to;
  }

  // Labels in the order of their cost.
  Found search(const std::vector<LowState>& starts, const Price& price, Keep keep,
               int64_t parts = 1, const Found* guide = nullptr) {
    const double all = budget(price);
    const double begun = done(starts.front());
    std::unordered_map<int64_t, std::vector<Label>> kept;
    const auto among = [&](const Label& label) -> std::vector<Label>& {
      const auto n = static_cast<int64_t>(label.iterations);
      const auto over = static_cast<int64_t>(label.over);
      if (keep == Keep::kOne) return kept[0];
      const int64_t spent = label.delay / (most_delay_ / parts + 1);
      const int64_t gone = n * parts / static_cast<int64_t>(iterations_);
      return kept[(over * (parts + 1) + spent) * (parts + 1) + gone];
    };
    const auto better = [&](const Label& a, const Label& b) {
      return a.ahead >= b.ahead && no_worse(a.low, b.low);
    };
    const auto allowed = [&](const Label& label) {
      return label.iterations <= iterations_ && label.delay <= most_delay_ &&
             label.over <= most_over_;
    };
    const auto hopeless = [&](const Label& label) {
      if (keep == Keep::kOne ? label.cost > all : !allowed(label)) return true;
      if (guide != nullptr) {
        const auto least = std::lower_bound(guide->course.begin(), guide->course.end(),
                                            std::pair(done(label.low) - begun, 0.0));
        if (least != guide->course.end() &&
            cost(label, guide->price) > least->second + kLoss * budget(guide->price)) {
          return true;
        }
      }
      const std::vector<Label>& others = among(label);
      return std::any_of(others.rbegin(), others.rend(),
                         [&](const Label& other) { return better(other, label); });
    };
    using Due = std::pair<double, uint32_t>;  // cost, and where in `labels`
    std::priority_queue<Due, std::vector<Due>, std::greater<>> queue;
    std::vector<Label> labels;
    std::vector<uint32_t> unused;
    const auto push = [&](const Label& label) {
      if (unused.empty())
        unused.push_back(static_cast<uint32_t>(labels.size())), labels.emplace_back();
      labels[unused.back()] = label;
      queue.emplace(label.cost, unused.back());
      unused.pop_back();
    };
    for (const LowState& start : starts) {
      Label label{.low = canonical(start, grid_)};
      label.found = kEver;
      for (const Option& o : known_options(folded(label.low), 0, most_delay_)) {
        label.found = std::min(label.found, o.least);
      }
      push(label);
    }
    Found found{.price = price};
    size_t count = 0;
    while (!queue.empty()) {
      const Label label = labels[queue.top().second];
      unused.push_back(queue.top().second);
      queue.pop();
      if (hopeless(label)) continue;
      std::vector<Label>& others = among(label);
      std::erase_if(others, [&](const Label& other) { return better(label, other); });
      others.push_back(label);
      count += 1;
      if (keep == Keep::kSome && count > kMostLabels) break;
      const double far = done(label.low) - begun;
      if (far > found.furthest) {
        found.furthest = far;
        found.at = label;
        found.course.emplace_back(far, label.cost);
        // All of that, and the least delay that pays for it.
        const double without = all - static_cast<double>(most_delay_) * price.delay;
        const double late = std::max(0.0, label.cost - without) / price.delay;
        found.most = std::max(found.most, far / (time_ + late));
      }
      if (most_over_ > 0) {
        const Label held = hold(label, price);
        if (!hopeless(held)) push(held);
      }
      for (const Option& o :
           known_options(folded(label.low), std::max<int64_t>(0, label.ahead), most_delay_)) {
        Label to = label;
        to.low = o.low;
        to.low.next += label.low.next - label.low.next % chain_.links.size();
        to.ahead = -1;
        const int64_t delay = std::max<int64_t>(0, o.delay - label.found);
        const int64_t least = std::max<int64_t>(0, o.least - label.found);
        to.found = 0;
        to.delay += delay;
        to.least += least;
        to.iterations += 1;
        to.work += o.work;
        to.cost += iteration() + static_cast<double>(least) * price.delay;
        if (label.ahead < 0 && least > tail_) to.over += 1, to.cost += iteration() * price.over;
        if (allowed(to)) {
          const double work = to.iterations == iterations_ ? label.work + o.work_end : to.work;
          found.reached = std::max(found.reached, work / (time_ + static_cast<double>(to.delay)));
        }
        if (keep == Keep::kSome && to.iterations >= iterations_) continue;
        if (!hopeless(to)) push(to);
      }
    }
    return found;
  }

  // A bound by Lagrangian relaxation, and the best schedule that was found.
  OracleRate priced(const std::vector<LowState>& starts) {
    OracleRate rate{.most = 1};
    Found guide;
    // Every price gives a bound; what one price lets the low task do, it may do at every other that
    // pays for the same.
    const auto try_all = [&](std::vector<Price> prices) {
      while (!prices.empty()) {
        const Price price = middle(prices);
        Found found = search(starts, price, Keep::kOne);
        std::erase_if(prices, [&](const Price& other) {
          return (other.delay == price.delay && other.over == price.over) ||
                 cost(found.at, other) <= budget(other);
        });
        rate.reached = std::max(rate.reached, found.reached);
        if (found.most >= rate.most) continue;
        rate.most = found.most;
        guide = std::move(found);
      }
    };
    const double over = most_over_ > 0 ? 1 : 0;
    try_all(about({kMiddleDelay, over * kMiddleOver}, kFar, 0.5));
    try_all(about(guide.price, kClose, 0.125));
    for (const int64_t parts : kParts) {
      if (rate.reached >= kNear * rate.most) break;
      const Found found = search(starts, guide.price, Keep::kSome, parts, &guide);
      rate.reached = std::max(rate.reached, found.reached);
    }
    rate.most = std::max(rate.reached, std::min(rate.most, undisturbed(starts)));
    return rate;
  }

  // Powers of two about it, so many times `step` to each side.
  static std::vector<Price> about(const Price& price, int times, double step) {
    std::vector<Price> prices;
    for (int i = -times; i <= times; ++i) {
      for (int j = -times; j <= (price.over > 0 ? times : -times); ++j) {
        prices.push_back({price.delay * std::exp2(i * step), price.over * std::exp2(j * step)});
      }
    }
    return prices;
  }

  // The middle one of the middle row.
  static Price middle(std::vector<Price>& prices) {
    const auto half = prices.begin() + static_cast<std::ptrdiff_t>(prices.size() / 2);
    const auto by_delay = [](const Price& a, const Price& b) { return a.delay < b.delay; };
    std::sort(prices.begin(), prices.end(), [](const Price& a, const Price& b) {
      return std::tie(a.delay, a.over) < std::tie(b.delay, b.over);
    });
    const auto [first, end] = std::equal_range(prices.begin(), prices.end(), *half, by_delay);
    return first[(end - first) / 2];
  }

  High high_;
  Chain chain_;
  OracleOptions options_;
  int64_t grid_ = 0;
  int64_t most_ahead_ = 0;     // of the host: it has come to its first wait
  std::vector<int64_t> done_;  // low kernel ns before each link

  // of the question that is being answered
  int64_t most_delay_ = 0, tail_ = 0;
  uint64_t most_over_ = 0, iterations_ = 0;
  double time_ = 0;

  std::unordered_map<Key, std::vector<Option>, Hash> known_;

  // scratch of play()
  std::vector<int64_t> end_, base_;

  std::vector<Edge> edges_;
  std::vector<uint32_t> first_edge_;  // by state
  std::vector<uint32_t> within_;      // states that can be reached in so many iterations
  size_t states_ = 0;
};

Oracle::Oracle(const Script& high, bool high_greedy, const Script& low, bool low_greedy,
               const OracleOptions& options)
    : impl_(std::make_unique<Impl>(high, high_greedy, low, low_greedy, options)) {}
Oracle::~Oracle() = default;
Oracle::Oracle(Oracle&&) noexcept = default;

bool Oracle::exact() const { return impl_->exact(); }
int64_t Oracle::alone_ns() const { return impl_->alone(); }
int64_t Oracle::pause_ns() const { return impl_->pause(); }
LowState Oracle::seen(const Progress& low) const { return impl_->seen(low); }
OracleRate Oracle::rate(const LowState& start, bool after_pause, uint64_t iterations,
                        const Allowance& allowance) {
  return impl_->rate(start, after_pause, iterations, allowance);
}

}  // namespace lull::simulate
