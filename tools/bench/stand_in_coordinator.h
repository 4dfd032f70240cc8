// The coordinator's end of the channel for the benchmark: accepts one client, publishes the gate
// it is told to, and drains the rings from a thread of its own as fast as it can, so that what is
// measured is the client's cost and never a full ring. It decides nothing; lulld does that.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "coordinator/channel/layout.h"

namespace lull::bench {

enum class Mode { kOpen, kOpenNoRecords, kOpenTimed, kOpenSampled, kCredit, kOpenMarkers };

class StandInCoordinator {
 public:
  explicit StandInCoordinator(std::string socket_path);  // throws std::runtime_error
  ~StandInCoordinator();
  StandInCoordinator(const StandInCoordinator&) = delete;
  StandInCoordinator& operator=(const StandInCoordinator&) = delete;

  void set_mode(Mode mode);       // any thread; no client yet: holds from its attach on
  uint64_t records() const { return records_.load(); }
  uint64_t dropped() const;

 private:
  void serve();
  bool attach(int connection);

  std::string path_;
  int listener_ = -1;
  int connection_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<Mode> mode_{Mode::kOpen};
  std::atomic<uint64_t> records_{0};
  std::atomic<char*> base_{nullptr};
  std::thread thread_;
};

}  // namespace lull::bench
