// Programs as sequences of launches, for tests of what finds their iteration: each knows where its
// iterations begin. Deterministic by seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::test {

struct GeneratedLaunch {
  KernelId kernel;
  Instant at;
  uint64_t memory_bytes = 0;
  uint32_t iteration = 0;  // 0: none (prologue, validation)
};

class GeneratedProgram {
 public:
  explicit GeneratedProgram(uint32_t seed) : random_(seed) {}

  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool chance(uint32_t per_mille) { return pick(1000) < per_mille; }

  // Host time before the next launch, give or take a sixth.
  void pause(int64_t ns) { next_ns_ += ns * 5 / 6 + static_cast<int64_t>(random_() % static_cast<uint64_t>(ns / 3 + 1)); }
  void launch(uint64_t kernel) {
    pause(6'000);
    now_ns_ += next_ns_;
    next_ns_ = 0;
    launches_.push_back({KernelId{kernel * 0x9e3779b97f4a7c15ULL + 1}, Instant{now_ns_}, memory_, iteration_});
  }
  // `count` launches of kernels base, base + 1, ...
  void run(uint64_t base, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) launch(base + i);
  }
  void memory(uint64_t bytes) { memory_ = bytes; }
  void begin_iteration() { iteration_ = ++iterations_; }
  void no_iteration() { iteration_ = 0; }

  std::vector<GeneratedLaunch>& launches() { return launches_; }
  uint32_t iterations() const { return iterations_; }
  // The usual number of launches of an iteration.
  uint32_t period() const {
    std::vector<uint32_t> lengths(iterations_ + 1, 0);
    for (const GeneratedLaunch& launch : launches_) lengths[launch.iteration] += 1;
    std::nth_element(lengths.begin() + 1, lengths.begin() + 1 + iterations_ / 2, lengths.end());
    return lengths[1 + iterations_ / 2];
  }

 private:
  std::mt19937 random_;
  std::vector<GeneratedLaunch> launches_;
  int64_t now_ns_ = 0;
  int64_t next_ns_ = 0;
  uint64_t memory_ = 1 << 30;
  uint32_t iteration_ = 0;
  uint32_t iterations_ = 0;
};

// Shuffles the launches of `streams` threads, each in its own order, `jitter` places at most.
inline std::vector<uint64_t> interleave(GeneratedProgram& program, const std::vector<std::vector<uint64_t>>& threads) {
  std::vector<uint64_t> order;
  std::vector<size_t> next(threads.size(), 0);
  for (;;) {
    // The thread that is furthest behind goes, but for some noise.
    size_t best = threads.size();
    double least = 2;
    for (size_t t = 0; t < threads.size(); ++t) {
      if (next[t] >= threads[t].size()) continue;
      const double at = static_cast<double>(next[t]) / static_cast<double>(threads[t].size()) +
                        program.pick(1000) * 0.00003;
      if (at < least) {
        least = at;
        best = t;
      }
    }
    if (best == threads.size()) return order;
    order.push_back(threads[best][next[best]++]);
  }
}

}  // namespace lull::test
