// The node and its jobs as coordinator/moves sees them. That checks each decision as it checks a
// person's request, and carries it out. Pure.
//
//   coordinator/moves --- NodeFacts ---> turns                --- TurnDecision --> coordinator/moves
//                     --- NodeFacts ---> coordinator/jobs     --- orders -------> coordinator/moves
//
// The policies of job_policy.h speak of GPUs, requests and reasons instead (vocabulary.h), and their
// decisions are targets; coordinator/jobs translates.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "policies/vocabulary.h"

namespace lull::jobs {

// Of a job, all of its ranks together (coordinator/moves/moves.h draws the transitions).
enum class JobState : uint8_t {
  kRunning,
  kStopping,  // its ranks come to a stop
  kLeaving,   // its device memory is on its way out
  kSuspended,
  kWaiting,  // for device memory, to return
  kReturning,
  kLost,  // a rank's context could not be restored
};

// How much of the GPU a suspended job gives back.
enum class Level : uint8_t {
  kInPlace,  // nothing: it launches no more
  kOut,      // the memory that can be swapped
  kGivenUp,  // everything, its contexts too
};

enum class At : uint8_t {
  kIteration,  // where the iteration holds least memory, within a bound of time
  kNow,
};

struct DeviceFacts {
  DeviceId device;
  uint64_t total_bytes = 0;  // that jobs may hold; 0: not known
  uint64_t free_bytes = 0;   // neither held nor reserved for a return
};

struct JobOnDevice {
  DeviceId device;
  uint64_t used_bytes = 0;   // there or moved out
  uint64_t frees_bytes = 0;  // what going out would free
  uint64_t needs_bytes = 0;  // what it needs to return, or needs more for an allocation that waits
};

struct JobFacts {
  JobId job;
  Priority priority;
  JobState state = JobState::kRunning;
  bool takes_turns = false;  // lull run --oversubscribe
  bool movable = false;      // its memory can be swapped out, and nobody has pinned it
  bool migratable = false;   // and it can go to other GPUs
  bool untold = false;       // a rank has just come, and has not said what it can do
  bool pinned = false;       // nobody moves it
  bool suspends = false;     // it is suspended, or being so
  bool migrates = false;     // it is on its way to other GPUs
  bool by_policy = false;    // suspended, or being so, by a policy: a policy may resume it
  Instant since;             // in this state
  std::vector<JobOnDevice> devices;  // by device
};

struct NodeFacts {
  std::vector<DeviceFacts> devices;  // by device
  std::vector<JobFacts> jobs;        // by job
};

struct EndTurn {
  JobId job;
  Level level = Level::kOut;
  At at = At::kIteration;
  auto operator<=>(const EndTurn&) const = default;
};
struct BeginTurn {
  JobId job;
  auto operator<=>(const BeginTurn&) const = default;
};
using TurnDecision = std::variant<EndTurn, BeginTurn>;

}  // namespace lull::jobs
