// One simulated CUDA program under lull: its host thread as lull-play plays it, and the shim as a
// small model of its own: gate word and credit (the channel's own functions), held launches,
// sampled timing, progress markers. Called by Node, at instants that never go back.
//
//   host      waiting for its time -> call -> (held at the gate | stream full | synchronising) -> ..
//   wake()    when it acts by itself; kNever while only the device or the coordinator can move it
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/channel/gate.h"
#include "tools/measure/measure.h"
#include "tools/play/timeline.h"
#include "tools/simgpu/device/device_model.h"
#include "tools/simulate/coordinator_model.h"
#include "tools/simulate/random.h"
#include "tools/simulate/script.h"
#include "tools/simulate/timer_model.h"

namespace lull::simulate {

struct ProgramPlan {
  const Script* script = nullptr;
  std::string task;
  Priority priority;
  SlowdownBound bound = {};
  uint32_t device = 0;
  JobId job;              // 0: a job of its own
  bool greedy = false;    // without host pauses
  uint64_t iterations = UINT64_MAX;  // then it ends
  double arrival_interval_ns = 0;    // mean, exponential; 0: closed loop
  // From this iteration on, kernels take so many times as long.
  uint64_t drift_from = UINT64_MAX;
  double drift = 1;
  uint64_t seed = 1;
  // Told of each kernel when the device has completed it; of use where the device runs one at a time.
  std::function<void(Instant began, Instant ended)> ran;
};

// How far a program is on the compute engine, and what its host does next.
struct Progress {
  uint64_t launched = 0, completed = 0;  // works of the compute engine
  Duration running{-1};       // what is left of the one that runs; -1: none
  size_t call = 0;            // the next one; all before it are made
  Duration due;               // until it may make it, not counting a gate
  bool between = false;       // iterations: `due` is until the next one begins
  bool waiting = false;       // for the device, in a call made already
};

// One iteration, or request: `arrived` is its start in a closed loop.
struct Service {
  Instant arrived, began, ended;
};

class Program {
 public:
  Program(const ProgramPlan& plan, ClientId client, simgpu::DeviceModel& device,
          CoordinatorModel& coordinator, Duration jitter, uint32_t timing_period, Instant now);

  const ProgramPlan& plan() const { return plan_; }
  ClientId client() const { return client_; }
  simgpu::ContextId context() const { return context_; }

  Instant wake() const { return wake_; }
  // Does all that is due at `now`.
  void act(Instant now);
  // What the device has completed by `now`; the device has just been advanced there.
  void collect(Instant now);
  bool has_work() const { return in_flight_ > 0; }

  // ---- what the coordinator publishes ----
  void set_gate(const engine::SetGate& gate, Instant now);
  void release(const engine::Release& release, Instant now);
  void set_progress(const engine::SetProgress& progress);
  void predict(const engine::Predict& prediction, Instant now);

  // Ends after the call it is in; what is in flight is waited for, then it detaches.
  void ask_to_stop() { stopping_ = true; }
  // Dies on the spot.
  void kill(Instant now);
  bool ended() const { return state_ == State::kEnded; }
  bool is_held() const { return state_ == State::kHeld; }
  Instant held_since() const { return held_since_; }

  const std::vector<Service>& services() const { return services_; }
  uint64_t launches() const { return launches_; }
  uint64_t completions() const { return completions_; }
  double completed_kernel_ns() const { return completed_kernel_ns_; }
  // The same with what has been done of a running kernel; where kernels run to their end only.
  double executed_kernel_ns(Instant now) const;
  Progress progress(Instant now) const;
  // Predicted length of what it has launched under credit and the device has not completed.
  Duration credit_in_flight() const { return credit_in_flight_; }
  Duration longest_credit_unit() const { return longest_credit_unit_; }
  Duration last_granted() const { return Duration{static_cast<int64_t>(channel::gate_ns(gate_))}; }

 private:
  enum class State : uint8_t { kCalling, kHeld, kFull, kSyncing, kEnded };
  struct Unit {  // in a stream, until the device has completed it
    uint64_t device_seq = 0;
    uint64_t sequence = 0;  // of the shim; 0: none
    uint64_t sample = 0;
    double kernel_ns = 0;
    uint64_t compute_ns = 0;  // on the compute engine
    uint32_t weight = 1;    // places it takes in the driver's queue
    bool kernel = false;
    bool tracked = false;
    Duration credit;        // what it was charged, under credit
  };
  struct Stream {
    simgpu::StreamId id;
    std::deque<Unit> units;
    uint64_t sequence = 0;
    uint64_t synced = 0;
    uint64_t marked = 0;  // the last one with a marker
    simgpu::Seq last_device_seq = 0;
  };

  void begin_iteration(Instant now);
  void plan_call(Instant ready);
  void end_iteration(Instant now);
  void returned(Instant now);
  bool make_call(Instant now);
  bool pass_gate(const Call& call, Instant now);
  bool may_go(const Call& call);
  void submit_work(const Call& call, Instant now);
  void measured(const TimerModel::Sample& sample, Duration duration, Duration gap, Instant now);
  void wait_event(const Call& call, Instant now);
  bool is_synced() const;
  const simgpu::stream_state& on_device(const Stream& stream) const {
    return device_.state().stream[context_.slot][stream.id.slot];
  }
  void leave(Instant now);
  Instant late(Instant at) { return at + Duration{static_cast<int64_t>(
                                        random_.up_to(static_cast<uint64_t>(jitter_.ns)))}; }
  uint32_t predicted(const Call& call) const;

  ProgramPlan plan_;
  const Script& script_;
  ClientId client_;
  simgpu::DeviceModel& device_;
  CoordinatorModel& coordinator_;
  Duration jitter_;
  Random random_;
  Random arrivals_;

  // host
  State state_ = State::kCalling;
  Instant wake_;
  Instant deadline_;       // of the call, as planned
  Instant called_;
  play::HostTimeline timeline_;
  size_t position_ = 0;
  bool stopping_ = false;
  bool waiting_for_device_ = false;  // kSyncing: of all streams, else of sync_stream_
  uint32_t sync_stream_ = 0;
  Instant arrived_, began_;
  Instant next_arrival_{0};
  uint64_t iteration_ = 0;
  std::vector<Service> services_;

  // device
  simgpu::ContextId context_;
  uint32_t process_ = 0;
  std::vector<Stream> streams_;
  std::vector<std::pair<uint32_t, simgpu::Seq>> events_;  // stream and op; 0: never recorded
  std::vector<uint32_t> busy_;  // streams with units
  uint32_t in_flight_ = 0;
  uint32_t queued_weight_ = 0;

  // shim
  uint64_t gate_ = channel::kGateOpenAtBirth;
  uint64_t spent_ = 0;
  uint32_t epoch_ = 0;
  bool marked_ = false;        // the last unit
  uint32_t marked_every_ = 0;  // one launch in so many carries a marker; 0: none
  uint32_t ticket_ = 0;
  uint32_t released_ = 0;
  uint32_t last_ticket_ = 0;
  uint32_t charged_ = 0;  // for the launch that is about to go
  Instant held_since_{0};
  std::vector<uint32_t> predictions_;  // by unit; 0: none
  std::vector<std::pair<uint64_t, uint32_t>> unit_by_id_;  // sorted
  TimerModel timer_;

  uint64_t launches_ = 0;
  uint64_t completions_ = 0;
  double completed_kernel_ns_ = 0;
  uint64_t launched_compute_ = 0, completed_compute_ = 0;
  Duration credit_in_flight_;
  Duration longest_credit_unit_;
};

}  // namespace lull::simulate
