// The pure core of lulld: it knows what every client runs, decides what may run next, and learns.
//
//   daemon or simulator --- now, inputs ---> Engine::step --- events ---> LaunchPolicy (one a device)
//                       <-- outputs --------     | checks every decision <--- decisions ---+
//                                                | watchdog, inversion rule, job rule, predictions
//
// Called by one thread at a time. No clock, system call, log, randomness or static state: the same
// inputs at the same instants give the same outputs. It does not publish, wait or write anything,
// and it never trusts an input: an input that names an unknown client, device or stream is counted
// and dropped.
//
// How a gate comes about; a later rule overrides an earlier one:
//   1. the policy's decision (open, credit with a bound on what is in flight, closed)
//   2. job rule: if one rank is closed, all are. Ranks behind the furthest one are released; where
//      the furthest is not known, those for which another rank's stuck work may wait
//   3. inversion rule: if higher work is stuck for many times its prediction, lower gates open
//   4. order: the gates of a stopped job are closed (JobStopped)
// Beside the gates, single held launches are released by the policy, by the job rule and by the
// watchdog (`max_hold_ms` of the policy text; 0: off); of a stopped job only by the job rule.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/engine/events.h"
#include "coordinator/engine/task_record.h"
#include "policies/launch/registry.h"
#include "policies/vocabulary.h"

namespace lull::engine {

struct EngineOptions {
  // Text of the first policy. If it is not valid, the engine uses `share` and gives a Notice.
  std::string policy{policies::kDefaultPolicy};
  uint32_t max_clients = 1024;  // attachments beyond it are dropped, with a Notice
  // How long after a step its gates take effect: a launch before that was not charged to the credit
  // of that step. The daemon leaves it 0 on a real GPU, where it is not known.
  Duration control_latency{0};
  // What a progress marker costs a client that is always at work (docs/hardware, 2026-11-26); 0:
  // each launch has a marker.
  Duration marker{2'100};
  // Tells policies how long launches run; nothing: the predictor of the policy's row. For
  // comparisons only: a decision log does not hold it, and the daemon does not set it.
  std::optional<policies::Predictor> predictor = {};
  // The policies that can be named. Tests put their own here; it must outlive the engine.
  std::span<const policies::PolicyRow> policies = policies::policy_rows();
};

// The most entries in a list of a status that a client can make long.
inline constexpr size_t kMostShown = 16;

struct DeviceUsageStatus {  // a client on a device
  DeviceId device;
  Gate gate = Gate::kOpen;
  Duration granted;          // credit only: the total of the epoch
  Duration in_flight;        // predicted length of what was launched and is not known complete
  Duration device_time;      // device time used, settled at completion
  uint32_t outstanding = 0;  // units in flight
  // From this instant on no unit is in flight, whatever the counts above say: work that is not
  // reported is settled only with the next launch. kNever: the device reports it.
  Instant works_until;
  uint32_t marked_every = 0;  // the device reports one launch in this many; 0: none
};
struct HeldStatus {  // a thread waiting at the gate
  ThreadSlot thread;
  Ticket ticket;
  DeviceId device;
  StreamSlot stream;
  KernelId kernel;
  Instant since;
  std::vector<ClientId> by;  // the clients it waits for, ascending; at most kMostShown
  std::string why;           // one line
};
// What was found out about the client's own repetition (policies/prediction).
struct IterationStatus {
  bool locked = false;
  bool in_step = false;
  uint32_t period = 0;       // launches
  uint32_t position = 0;
  uint32_t confidence = 0;   // per mille
  uint64_t completed = 0;
  Duration last;             // of iterations; 0: not known, as below
  Duration median;
  Duration undisturbed;      // median of those during which nobody else was on its devices
  uint64_t undisturbed_count = 0;
  uint32_t slowdown = 0;     // median / undisturbed, per mille
  uint32_t lowest_position = 0;  // where it holds least memory
  uint64_t lowest_bytes = 0;
};
// The client's longest unit is longer than the other, more important one can wait at once.
struct UnsharableStatus {
  ClientId with;
  DeviceId device;
  policies::PairFigures figures;
};
struct ClientStatus {
  ClientId client;
  JobId job;
  Priority priority;  // the level that counts: the highest of its job's
  std::string task;
  std::vector<DeviceUsageStatus> devices;  // by device id
  std::vector<HeldStatus> held;     // by thread; at most kMostShown
  size_t held_threads = 0;          // all of them
  std::vector<UnsharableStatus> cannot_share;  // by device, then client id; at most kMostShown
  bool stopped = false;             // its gates are closed by order
  uint64_t launches = 0;            // launch records seen
  uint64_t floor_grants = 0;        // releases by the watchdog
  uint64_t kernels = 0;             // kernels known of its task
  IterationStatus iteration;
};
struct EngineStatus {
  std::string policy;                 // normalised text, with every setting
  std::vector<ClientStatus> clients;  // by client id, from the one asked for on
  std::vector<std::string> notices;   // the last 20, oldest first
  uint64_t steps = 0;
  uint64_t inputs = 0;
  uint64_t dropped_inputs = 0;        // named something unknown, or beyond a bound
};

class Engine {
 public:
  explicit Engine(EngineOptions options = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes `inputs` in order, all of them at or before `now`, and appends what to do to `out`. A
  // `now` before the last one counts as the last one. A step without inputs lets timers act. The
  // gate of an unknown client counts as open, as the shim's is at birth.
  void step(Instant now, std::span<const Input> inputs, std::vector<Output>& out);

  // After the last step, of at most `most_clients` clients from id `from` on. Only those cost time.
  EngineStatus status(ClientId from = {}, size_t most_clients = SIZE_MAX) const;
  std::string policy() const;  // EngineStatus::policy
  // What is worth keeping of this client's task, on the model of its first device. Nothing before
  // it has a device, or before anything of it was measured. Names of kernels are not known here.
  std::optional<TaskRecord> record(ClientId client) const;
  // The first of the clients that this client waits for on this device, or would wait for if it
  // were held (HeldStatus::by). This is the cheap part of `status`, for a recorder.
  std::optional<ClientId> waits_for(ClientId client, DeviceId device) const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace lull::engine
