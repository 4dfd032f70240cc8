// How much the low task does in one segment of the high task, for each delay of the segment that
// lets more low work go. The oracle's searches (frontier.h, priced.h) put these options together.
// It also plays the low task alone. Pure.
//
// A segment is played kernel by kernel. What counts is when a kernel joins the device's queue: when
// it is launched and the kernel before it in its stream is done. The device runs kernels in the
// order in which they join.
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

// What the oracle is asked: an allowance over a number of iterations. Times are in ns.
struct Question {
  int64_t most_delay = 0, tail = 0;
  uint64_t most_over = 0, iterations = 0;
  double time = 0;  // of the iterations alone, with the pauses between them
};

// One way in which a segment may end.
struct Option {
  LowState low;
  int64_t delay = 0;
  int64_t least = 0;    // the least delay at which more low kernels go than in the option before
  double work = 0;      // until the next segment begins
  double work_end = 0;  // until this one ends
};

struct Options {
  std::vector<Option> all;
  bool complete = true;  // longer delays let nothing more go
};

struct Played {
  LowState low;
  int64_t delay = 0;
  int64_t missing = kEver;  // the least further delay that would have let another low kernel go
  int64_t work = 0, work_end = 0;
  bool crossing = false;  // the last low kernel began before the end and goes on; without it:
  LowState before;
  int64_t before_work = 0;
};

// A low state, and what else the options from there depend on.
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

  // Cuts times that are past, and rounds the others down.
  LowState canonical(LowState low, int64_t grid) const;
  // The same state in the low task's first iteration.
  LowState folded(LowState low) const;
  // The next link begins at `start`.
  void begin(LowState& low, int64_t start) const;
  // Plays the low task alone from `free` to `boundary`; its times become relative to `boundary`.
  void run_low(LowState low, int64_t free, int64_t end, int64_t boundary, Played& played) const;
  // Kernel ns of the low task that are done.
  double done(const LowState& low) const;

  // The options of a segment that begins with the low task at `low`, delayed by `most` at most.
  void options(size_t segment, const LowState& low, int64_t most, int64_t grid, Options& out);
  // The same for a folded state; the answer is kept.
  const Options& known_options(size_t segment, const LowState& low, int64_t most);
  // The least delay of an iteration by what runs at its start.
  int64_t least_delay(LowState low);

  // Whether all that can be done from `b` can be done from `a`.
  bool no_worse(const LowState& a, const LowState& b) const;
  // Leaves only the Pareto-best.
  template <typename State>
  void prune(std::vector<State>& states) const;

 private:
  // A high kernel of the segment that is being played: when it joined the device's queue, when it
  // ended, when it ends if the task is alone, and when it must end (`finish`).
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
  std::vector<int64_t> done_;     // low kernel ns before each link
  std::vector<uint64_t> waited_;  // how many links before each are waited for
  std::vector<std::unordered_map<Key, Options, KeyHash>> known_;  // by segment

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
  // The best of a block's states in each respect. If this does not dominate a state, no state of
  // the block does.
  struct Corner {
    int64_t delay = kEver, least = kEver, running_ns = kEver, ready_ns = kEver;
    uint64_t over = UINT64_MAX;
    double work_end = -1e300;
  };
  constexpr size_t kBlock = 64;
  const auto over = [](const State& state) -> uint64_t {
    if constexpr (requires { state.over; }) return state.over;
    return 0;
  };
  const auto least = [](const State& state) -> int64_t {
    if constexpr (requires { state.least; }) return state.least;
    return 0;
  };
  const auto dominates = [&](const State& other, const State& state) {
    return other.delay <= state.delay && other.work_end >= state.work_end &&
           over(other) <= over(state) && least(other) <= least(state) &&
           no_worse(other.low, state.low);
  };
  std::vector<Corner> corners;
  size_t kept = 0;
  for (const State& state : states) {
    bool dominated = false;
    for (size_t block = corners.size(); block-- > 0 && !dominated;) {
      const Corner& best = corners[block];
      if (best.delay > state.delay || best.work_end < state.work_end || best.over > over(state) ||
          best.least > least(state) || best.running_ns > state.low.running_ns ||
          best.ready_ns > state.low.ready_ns) {
        continue;
      }
      for (size_t i = std::min(kept, (block + 1) * kBlock); i-- > block * kBlock && !dominated;) {
        dominated = dominates(states[i], state);
      }
    }
    if (dominated) continue;
    if (kept % kBlock == 0) corners.emplace_back();
    Corner& best = corners.back();
    best.delay = std::min(best.delay, state.delay);
    best.least = std::min(best.least, least(state));
    best.over = std::min(best.over, over(state));
    best.running_ns = std::min(best.running_ns, state.low.running_ns);
    best.ready_ns = std::min(best.ready_ns, state.low.ready_ns);
    best.work_end = std::max(best.work_end, state.work_end);
    states[kept++] = state;
  }
  states.resize(kept);
}

}  // namespace lull::simulate
