// The iteration detector on programs that it was not tuned on (held_out_programs.h).
//
// `policies_test "[figures]"` prints what each program came to.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>

#include "policies/prediction/iteration_detector.h"
#include "tests/unit/policies/held_out_programs.h"

namespace lull::policies {
namespace {

constexpr uint64_t kSeeds = 2;  // in the suite, for its time
constexpr uint64_t kFigureSeeds = 5;

struct Result {
  uint32_t lock_after = 0;  // iterations of the phase that took longest; those before the lock
  uint32_t windows = 0;     // iterations that ended after it
  uint32_t right = 0;
  uint32_t last_period = 0;
  uint64_t locked_launches = 0;
  bool locks_in_time() const { return windows > 0 && lock_after <= 5; }
  bool is_right() const { return windows > 0 && right * 100 >= windows * 95; }
};

bool is_one_of(uint32_t period, const std::vector<held_out::Range>& right) {
  return std::any_of(right.begin(), right.end(), [&](const held_out::Range& range) {
    return range.least <= period && period <= range.most;
  });
}

// The lock of a phase is the first one with a right period; it is looked for at the ends of
// iterations. A wrong period before it counts as no lock for the first, and against the windows of
// later phases only after five iterations: that long the detector may believe in the old one.
Result follow(const held_out::Sequence& sequence) {
  IterationDetector detector;
  Result result;
  size_t end = 0;
  uint32_t phase = 0;
  uint32_t ended = 0;
  bool locked = false;
  for (size_t i = 0; i < sequence.launches.size(); ++i) {
    detector.launch(sequence.launches[i].kernel, sequence.launches[i].at);
    result.locked_launches += detector.locked() ? 1 : 0;
    if (end >= sequence.ends.size() || sequence.ends[end].launches != i + 1) continue;
    const held_out::IterationEnd& now = sequence.ends[end++];
    if (now.phase != phase) {
      phase = now.phase;
      ended = 0;
      locked = false;
    }
    ended += 1;
    const bool right = detector.locked() && is_one_of(detector.period(), now.right);
    if (!locked) {
      if (right) locked = true;
      result.lock_after = std::max(result.lock_after, ended);
    }
    if (locked || ended > 5) {
      result.windows += 1;
      result.right += right ? 1 : 0;
    }
    result.last_period = detector.period();
  }
  return result;
}

TEST_CASE(
    "Programs that the detector was not tuned on: locked within five iterations, right after") {
  for (const held_out::Program& program : held_out::programs()) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Result result = follow(program.make(seed));
      INFO(program.name << ", seed " << seed << ": locked after " << result.lock_after << ", "
                        << result.right << " of " << result.windows << " right, last period "
                        << result.last_period);
      CHECK(result.locks_in_time());
      CHECK(result.is_right());
    }
  }
}

TEST_CASE("Noises that the detector was not tuned on: never locked") {
  for (const held_out::Program& noise : held_out::noises()) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const Result result = follow(noise.make(seed));
      INFO(noise.name << ", seed " << seed);
      CHECK(result.locked_launches == 0);
    }
  }
}

TEST_CASE("What the held-out programs came to", "[.][figures]") {
  for (const auto& list : {held_out::programs(), held_out::programs_beyond()})
    for (const held_out::Program& program : list) {
      for (uint64_t seed = 1; seed <= kFigureSeeds; ++seed) {
        const auto sequence = program.make(seed);
        const Result result = follow(sequence);
        const auto& right = sequence.ends.back().right.back();
        std::printf("%-60s %llu: lock %u, %u/%u, period %u of %u..%u%s\n", program.name.data(),
                    static_cast<unsigned long long>(seed), result.lock_after, result.right,
                    result.windows, result.last_period, right.least, right.most,
                    result.locks_in_time() && result.is_right() ? "" : "   <--");
      }
    }
  for (const auto& list : {held_out::noises(), held_out::noises_beyond()})
    for (const held_out::Program& noise : list) {
      for (uint64_t seed = 1; seed <= kFigureSeeds; ++seed) {
        const auto sequence = noise.make(seed);
        const uint64_t locked = follow(sequence).locked_launches;
        std::printf("%-60s %llu: locked for %llu of %zu%s\n", noise.name.data(),
                    static_cast<unsigned long long>(seed), static_cast<unsigned long long>(locked),
                    sequence.launches.size(), locked == 0 ? "" : "   <--");
      }
    }
}

}  // namespace
}  // namespace lull::policies
