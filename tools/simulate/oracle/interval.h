// The low task's work in one iteration of the high one, for each delay of it that is worth having:
// what the oracle's searches (frontier.h, priced.h) put together. Also the low task alone. Pure.
//
// A segment is played kernel by kernel. What decides is when a kernel joins the device's queue: it
// is launched and the one before it in its stream is done. The device takes them up in that order.
//
//   h1 joins   h2 joins           h3 joins         a low kernel joins in an interval between two
//   |          |                  |                high ones: by itself, when its host launches it
//   [h1  ]     [h2  ]             [h3      ]       or its task's last kernel ends, or held until
//     ^^^^^^^^^  ^^^^^^^^^^^^^^^^^                  the interval begins. It starts when the device
//     1 behind h1  2 behind h2                     is free. Held, it makes its host late.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/simulate/oracle/flow.h"
#include "tools/simulate/oracle/oracle.h"

namespace lull::simulate {

// What is asked of the oracle: an allowance over so many iterations, in ns.
struct Question {
  int64_t most_delay = 0, tail = 0;
  uint64_t most_over = 0, iterations = 0;
  double time = 0;  // of the iterations alone, with the pauses between them
};

// What an iteration may come to.
struct Option {
  LowState low;
  int64_t delay = 0;
  int64_t least = 0;    // for which one low kernel fewer would have gone: a step is one option
  double work = 0;      // until the next iteration begins
  double work_end = 0;  // until this one ends
};

struct Options {
  std::vector<Option> all;
  bool complete = true;  // longer delays let nothing more go
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

// A low state and what the iteration may come to from there depends on.
using Key = std::array<int64_t, 6>;
struct KeyHash {
  size_t operator()(const Key& key) const;
};
Key key_of(const LowState& low);

class Interval {
 public:
  Interval(High high, Chain chain, const OracleOptions& options);

  void ask(const Question& question) { question_ = question; }
  const Question& question() const { return question_; }
  const High& high() const { return high_; }
  const OracleOptions& limits() const { return options_; }
  int64_t grid() const { return grid_; }
  uint64_t length() const { return chain_.links.size(); }
  const Chain& chain() const { return chain_; }
  const Link& at(uint64_t next) const { return chain_.links[next % chain_.links.size()]; }

  // Whether low kernels may need an iteration that exceeds the tail.
  bool plays_over() const {
    return question_.most_over > 0 && question_.most_delay > question_.tail &&
           chain_.longest > question_.tail;
  }

  // Times that are over say nothing; the rest is rounded down.
  LowState canonical(LowState low, int64_t grid) const;
  // Of the low task's first iteration; the same of any other.
  LowState folded(LowState low) const;
  // The next link begins at `start`.
  void begin(LowState& low, int64_t start) const;
  // Low work with nobody else from `free` to `boundary`; its times become relative to that.
  void run_low(LowState low, int64_t free, int64_t end, int64_t boundary, Played& played) const;
  // Kernel ns of the low task that are done.
  double done(const LowState& low) const;

  // What an iteration may come to that begins with `low` so, delayed by `most` or less.
  void options(const LowState& low, int64_t most, int64_t grid, Options& out);
  // The same, kept; of a folded state.
  const Options& known_options(const LowState& low, int64_t most);

  // Whoever starts from `a` can do whatever may be done from `b`.
  bool no_worse(const LowState& a, const LowState& b) const;
  // Leaves the Pareto-best.
  template <typename State>
  void prune(std::vector<State>& states) const;

 private:
  // A high kernel of the segment that is being played: when it joined the device's queue, when it
  // ended, when it does alone, and how late that may be.
  struct InFront {
    int64_t joined = 0, ended = 0;
    int64_t alone = 0, length = 0, finish = 0;
  };

  Played play(const Segment& segment, const LowState& from, int64_t allowed, bool last);
  int64_t hold(LowState& low) const;

  High high_;
  Chain chain_;
  OracleOptions options_;
  Question question_;
  int64_t grid_ = 0;
  std::vector<int64_t> done_;  // low kernel ns before each link
  std::unordered_map<Key, Options, KeyHash> known_;

  // scratch of play()
  std::vector<int64_t> end_, base_;
  std::vector<InFront> in_front_;
};

template <typename State>
void Interval::prune(std::vector<State>& states) const {
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
      if constexpr (requires { state.least; }) dominated = dominated && other->least <= state.least;
    }
    if (!dominated) kept.push_back(state);
  }
  states = std::move(kept);
}

// Of the first iteration: what it finds running is not its doing.
int64_t least_delay(const Options& options);

}  // namespace lull::simulate
