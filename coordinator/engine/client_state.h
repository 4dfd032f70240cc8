// What the engine knows of a client: its devices, streams, work in flight and waiting threads.
// Plain state with its bounds; core.h lists the sources that change it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/engine/credit_ledger.h"
#include "coordinator/engine/events.h"
#include "coordinator/engine/flight.h"
#include "coordinator/engine/learned_launches.h"
#include "coordinator/engine/task_memory.h"
#include "policies/vocabulary.h"

namespace lull::engine {

inline constexpr size_t kMaxPending = 64;  // waiting threads of a client
inline constexpr size_t kMaxUsages = 16;   // devices of a client
// Units of a client in flight on a device; no driver queues more. The sum of their lengths fits 63
// bits even if each has the longest length there is (2^40 ns).
inline constexpr uint32_t kMaxUnits = 1U << 17;

// What the predictor says of a launch (policies/prediction/predictor.h).
struct Prediction {
  Duration predicted;
  Duration expected;
  Duration gap{-1};
};

// A client on a device.
struct DeviceUsage {
  DeviceId device;
  // The policy's decision.
  Gate wanted = Gate::kOpen;
  Duration bound;
  bool any_length = true;
  // What is published. A gate is open at birth.
  Gate gate = Gate::kOpen;
  CreditLedger credit;   // in use while `gate` is kCredit
  Instant opened_at;
  uint32_t marked_every = 0;  // the device reports one launch in this many; 0: none
  uint32_t marked_from = 0;   // `launches` when reports were last switched on
  Duration usual_launch;  // the expected length of a launch, smoothed; 0: no launch yet

  uint32_t launches = 0;
  uint32_t units = 0;
  uint32_t done = 0;     // units; may wrap
  Duration in_flight;    // predicted, as the policy counts it
  Instant last_launch;
  Instant last_progress;  // reported
  Instant touched;        // when it last launched or had a unit complete
  Instant last_due;      // when all its work is expected to be done; kept_off comes on top
  Duration kept_off;     // device time that others had while work of this client was there, in all
  Duration device_time;
  Instant settled_until;
  bool stuck = false;    // inversion rule: its work makes no progress
  uint8_t patience = 0;  // ... the time until it counts as stuck is doubled this many times
  bool waits_for_lower = false;  // ... it did not go on within the longest time either
};

// A waiting thread that could have gone and did not. While it may go, the same ticket is not
// believed again.
struct GivenUp {
  ThreadSlot thread;
  Ticket ticket;
};

struct PendingLaunch {
  ThreadSlot thread;
  Ticket ticket;
  DeviceId device;
  StreamSlot stream;
  KernelId kernel;
  Prediction said;
  Duration charged;  // credit that the launch costs, if it goes on credit
  Instant since;
  Instant fits_at = kNever;  // since when the grant has had room for it, by the engine's count
  bool released = false;
  Instant released_at;
};

// A kernel as this client was told about it.
struct KernelUse {
  TaskKernel* known = nullptr;  // null: the task has no room for it
  Duration published;           // what its launch is charged in credit: the mean
  bool lets_by = false;         // other clients' work runs beside it, as far as reports tell
  bool is_measured() const { return known != nullptr && known->profile.count() > 0; }
};

// How far an order to stop has come:
//
//   kNone --JobStopped--> kAsked --least memory, or close_by--> kClosed --nothing in flight, or stand_by--> kStands
//     ^                     |                                     |                                          |
//     +----JobContinued-----+-------------------------------------+------------------------------------------+
//
//   kAsked   the job runs as ever
//   kClosed  its gates are closed. Ranks behind the furthest rank catch up; where the work of one rank hangs,
//            others go on, too. Policies know of none of its waiting threads
//   kStands  policies do not know the job at all. A launch that passed its gate before the gate closed may still
//            come: then the other ranks catch up with that one
enum class Stop : uint8_t { kNone, kAsked, kClosed, kStands };

struct Job {
  std::vector<ClientId> members;  // ascending
  uint64_t arrival = 0;           // 0: not on any device yet
  bool closed = false;            // a rank is closed, so all are
  Stop stop = Stop::kNone;
  bool at_lowest = false;         // kAsked: a rank is where its iteration holds least memory
  Instant close_by = kNever;
  Instant stand_by = kNever;
  Instant closed_at{0};
  Instant continued_at{0};        // an iteration that began before this has stood still
  Instant caught_up_at{0};        // when a rank was last let go on because another's work hung
  bool is_stopped() const { return stop >= Stop::kClosed; }
  bool stands() const { return stop == Stop::kStands; }
};

struct Client {
  ClientId id;
  JobId job;
  Job* ranks = nullptr;  // what the engine knows of that job
  Priority own;
  Priority priority;  // the highest of its job's ranks
  bool has_peers = false;  // its job has other ranks
  SlowdownBound bound;
  std::string task;
  TaskProfile* profile = nullptr;
  std::vector<std::unique_ptr<DeviceUsage>> usages;  // by device
  std::vector<Stream> streams;               // by slot
  uint64_t busy_streams = 0;                 // bit per slot with units
  std::vector<PendingLaunch> pending;        // by thread
  std::vector<GivenUp> given_up;             // one entry a thread; at most kMaxPending
  std::unordered_map<KernelId, KernelUse, KernelHash> kernels;
  LearnedLaunches learned;
  std::string model;  // of the first device
  Instant attached;
  uint64_t launches = 0;
  bool counted = true;  // `launches` are all it has ever made
  uint64_t floor_grants = 0;
  Instant last_floor;
  Instant wake = kNever;
  bool dirty = false;
  bool inversion_told = false;

  // Whether `is` is true of the units of any stream that has units.
  template <typename Is>
  bool any_busy(Is is) const {
    for (uint64_t busy = busy_streams; busy != 0; busy &= busy - 1) {
      if (is(streams[static_cast<size_t>(__builtin_ctzll(busy))].units)) return true;
    }
    return false;
  }
  const DeviceUsage* usage(DeviceId device) const {
    for (const auto& s : usages) {
      if (s->device == device) return s.get();
    }
    return nullptr;
  }
  DeviceUsage* usage(DeviceId device) {
    return const_cast<DeviceUsage*>(static_cast<const Client*>(this)->usage(device));
  }
};

}  // namespace lull::engine
