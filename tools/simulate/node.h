// A simulated node: devices, programs and the coordinator on one clock, moved from event to event.
// Deterministic: the same plans and seeds give the same events. One thread; no real clock.
//
// At each instant, in this order: the device completes work, published decisions reach the shims,
// hosts act (by program), the coordinator looks. Ties inside are broken by program.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/simulate/program.h"

namespace lull::simulate {

struct NodeOptions {
  CoordinatorOptions coordinator;
  simgpu::DeviceProfile profile = simgpu::built_in_profile();
  simgpu::Sharing sharing = simgpu::Sharing::kSerial;
  uint32_t devices = 1;
  Duration jitter;              // each waking of a host thread is late by 0 .. jitter
  uint32_t timing_period = 64;  // as the daemon's preset
};

class Node {
 public:
  explicit Node(const NodeOptions& options);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Instant now() const { return now_; }
  CoordinatorModel& coordinator() { return coordinator_; }
  const simgpu::DeviceModel& device() const { return device_; }

  // From now on; the reference stands as long as the node.
  Program& start(const ProgramPlan& plan);
  // Ends it and waits until it has left.
  void stop(Program& program);

  bool at_rest() const { return next() == kNever; }
  // One event. False: nothing will ever happen again.
  bool advance();
  // Until `done()`; false when everything came to rest before, or `most` was reached.
  template <typename Done>
  bool run(Done&& done, Instant most = kNever) {
    while (!done()) {
      if (next() > most || !advance()) return false;
    }
    return true;
  }

  double device_time_ns(const Program& program) const;
  double device_busy_ns(uint32_t device) const;
  // Work submitted and work completed, counted as one event each.
  uint64_t kernel_events() const;

 private:
  Instant next() const;

  NodeOptions options_;
  simgpu::ModelParameters parameters_;
  std::unique_ptr<simgpu::model_state> state_;
  std::vector<simgpu::op_record> ops_;
  simgpu::DeviceModel device_;
  CoordinatorModel coordinator_;
  std::vector<std::unique_ptr<Program>> programs_;  // by client id - 1
  std::vector<Program*> live_;
  Instant now_{0};
};

}  // namespace lull::simulate
