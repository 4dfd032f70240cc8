// The period of a program, from its launches and the waits of its host: which launch comes next, and after which
// launch the host waits. What others cost a program shows at its waits. So a period that has waits is found here: the
// iteration that the engine detects (prediction/iteration_detector.h) may be one layer, or one of seven training
// steps of which only the last reads its loss.
//
//   launches  a b c c c | d d | a b c c c | d d | a ...     | the host waits
//   stretches     0        1       0         1              a period: two stretches
//
// Stretches are alike if they have the same launches in the same order. A period is the shortest distance at which
// recent stretches were alike. Or it is a multiple of that distance, if the host's longest pauses all come at one
// place of the multiple: sixteen tokens of a text have the same launches, and the host pauses behind the last one.
//
// Kept by a RequestGuard, which tells it each launch and wait in order. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "policies/launch/launch_policy.h"

namespace lull::policies {

class RequestPattern {
 public:
  // Returns where a launch stands in the period, or `detected` where no period is known. The generation changes when
  // positions get another meaning.
  IterationPlace launch(KernelId kernel, Instant at, const IterationPlace& detected);
  // A wait of the host has ended at `at`.
  void waited(Instant at);
  // A period is known. It begins behind the host's longest pause.
  bool known() const { return !period_.empty(); }
  // Stretches of a period; 0: none is known.
  size_t stretches() const { return period_.size(); }
  // The longest pause is far longer than any other: so a request surely begins behind it.
  bool begins_surely() const { return begin_.surely; }
  // The other pauses, three at least, are alike, and far shorter than the longest.
  bool others_are_even() const { return begin_.even; }

  bool operator==(const RequestPattern&) const = default;

 private:
  static constexpr size_t kLongest = 128;          // stretches of a period
  static constexpr size_t kMostLaunches = 65'536;  // of a period, and of all kinds together
  static constexpr size_t kMostKinds = 3 * kLongest;
  // Twelve of the longest periods, at least six of which begin with a long pause.
  static constexpr size_t kRemembered = 12 * kLongest;
  static constexpr size_t kCompared = 32;  // with fewer stretches, pauses say nothing

  using Kind = std::vector<KernelId>;  // the launches of stretches that are alike
  struct Stretch {
    size_t kind = 0;
    Duration pause;  // of the host before it
    bool operator==(const Stretch&) const = default;
  };

  struct Longest {
    size_t before = 0;  // how many of the last stretches come before it
    Duration mean;
    bool surely = false;  // it is far longer than any other
    bool even = false;    // and the others are alike
    bool operator==(const Longest&) const = default;
  };

  std::optional<size_t> kind_of_current();
  void forget();
  bool repeats(size_t distance) const;
  size_t find_repetition() const;
  size_t find_multiple(size_t distance) const;
  void follow();
  void look_again();
  bool align();
  Longest longest_pause(size_t stretches) const;
  void use_last(size_t stretches);

  std::vector<Kind> kinds_;
  size_t launches_of_kinds_ = 0;
  std::deque<Stretch> history_;

  // ---- the stretch in progress ----
  Kind current_;
  Duration pause_;
  Instant waited_at_ = kNever;

  // ---- the period ----
  std::vector<size_t> period_;   // the kinds of its stretches
  std::vector<uint32_t> start_;  // the position of each stretch's first launch
  uint32_t length_ = 0;          // launches
  Longest begin_;        // the pause before the period
  size_t next_ = 0;      // the stretch in progress
  uint32_t cursor_ = 0;  // launches of that stretch so far
  bool in_step_ = false;
  size_t followed_ = 0;     // stretches since the period was found
  size_t look_at_ = 0;      // the value of followed_ at which a longer period is looked for next
  size_t out_of_step_ = 0;  // stretches in a row that were not as they should be
  uint64_t detected_ = 0;   // generation of the detected iteration, which is used where no period is known
  uint64_t generation_ = 1;
};

}  // namespace lull::policies
