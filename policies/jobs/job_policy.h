// A job policy decides who lives on which GPU: where a job starts, who is suspended for whom, who
// shares a GPU, who moves.
//
// Whoever carries decisions out (a daemon for its node, the cluster simulator) makes one instance
// for all its GPUs and calls `step` from its own thread, with what has happened since the last
// call. The policy appends decisions; it never calls back, never reads a clock, and keeps no state
// outside itself. Decisions are targets: carrying one out takes time, and a job that is to run
// where another leaves waits until the other's memory has left. They apply in their order, and
// decision_check.h says which rules each must keep. A fresh instance that takes over from another
// is told the present state by JobArrived and JobStands.
//
//                 Place                      Suspend, Unpack
//   JobArrived -> queued -> running (alone) <-----------------> suspended
//                    \        |  ^  Migrate, Grow, Shrink       /
//                     \  Pack |  | (others left)        Resume / Pack
//                      +----> running (packed)  <-------------+
//   JobLost: back to queued.  JobFinished, JobFailed: gone.
//
// Ties break by job id, then device id. Time is that of the jobs' iterations.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "policies/jobs/vocabulary.h"

namespace lull::jobs {

// ---- events ---------------------------------------------------------------------------------
struct JobArrived {
  JobRequest request;
};
struct JobFinished {
  JobId job;
};
struct JobFailed {
  JobId job;
};  // it ended by a fault of its own
// A GPU or node under it has vanished. The job begins again from where it saved itself, and waits.
struct JobLost {
  JobId job;
};
// Where a job really is: told when a decision could not be carried out, and to a policy that takes
// over. `movable` false: the job cannot be moved at all.
struct JobStands {
  JobId job;
  bool running = false;
  GpuSet gpus;  // where it runs; of a suspended job: where it ran
  bool movable = true;
};
// The last `count` iterations took `each` in the mean. None of them saw a change of who runs on the
// job's GPUs or beside it.
struct IterationsFinished {
  JobId job;
  uint64_t count = 0;
  Duration each;
};
struct MemoryInUse {
  JobId job;
  uint64_t bytes = 0;
};  // the most on any of its GPUs until now
struct DeviceLoad {
  DeviceId device;
  uint32_t busy_per_mille = 0;
};
struct DeviceAppeared {
  Gpu gpu;
};
struct DeviceVanished {
  DeviceId device;
};  // JobLost follows for those who ran there
// A job that was placed, resumed, packed or migrated runs now; its GPUs did nothing for `took`.
struct MoveDone {
  JobId job;
  Duration took;
};
// A person's command. Suspend and migrate hold until resume or unpin. When a job gets another
// importance, what is known of it stays, but it may not share GPUs with jobs of the old importance.
struct Command {
  enum class Order : uint8_t { kSuspend, kResume, kPin, kUnpin, kMigrate, kResize, kPrioritise };
  JobId job;
  Order order = Order::kSuspend;
  GpuSet to;          // of kMigrate
  uint32_t gpus = 0;  // of kResize: the most an elastic job may have
  Priority priority;  // of kPrioritise
};
struct TimerDue {};

using Event = std::variant<JobArrived, JobFinished, JobFailed, JobLost, JobStands,
                           IterationsFinished, MemoryInUse, DeviceLoad, DeviceAppeared,
                           DeviceVanished, MoveDone, Command, TimerDue>;

// ---- decisions ------------------------------------------------------------------------------
struct Place {
  JobId job;
  GpuSet gpus;
};  // a queued job starts alone on free GPUs
struct Suspend {
  JobId job;
};  // its memory leaves its GPUs
struct Resume {
  JobId job;
  GpuSet gpus;
};  // a suspended job runs alone on free GPUs
// A job (queued, suspended or running elsewhere) runs beside those who have exactly these GPUs.
struct Pack {
  JobId job;
  GpuSet gpus;
};
struct Unpack {
  JobId job;
};  // it is suspended; the others of its pack go on
struct Migrate {
  JobId job;
  GpuSet gpus;
};  // a running job goes on alone on free GPUs
struct Grow {
  JobId job;
  GpuSet gpus;
};  // an elastic job: all its GPUs from now on
struct Shrink {
  JobId job;
  GpuSet gpus;
};
// Call again at this instant at the latest, with TimerDue; replaces the previous. kNever: none.
struct SetTimer {
  Instant at;
};

struct Decision {
  std::variant<Place, Suspend, Resume, Pack, Unpack, Migrate, Grow, Shrink, SetTimer> what;
  Reason reason = {};
};

// "resume job 4 on 2 3: its turn has come", as the log has it.
std::string text_of(const Decision& decision, const JobName& name_of = {});

class JobPolicy {
 public:
  virtual ~JobPolicy() = default;
  virtual void step(Instant now, std::span<const Event> events, std::vector<Decision>& out) = 0;
};

}  // namespace lull::jobs
