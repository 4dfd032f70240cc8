// What goes into the engine and what comes out: `step(now, inputs) -> outputs` (engine.h).
//
// The daemon makes inputs from the channel and carries outputs out; the simulator does the same
// with a device model in place of the channel. Both are plain data, so a log of inputs replays.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::engine {

// ---- inputs ---------------------------------------------------------------------------------
struct ClientAttached {
  ClientId client;
  JobId job;            // unique for a client without a job name
  Priority priority;
  std::string task;     // task key: profiles are remembered under it
  SlowdownBound bound = {};  // what it may lose to lower clients; not set: the policy's setting
  bool counted = true;       // the engine is told every launch that it has ever made
};
struct ClientDetached { ClientId client; };
// The client may launch on this device from now on. `model` names the kind of GPU: what is learnt
// on one kind is kept apart from what is learnt on another. Empty: not told apart.
struct DeviceUsed { ClientId client; DeviceId device; std::string model = {}; };
// What an earlier run learnt of this client's kernels, as text (task_record.h), for the client's
// first device, which it uses already. A kernel that was measured as often since is not changed.
struct TaskRecalled { ClientId client; std::string record; };
struct PriorityChanged { ClientId client; Priority priority; };
// Text "name" or "name key=value key=value"; the engine checks it (policies::parse_policy).
struct PolicyChanged { std::string policy; };

// A unit (kernel, graph, copy) has gone to the driver.
struct Launched {
  ClientId client; DeviceId device; StreamSlot stream;
  uint64_t sequence = 0;   // per (client, stream), ascending
  KernelId kernel;
  Instant at;              // when the call was made
  bool tracked = true;     // the device will report this sequence number
  Ticket ticket;           // if it was held; 0: it went through an open gate or on credit
  ThreadSlot thread;
  // Credit that was spent on it; < 0: not known, then what was published (Predict) counts.
  // Read-backs, which no gate holds, and released launches spend none.
  Duration charged{-1};
  uint64_t memory_bytes = 0;  // what the client held on the device then
  bool copy = false;          // it occupies a copy engine, no multiprocessor
};
// A thread waits at the gate with this launch.
struct Held {
  ClientId client; DeviceId device; ThreadSlot thread; StreamSlot stream;
  Ticket ticket; KernelId kernel; Instant at;
};
// The engine was never told of `count` launches of the client.
struct LaunchesMissed { ClientId client; uint64_t count = 0; };
struct Cancelled { ClientId client; StreamSlot stream; uint64_t sequence = 0; };
// Everything up to `sequence` on this stream has completed.
// `synced`: when the host saw it, on return from a synchronising call; kNever: the device said it.
struct Progressed {
  ClientId client; StreamSlot stream; uint64_t sequence = 0; Instant synced = kNever;
};
// A measured duration, and the gap until the client's next unit started where known (else < 0).
// `launched`: when the measured launch was made; kNever: not known, counts as undisturbed.
// `sequence`: of the measured launch, on `stream`; 0: not known.
struct Timed {
  ClientId client; KernelId kernel; Duration duration; Duration gap{-1}; Instant launched = kNever;
  StreamSlot stream = {}; uint64_t sequence = 0;
};
// `now` has reached what the last SetTimer asked for. (step with no inputs means the same.)
struct TimerFired {};

// An order: the job's ranks stop. Their gates close when a rank is where its iteration holds least
// memory, at once if no rank has completed an iteration, and by `close_by` at the latest, whatever
// a policy or another rule says. `JobStands` follows, by `stand_by` at the latest. A second order
// only brings both instants forward.
struct JobStopped { JobId job; Instant close_by; Instant stand_by; };
// The job goes on. If it stood, policies see its ranks as if they had just come.
struct JobContinued { JobId job; };
// The client no longer launches on this device: it has moved to another (DeviceUsed).
struct DeviceLeft { ClientId client; DeviceId device; };

using Input = std::variant<ClientAttached, ClientDetached, DeviceUsed, PriorityChanged,
                           PolicyChanged, Launched, Held, Cancelled, Progressed, Timed, TimerFired,
                           TaskRecalled, JobStopped, JobContinued, DeviceLeft,
                           LaunchesMissed>;

// ---- outputs --------------------------------------------------------------------------------
enum class Gate : uint8_t { kOpen, kCredit, kClosed };
// Publish the gate of a client on a device. `granted` (credit only) is the total of the epoch;
// `new_epoch` voids what was granted before.
struct SetGate { ClientId client; DeviceId device; Gate gate; Duration granted; bool new_epoch; };
// Let one held launch go, whatever the gate says.
struct Release { ClientId client; ThreadSlot thread; Ticket ticket; };
// The device must report one launch in `every` on each stream of this client, by a marker. A report
// stands for the launches before it, too. 0: none.
struct SetProgress { ClientId client; DeviceId device; uint32_t every; };
// What a launch of this kernel by this client costs in credit.
struct Predict { ClientId client; KernelId kernel; Duration length; };
// Call step again at this instant at the latest; replaces the previous timer. kNever: none.
struct SetTimer { Instant at; };
// One line for the log and `status`: a policy broke a rule and was replaced, a watchdog acted.
struct Notice { std::string text; };
// All gates of a stopped job are closed, and nothing that its ranks launched is in flight (`drained`), or
// `stand_by` has passed. Once for each JobStopped.
struct JobStands { JobId job; bool drained; };

using Output = std::variant<SetGate, Release, SetProgress, Predict, SetTimer, Notice, JobStands>;

}  // namespace lull::engine
