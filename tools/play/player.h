// Replays a workload on a CUDA device, as the program itself would: same launches under the same
// names and shapes, same streams, host pauses, run-ahead and synchronisation (workload.h).
// Called by lull-play's main; everything happens on the calling thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>

#include "tools/play/workload.h"

namespace lull::play {

struct PlayOptions {
  bool greedy = false;     // no host pauses and no waiting out of call_ns
  uint64_t jitter_ns = 0;  // each pause is lengthened by 0 .. jitter_ns, drawn from the seed
  uint64_t seed = 1;
  int device = 0;
};

// Times in model ns: device time on simgpu, CLOCK_MONOTONIC on a GPU.
struct IterationResult {
  uint64_t start_ns = 0, end_ns = 0;
  uint64_t kernel_ns = 0;  // recorded lengths of the kernels launched
  uint64_t launches = 0;
  uint64_t late_p99_ns = 0;  // of this iteration's calls that had a deadline ahead of them
  bool complete = false;     // false: stopped on the way, and then waited for what was launched
};

class Player {
 public:
  // Opens driver and device, loads the kernels, allocates; errors are "why: what to do".
  static std::expected<std::unique_ptr<Player>, std::string> create(const Workload& workload,
                                                                    const PlayOptions& options);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  bool simulated() const;
  double slow_motion() const;
  const std::string& device_name() const;
  const std::string& note() const;  // what could not be replayed as recorded; usually empty
  uint64_t now_ns() const;

  // Plays one iteration; returns early, at the next operation, once `stop` is set.
  std::expected<IterationResult, std::string> play_iteration(const std::atomic<bool>& stop);

  uint64_t late_p99_ns() const;  // of all iterations since create or forget_lateness
  uint64_t late_max_ns() const;
  void forget_lateness();

 private:
  struct State;
  explicit Player(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lull::play
