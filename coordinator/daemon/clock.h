// What time it is for the engine: model time of the node's devices.
//
//   real        now = CLOCK_MONOTONIC
//   simulated   now = (CLOCK_MONOTONIC - origin) / slow motion, both from the simulated device's
//               file; 0 until that file is there, since nothing can have been launched before it
//
// Also turns the clients' ticks (channel/ticks.h, same machine) into model time: two readings of
// both clocks give the rate, and the pair is renewed while the daemon runs, so that an error is
// that of the last stretch and not that of a day. Loop thread; reads clocks and the device's file
// only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <expected>
#include <string>

#include "coordinator/channel/model_clock.h"
#include "policies/vocabulary.h"

namespace lull::daemon {

class Clock {
 public:
  static Clock real();
  // `device_file` need not be there yet.
  static Clock simulated(std::string device_file);

  bool is_simulated() const { return simulated_; }
  // The simulated device's file has been read, or there is none to read.
  bool ready() const { return ready_; }
  // Simulated: reads the file when it is there and not the one already read. True: a new one was
  // read, and time has a new origin. An error says what is wrong with a file that is there.
  std::expected<bool, std::string> look_for_device();

  Instant now() const;
  // When the client read `ticks`; never after `now` and at most 10 s before.
  Instant at_ticks(uint64_t ticks, Instant now) const;
  // Of a time that a client has measured; at most 10 years, whatever it says.
  Duration length_of(uint64_t ticks) const;
  // CLOCK_MONOTONIC when model time reaches `instant`.
  uint64_t monotonic_at(Instant instant) const;
  // Renews the pair of readings when the last one is old. Called every turn; cheap.
  void refine(uint64_t monotonic_ns);

  double slow_motion() const { return model_.slow_motion; }
  Duration control_latency() const { return control_latency_; }
  // "time_slice", "mps", "serial"; empty for a real GPU.
  std::string sharing() const;
  const std::string& device_file() const { return device_file_; }
  // Simulated, once ready: what the file says.
  const channel::sim_device_prefix& sim_device() const { return sim_device_; }

 private:
  struct Reading {
    uint64_t ticks = 0;
    uint64_t monotonic_ns = 0;
  };
  static Reading read_both();
  Clock();

  bool simulated_ = false;
  bool ready_ = true;
  std::string device_file_;
  uint32_t sharing_ = 0;
  Duration control_latency_{0};
  channel::ModelClock model_;
  channel::sim_device_prefix sim_device_{};
  Reading first_;
  Reading last_;
  double ns_per_tick_ = 1.0;
};

}  // namespace lull::daemon
