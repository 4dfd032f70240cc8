// Where the node's jobs are, and who returns when: the state machine of suspension, resumption and
// migration, and the ledger of device memory that keeps two returns from racing for one byte.
//
//   requests, reports, JobStands -- now, inputs --> Moves::step -- outputs --> engine: stop, go on
//                                                                              clients: orders
//
// Called by one thread at a time. No clock, system call, log or randomness: the same inputs at the
// same instants give the same outputs. It does not publish, wait or write, and it believes a client
// about that client alone: what it claims can keep its own job from moving, and others from memory
// that it says to hold, as a program that really holds it would.
//
// A job, all of its ranks or none:
//
//   from         to           when
//   kRunning     kStopping    suspend or migrate is asked
//   kStopping    kSuspended   all gates are closed, level in place
//                kLeaving     all gates are closed, another level: orders out
//                kRunning     resume is asked, or a rank has said meanwhile that it cannot do that
//   kLeaving     kSuspended   every rank is out; a rank that was out refuses to go further
//                kReturning   a rank refuses, or resume is asked (kWaiting: not enough memory free)
//   kSuspended   kWaiting     resume or migrate is asked
//   kWaiting     kReturning   its memory is reserved: orders back
//   kReturning   kRunning     every rank is resident
//   kRunning     kWaiting     a rank is found not resident, its coordinator had gone: stopped now
//
//   A return that finds too little memory takes all ranks out again, and waits.
//
//   kLost                     every rank that still can is resident, one never comes back; shown in
//                             place of kRunning
//
//   migrate         leaves with everything given up and returns with pairs; the memory on the new
//                   GPUs is reserved before the job stops
//   a rank dies     the others are looked at as if it had never been
//   a rank returns by itself while the job is suspended: it is sent out again
//   a rank comes    to a job that is not running: its gates are closed, its memory stays
//   a rank answers no order: one that holds no memory is not waited for beyond kAnswersWithin; one
//                   that has not left counts as back
//   a rank has just come, and has not said what it can do: an order waits for that as it stops
//   what is asked   replaces what was asked before, in any state
//
// Memory of a GPU:
//
//   free = total - reserve
//          - sum over jobs of max(what its clients hold there, what it has a claim to)
//
// A job has a claim to what it held from the moment that it begins to leave until it is out, so
// that the way back is open; and to what it will hold from the moment that its return is let begin
// until it runs. Returns are let begin by priority, then by how long they have waited; one that
// finds too little keeps those behind it off the GPUs it waits for, unless it asks for more than
// there is.
#pragma once

#include <expected>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/moves/events.h"

namespace lull::moves {

// At the next iteration's lowest memory, or after so long.
inline constexpr Duration kIterationPatience{10'000'000'000};
// A stopped job's launched work completes within this; else the clients themselves wait for what is
// in flight.
inline constexpr Duration kStandsWithin{2'000'000'000};
// And where there are several ranks, those behind the furthest catch up, one launch at a time.
inline constexpr Duration kRanksStandWithin = kIterationPatience;
// The engine says that a job stands, or it does not know the job.
inline constexpr Duration kStandsAnyway{1'000'000'000};
// Submitted work completes within this, or the rank does not leave (lull_order.drain_ms).
inline constexpr Duration kDrainsWithin{10'000'000'000};
// A client of which nothing is heard for so long after an order, nor any progress of it, carries it
// out no more: its process is stopped, say. A checkpoint's longest silence, 32 GiB at 2 GB/s, is
// 17 s.
inline constexpr Duration kSilentAtMost{60'000'000'000};
// One that holds no memory has nothing to copy: it answers at once, or is not waited for.
inline constexpr Duration kAnswersWithin{10'000'000'000};
// Until then nobody is told that it is waited for.
inline constexpr Duration kWaitedForAfter{2'000'000'000};
// A client that can be moved has said what it can do this long after it came: its service thread
// looks for a coordinator once a second.
inline constexpr Duration kTellsWithin{5'000'000'000};
// After a return that found too little memory: others take it whom nobody knows. Doubled each time.
inline constexpr Duration kRetryAfter{500'000'000};
inline constexpr Duration kRetryAtMost{30'000'000'000};
inline constexpr size_t kMaxPairs = 16;  // GPUs in an order

struct JobStatus {
  JobId job;
  Priority priority;
  JobState state = JobState::kRunning;
  Level level = Level::kInPlace;  // of the suspension in force, or under way
  bool suspends = false;          // what it is on its way to: suspended, or running
  bool migrates = false;
  bool pinned = false;
  bool by_policy = false;
  uint64_t moving_bytes = 0;  // of all ranks that copy, or have done what they were ordered
  uint64_t moved_bytes = 0;
  uint64_t bytes_per_s = 0;  // of those that copy, since the first of them began
  std::string reason;        // why it is not as was asked, or what it falls back to
  std::string waits_for;
  std::vector<ClientId> clients;  // ascending
};

class Moves {
 public:
  explicit Moves(Settings settings = {});
  ~Moves();
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

  // Takes `inputs` in order, and appends what to do to `out`. A request to which there is an
  // objection, and what names somebody unknown, is dropped.
  void step(Instant now, std::span<const Input> inputs, std::vector<Output>& out);

  // Why this request would be dropped, and what would help: one line; nothing where it would not.
  std::optional<std::string> objection(const Input& request) const;

  std::vector<JobId> jobs() const;
  std::optional<JobStatus> status(JobId job) const;
  std::optional<JobId> job_of(ClientId client) const;
  // The job is on its way somewhere, or its clients' memory is not on the device.
  bool is_away(JobId job) const;
  // Somebody waits for memory that may come free without a word.
  bool waits_for_memory() const;
  // Its copies are under way.
  bool copies(ClientId client) const;
  uint64_t free_bytes(DeviceId device) const;
  NodeFacts facts() const;
  uint64_t dropped() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace lull::moves
