// What the engine keeps of a client: its devices, streams, work in flight and waiting threads.
// Plain state with its bounds; engine.cc says what happens to it.
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

inline constexpr size_t kMaxHeads = 64;          // waiting threads of a client
inline constexpr size_t kMaxSeats = 16;          // devices of a client
// Of a client on a device; no driver queues so many. With the longest kernel there is, their sum
// still fits.
inline constexpr uint32_t kMaxUnits = 1U << 17;

// What is said of a launch: policies/prediction/predictor.h.
struct Prediction {
  Duration predicted;
  Duration expected;
  Duration gap{-1};
};

// A client on a device.
struct Seat {
  DeviceId device;
  // The policy's decision.
  Gate wanted = Gate::kOpen;
  Duration bound;
  bool any_length = true;
  // What is published. A gate is open at birth.
  Gate gate = Gate::kOpen;
  CreditLedger credit;   // stands where that is kCredit
  Instant opened_at;
  uint32_t marked_every = 0;  // one launch in so many is reported; 0: none
  uint32_t marked_from = 0;   // how many it had made when reports were last asked for
  Duration usual_launch;  // how long its last ones were expected to take; 0 without one

  uint32_t launches = 0;
  uint32_t units = 0;
  uint32_t done = 0;     // units; may wrap
  Duration in_flight;    // predicted, as the policy counts it
  Instant last_launch;
  Instant last_progress;  // reported
  Instant touched;        // when it last launched or had a unit complete
  Instant last_due;      // of untracked work, later by kept_off
  Duration kept_off;     // all that others have had of the device while untracked work was there
  Duration device_time;
  Instant settled_until;
  bool stuck = false;    // inversion rule: nothing of it moves
  uint8_t patience = 0;  // ... its time until then is doubled so often
  bool waits_for_lower = false;  // ... it did not go on in the longest time either
};

// A waiting thread that could have gone and did not: not believed again while it could go.
struct GivenUp {
  ThreadSlot thread;
  Ticket ticket;
};

struct Head {
  ThreadSlot thread;
  Ticket ticket;
  DeviceId device;
  StreamSlot stream;
  KernelId kernel;
  Prediction said;
  Duration charged;  // of credit, if it goes by that
  Instant since;
  Instant fits_at = kNever;  // since when the grant has had room for it, by our count
  bool released = false;
  Instant released_at;
};

// A kernel as this client was told about it.
struct KernelUse {
  TaskKernel* known = nullptr;  // null: beyond the task's bound
  Duration published;           // what its launch is charged in credit: the mean
  bool lets_by = false;         // others' work is done beside it, as far as reports tell
  bool is_measured() const { return known != nullptr && known->profile.count() > 0; }
};

// How far an order to stop has come:
//
//   kNone --JobStopped--> kAsked --least memory, or close_by--> kClosed --nothing in flight, or stand_by--> kStands
//     ^                     |                                     |                                          |
//     +----JobContinued-----+-------------------------------------+------------------------------------------+
//
//   kAsked   the job runs as ever
//   kClosed  its gates are closed; ranks behind the furthest catch up, and any rank where the work of another
//            hangs; policies know of no waiting thread of it
//   kStands  policies do not know it at all; a launch that passed its gate before that closed may still come: the
//            other ranks follow it
enum class Stop : uint8_t { kNone, kAsked, kClosed, kStands };

struct Job {
  std::vector<ClientId> members;  // ascending
  uint64_t arrival = 0;           // 0: not on any device yet
  bool closed = false;            // a rank is closed, so all are
  Stop stop = Stop::kNone;
  bool at_lowest = false;         // asked: a rank is where its iteration holds least memory
  Instant close_by = kNever;
  Instant stand_by = kNever;
  Instant closed_at{0};
  Instant continued_at{0};        // an iteration begun before then has stood still
  Instant caught_up_at{0};        // closed: a rank last went on because another's work hung
  bool is_stopped() const { return stop >= Stop::kClosed; }
  bool stands() const { return stop == Stop::kStands; }
};

struct Client {
  ClientId id;
  JobId job;
  Job* ranks = nullptr;  // what the engine keeps of it
  Priority own;
  Priority priority;  // the highest of the job's
  SlowdownBound bound;
  std::string task;
  TaskProfile* profile = nullptr;
  std::vector<std::unique_ptr<Seat>> seats;  // by device
  std::vector<Stream> streams;               // by slot
  uint64_t busy_streams = 0;                 // bit per slot with units
  std::vector<Head> heads;                   // by thread
  std::vector<GivenUp> given_up;             // a thread once; at most kMaxHeads
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

  // Whether `is` holds of the units of a stream that has some.
  template <typename Is>
  bool any_busy(Is is) const {
    for (uint64_t busy = busy_streams; busy != 0; busy &= busy - 1) {
      if (is(streams[static_cast<size_t>(__builtin_ctzll(busy))].units)) return true;
    }
    return false;
  }
  const Seat* seat(DeviceId device) const {
    for (const auto& s : seats) {
      if (s->device == device) return s.get();
    }
    return nullptr;
  }
  Seat* seat(DeviceId device) {
    return const_cast<Seat*>(static_cast<const Client*>(this)->seat(device));
  }
};

}  // namespace lull::engine
