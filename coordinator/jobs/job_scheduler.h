// Which job of this node runs where: gives the node's job policy what it wants to know, checks what
// it decides, and brings each job to where it shall be, one order after another.
//
//   facts, iterations, loads, a person's orders -- now --> JobScheduler::step -- orders --> moves
//
// Called by one thread at a time, some times a second while there are jobs. No clock, system call,
// log or randomness. It believes coordinator/moves about where jobs are.
//
// A job, as the policy is told of it:
//
//   it uses a GPU and has said what it can do    JobArrived; one that can be moved stands suspended
//                                                where it is, and has a place when the policy says
//                                                so; one that cannot is told to run there
//   it uses another number of GPUs               gone, and arrived again
//   it could not be moved when it arrived, and   gone, and arrived again
//   can be now
//   its importance changes                       Command, or gone and arrived where it cannot be
//                                                moved
//   an order is refused, or comes to nothing     JobStands where it is; not movable for kRefusedFor
//   a person suspends, resumes, migrates, pins   Command; JobStands where one has moved it that the
//                                                policy takes to be immovable
//
// An elastic job is never suspended: it runs where its launcher starts it, on `least` GPUs of its
// own and the others on loan. Grow and Shrink become another number, which its launcher follows by
// ending processes and starting others: the job is taken to go on meanwhile, for kFollowsWithin.
//
// Jobs that take turns (`lull run --oversubscribe`) are left to policies/jobs/turns.h: they count
// as jobs that cannot be moved.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "policies/jobs/decision_check.h"
#include "policies/jobs/node_facts.h"
#include "policies/jobs/registry.h"

namespace lull::scheduling {

using jobs::JobFacts;
using jobs::JobState;
using jobs::NodeFacts;

// A job whose move was refused is taken to be immovable for so long.
inline constexpr Duration kRefusedFor{60'000'000'000};
// Iterations are told of once they have been counted for so long: looks are some milliseconds
// apart.
inline constexpr Duration kCountFor{1'000'000'000};
inline constexpr size_t kDecisionsKept = 100;
// An elastic job that has not followed its number by then is told to stand where it is.
inline constexpr Duration kFollowsWithin{60'000'000'000};

// What the engine knows beside the facts of coordinator/moves.
struct JobPace {
  JobId job;
  uint64_t iterations = 0;  // completed, of its slowest rank; 0: none is known
};
// What is known of a job by its name. Absent: nothing.
struct JobNature {
  JobId job;
  std::string name;  // in decisions; empty: its number
  jobs::MultiJobId multi_job;
  // Of an elastic job: the GPUs that it may have, and the number that its launcher is told.
  uint32_t least_gpus = 0;
  uint32_t most_gpus = 0;  // 0: it is not elastic
  uint32_t told_gpus = 0;
};
struct DeviceUse {
  DeviceId device;
  std::string model;
  Duration busy;  // device time that clients have had, since ever
};
struct NodeView {
  NodeFacts facts;
  std::vector<JobPace> paces;      // by job
  std::vector<JobNature> natures;  // by job
  std::vector<DeviceUse> devices;  // by device
};

struct SuspendJob {
  JobId job;
  auto operator<=>(const SuspendJob&) const = default;
};
struct ResumeJob {
  JobId job;
  auto operator<=>(const ResumeJob&) const = default;
};
struct MigrateJob {
  JobId job;
  jobs::GpuSet to;
  auto operator<=>(const MigrateJob&) const = default;
};
// The number of an elastic job.
struct ResizeJob {
  JobId job;
  uint32_t gpus = 0;
  auto operator<=>(const ResizeJob&) const = default;
};
using JobOrder = std::variant<SuspendJob, ResumeJob, MigrateJob, ResizeJob>;

// One decision of the policy, for `lull status` and the log.
struct DecisionMade {
  Instant at;
  JobId job;
  std::string text;  // "resume job train on 2: it is next"
};

class JobScheduler {
 public:
  explicit JobScheduler(jobs::JobPolicyChoice choice);

  const std::string& policy() const { return choice_.text; }

  // Appends what to ask of moves.
  void step(Instant now, const NodeView& view, std::span<const jobs::Command> commands,
            std::vector<JobOrder>& out);
  // Moves objects to the order that the last step gave for this job.
  void refused(Instant now, JobId job);
  // The orders that let everybody go on whom this policy has suspended, for when it ends.
  std::vector<JobOrder> let_go(const NodeFacts& facts) const;

  // The last kDecisionsKept, oldest first.
  const std::deque<DecisionMade>& decisions() const { return decisions_; }
  // The last one about this job; empty: none.
  std::string last_decision(JobId job) const;
  // Why this job is not running, where the policy is why; empty: it is not.
  std::string why_not_running(JobId job) const;
  // Whether the policy decides how many GPUs an elastic job has.
  bool sizes_jobs() const { return choice_.row->sizes_jobs; }
  // The rule that the policy has broken; it is asked no more then. Empty: none.
  const std::string& broken_rule() const { return broken_; }

 private:
  struct Resident {
    Priority priority;
    jobs::GpuSet gpus;                   // as the policy was told that it uses them
    bool movable = true;                 // as the policy was told
    bool able = true;                    // ... when it arrived
    bool held = false;                   // a person has suspended it, as the policy was told
    std::optional<jobs::GpuSet> target;  // nothing: it shall not run
    bool on_the_way = false;             // to its target, where it shall run
    Instant sent;                        // since when
    std::optional<JobOrder> order;       // the last, until it has come to something
    Instant refused_until{0};
    uint64_t memory_bytes = 0;
    JobNature nature;
    Instant resized = kNever;  // another number was told then, and it has not followed yet
    bool elastic() const { return nature.most_gpus > 0; }
    // Iterations counted from here, when one had just ended.
    uint64_t counted = 0;
    Instant counted_at = kNever;
    std::string decision;
  };

  void look_at_devices(Instant now, const NodeView& view);
  void look_at_jobs(Instant now, const NodeView& view);
  bool is_gone(Instant now, const NodeView& view, JobId id, Resident& job);
  void note(const jobs::Command& command);
  void arrive(const JobFacts& job, const jobs::GpuSet& gpus, const JobNature& nature);
  void vacate(JobId id, const jobs::GpuSet& gpus);
  void look_at_size(Instant now, const JobFacts& facts, Resident& job);
  void stand_where_it_is(const JobFacts& facts, Resident& job, bool movable);
  void look_at_pace(Instant now, const NodeView& view);
  void ask_policy(Instant now);
  void set_target(Instant now, const jobs::Decision& decision);
  void stand(const JobFacts& facts, Resident& job, bool movable);
  void refuse(Instant now, const JobFacts& facts, Resident& job);
  void bring(Instant now, const NodeView& view, std::vector<JobOrder>& out);
  bool is_free_for(const NodeView& view, JobId job, const jobs::GpuSet& gpus) const;
  void count_anew(const jobs::GpuSet& gpus, const NodeView& view);

  jobs::JobPolicyChoice choice_;
  std::unique_ptr<jobs::JobPolicy> policy_;
  jobs::DecisionCheck check_;
  std::string broken_;
  std::map<JobId, Resident> residents_;
  std::map<DeviceId, DeviceUse> devices_;  // as the policy was told, and their use then
  std::vector<std::string> models_;        // by GpuKind
  Instant loads_at_{0};
  std::vector<jobs::Event> events_;
  Instant timer_ = kNever;
  std::deque<DecisionMade> decisions_;
  NodeFacts last_;
};

}  // namespace lull::scheduling
