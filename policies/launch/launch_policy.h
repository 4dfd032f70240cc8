// A launch policy decides, for one device, whose launch may go now.
//
// The engine makes one instance a device and calls `step` from its own thread, with what has
// happened since the last call. The policy appends decisions; it never calls back, never reads a
// clock, and keeps no state outside itself. What it says stands until it says otherwise. The engine
// checks every decision and replaces a policy that breaks a rule:
//   - decide only about clients that have joined and not left
//   - release only a launch that waits, once
//   - a credit bound is 0 .. kMaxCreditBound
//   - a timer lies after `now`
// A fresh instance that takes over from another is told the present state in the same events.
//
// Ties break by client id, then thread. Time is model time of the device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::policies {

inline constexpr Instant kLongAgo{INT64_MIN / 2};
inline constexpr Duration kMaxCreditBound{(int64_t{1} << 40) - 1};

// ---- events ---------------------------------------------------------------------------------
struct Joined {  // a client may launch on this device from now on; its gate is open
  ClientId client;
  JobId job;
  Priority priority;
  uint64_t arrival = 0;            // of its job, ascending over the whole node: one order everywhere
  Instant last_launch = kLongAgo;  // known when a policy takes over
  SlowdownBound bound = {};        // what it may lose to lower clients, if it states that itself
  bool has_peers = false;          // its job has other clients, here or on other devices: who holds one holds all
};
struct Left { ClientId client; };
struct Reprioritised { ClientId client; Priority priority; bool has_peers = false; };
// Where a launch stands in its client's own repetition (prediction/iteration_detector.h).
struct IterationPlace {
  bool in_step = false;     // the iteration is known, and the launch is where it should be
  bool started = false;     // an iteration begins with it
  uint32_t position = 0;    // 0 .. length - 1, in step only
  uint32_t length = 0;      // launches of an iteration; 0: not known
  uint64_t generation = 0;  // changes when positions get another meaning
};
// The engine's predictor says lengths and pauses (prediction/predictor.h). `predicted` is what
// others must be prepared for, rather too long than too short unless the predictor is `mean`.
// `expected` is the mean.
struct Submitted {  // a unit went to the driver; if a launch waited on `thread`, it was that unit
  ClientId client;
  ThreadSlot thread;
  KernelId kernel;
  Duration predicted;
  Duration gap{-1};  // pause of this client's task after this unit; < 0: not known
  Instant at;
  Duration expected = predicted;
  IterationPlace place = {};
  StreamSlot stream = {};
  bool copy = false;  // it occupies a copy engine, no multiprocessor
  Duration charged = expected;  // the credit that it cost
  Duration marker;  // what its progress marker costs the client; 0: it has none
};
struct Completed {  // `units` units of a client are done, or were cancelled
  ClientId client;
  uint32_t units = 0;
  Duration predicted;  // the sum of what was predicted for them at launch
  StreamSlot stream = {};  // that they were launched to
  bool reported = true;    // false: nobody reported them, but they are expected to be done by now
};
struct Waiting {  // a thread is held with this launch
  ClientId client;
  ThreadSlot thread;
  Ticket ticket;
  KernelId kernel;
  Duration predicted;
  Instant since;
  Duration expected = predicted;
  Duration charged = predicted;  // the credit that it needs
};
struct Synced {  // the host of the client has waited for all of its work on a stream, until `at`
  ClientId client;
  Instant at;
  StreamSlot stream = {};
};
struct Withdrawn { ClientId client; ThreadSlot thread; };  // its launch no longer waits
struct TimerDue {};

using Event =
    std::variant<Joined, Left, Reprioritised, Submitted, Completed, Waiting, Withdrawn, Synced,
                 TimerDue>;

// ---- decisions ------------------------------------------------------------------------------
struct Open { ClientId client; };
// Launches go as long as no more than `bound` of predicted time is in flight. `any_length`: one
// unit longer than the bound goes when nothing of the client is in flight; without it, such a unit
// waits for a ReleaseLaunch. The engine tops the credit up on completions.
struct Credit { ClientId client; Duration bound; bool any_length = true; };
struct Close { ClientId client; };
struct ReleaseLaunch {
  ClientId client;
  ThreadSlot thread;
  Ticket ticket;
};
// Call again at this instant at the latest, with TimerDue; replaces the previous. kNever: none.
struct WakeAt { Instant at; };

using Decision = std::variant<Open, Credit, Close, ReleaseLaunch, WakeAt>;

// For people: the longest unit of one client lately, and the longest time that another, more
// important one could wait at once. If the unit is longer, the two cannot share the device.
struct PairFigures { Duration longest; Duration slack; };

class LaunchPolicy {
 public:
  virtual ~LaunchPolicy() = default;
  virtual void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) = 0;
  // Asked for a status only. Nothing: not known, or this policy keeps no such figures.
  virtual std::optional<PairFigures> figures(ClientId /*high*/, ClientId /*low*/) const { return std::nullopt; }
  // How long a launch of this client is held at most, if the user's setting is `preset`.
  virtual Duration holds_for(ClientId /*client*/, Duration preset) const { return preset; }
  // Whether it counts how long single launches had the device. Then each launch is reported, also
  // where a client has many in flight.
  virtual bool counts_device_time() const { return false; }
};

}  // namespace lull::policies
