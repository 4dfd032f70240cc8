// What goes into Moves and what comes out (moves.h). Plain data: the daemon makes inputs from what
// clients report and what tools ask, and carries outputs out; the simulator may do the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "policies/jobs/node_facts.h"
#include "policies/vocabulary.h"

namespace lull::moves {

using jobs::At;
using jobs::JobFacts;
using jobs::JobOnDevice;
using jobs::JobState;
using jobs::Level;
using jobs::NodeFacts;

// Where a client's device memory is: lull_residence_state of coordinator/channel/layout.h.
enum class Residence : uint8_t {
  kResident,
  kDraining,
  kLeaving,
  kOut,
  kGivingUp,
  kGivenUp,
  kRestoring,
  kReturning,
  kLost,
};
// How an order has ended: lull_move_result.
enum class Result : uint8_t {
  kDone,
  kBusy,
  kNoHostMemory,
  kRefused,
  kNoDeviceMemory,
  kReplaced,
};
// Where it shall be: lull_target.
enum class Target : uint8_t { kResident, kOut, kGivenUp };

// Of a client on a device.
struct Share {
  DeviceId device;
  uint64_t used_bytes = 0;       // that the program holds, there or moved out
  uint64_t allowance_bytes = 0;  // of one that takes turns: what it has been given; else 0
  uint64_t wanted_bytes = 0;  // an allocation waits until it may hold so much in all; 0: none does
  uint64_t swappable_bytes = 0;  // that a way out frees, there or moved out
  uint64_t fixed_bytes = 0;      // that only a checkpoint frees
  auto operator<=>(const Share&) const = default;
};
// What a client says of itself. Whoever makes the input has brought sizes into range.
struct Report {
  Residence residence = Residence::kResident;
  uint32_t order = 0;  // number of the newest that has ended
  Result result = Result::kDone;
  bool can_swap = false;
  bool can_give_up = false;
  bool can_migrate = false;
  bool has_returned = false;  // by itself: the coordinator by whose order it was out has gone
  uint64_t moving_bytes = 0;  // of the move under way, or the last
  uint64_t moved_bytes = 0;
  std::vector<Share> devices;  // by device, each once
  std::string reason;          // of a result that is not kDone, or of a missing ability
  bool operator==(const Report&) const = default;
};

// ---- inputs -------------------------------------------------------------------------------------
struct ClientJoined {
  ClientId client;
  JobId job;
  Priority priority;
  bool takes_turns = false;
  bool movable = false;  // it was started as one that can be moved, and will say what it can do
};
struct ClientLeft {
  ClientId client;
};
struct ClientReported {
  ClientId client;
  Report report;
};
struct PriorityChanged {
  ClientId client;
  Priority priority;
};
// All the node's GPUs and what the driver says they hold, ascending; 0: not known. `whole`: no part
// of one (MIG), so that a program may be moved there.
struct NodeDevice {
  DeviceId device;
  uint64_t total_bytes = 0;
  bool whole = true;
};
struct DevicesKnown {
  std::vector<NodeDevice> devices;
};
struct Settings {
  uint64_t reserve_bytes = 0;  // of each GPU: left for programs that nobody knows of
  // Of a client's context on a GPU: about 450 MB on an H100 (docs/hardware).
  uint64_t context_bytes = 512ULL << 20;
};
// The engine says that all gates of the job are closed.
struct JobStands {
  JobId job;
  bool drained = true;
};

// Requests. By a policy: what a person has suspended, no policy resumes.
struct SuspendAsked {
  JobId job;
  std::optional<Level> level;  // nothing: out where the job's memory can be swapped, else in place
  At at = At::kIteration;
  bool by_policy = false;
};
struct ResumeAsked {
  JobId job;
  bool by_policy = false;
};
// The job's GPUs in ascending order move to these, one by one. What is suspended goes on there.
struct MigrateAsked {
  JobId job;
  std::vector<DeviceId> to;
  At at = At::kIteration;
  bool by_policy = false;
};
// Nobody moves a pinned job until it is pinned no more; what has begun goes on.
struct PinAsked {
  JobId job;
  bool pinned = true;
};

using Input = std::variant<ClientJoined, ClientLeft, ClientReported, PriorityChanged, DevicesKnown,
                           Settings, JobStands, SuspendAsked, ResumeAsked, MigrateAsked, PinAsked>;

// ---- outputs ------------------------------------------------------------------------------------
// For the engine (coordinator/engine/events.h).
struct StopJob {
  JobId job;
  Instant close_by;
  Instant stand_by;
};
struct ContinueJob {
  JobId job;
};
// For the client: its `number`-th order, counted as publish_order counts (2, 4, ...).
struct OrderClient {
  ClientId client;
  uint32_t number = 0;
  Target target = Target::kResident;
  std::vector<std::pair<DeviceId, DeviceId>>
      pairs;  // from, to: every GPU once on either side, or none
};
// Call step again at this instant at the latest; replaces the previous timer. kNever: none.
struct SetTimer {
  Instant at;
};
// One line for the log.
struct Notice {
  std::string text;
};

using Output = std::variant<StopJob, ContinueJob, OrderClient, SetTimer, Notice>;

}  // namespace lull::moves
