// Whether a job policy keeps the rules. It stands outside the policy, has a table of its own, and
// is told the same events and every decision; whoever carries decisions out asks it first. Pure.
//
// Each decision, in the order in which they were made:
//   - is about a job that has arrived and not gone, in the state that it needs (job_policy.h)
//   - names GPUs that are there, each once, as many as the job asked for (elastic: up to its most),
//     of one kind, of a kind that will do, in one node if the job fits into one
//   - puts nobody on a GPU where somebody runs, except by Pack: beside jobs that have exactly these
//     GPUs and the same importance
//   - puts no more on a GPU than its memory holds; a job that shares has said what it needs
//   - moves no job that cannot be moved, and a job that the operator has pinned only to where the
//     operator wants it; runs none that the operator has suspended
// At the end of a step:
//   - a job whose importance has changed shares GPUs with no job of another, if either can go
//   - no GPU's memory is exceeded by what its jobs have been seen to use, if one of them can go
//   - importance comes first: a policy that preempts leaves no job waiting that would fit where
//     GPUs are free, on loan, or with less important jobs; another policy starts no job on GPUs
//     that a more important waiting job could have had
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "policies/jobs/job_policy.h"

namespace lull::jobs {

class DecisionCheck {
 public:
  explicit DecisionCheck(bool preemptive) : preemptive_(preemptive) {}

  // Takes events in, then decisions; returns the first rule that was broken, in one line. The table
  // then stands as the decisions up to there leave it.
  std::optional<std::string> step(std::span<const Event> events,
                                  std::span<const Decision> decisions);

  // Jobs that have arrived and not gone, by state, without those that the operator has suspended.
  size_t running() const { return running_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  enum class State : uint8_t { kQueued, kRunning, kSuspended };
  struct Job {
    JobRequest request;
    State state = State::kQueued;
    GpuSet gpus;
    uint64_t memory_bytes = 0;
    bool held = false, pinned = false, movable = true;
    GpuSet wanted;  // if pinned: where the operator wants it; empty: where it is
    bool stays() const { return !request.suspendable || pinned || !movable; }
  };
  // What a GPU counts as in its group. Its level is that of the most important job there; it stays
  // if any job there cannot be stopped.
  enum class Use : uint8_t { kFree, kOnLoan, kGivesWay, kStays };
  struct Device {
    Gpu gpu;
    bool present = false;
    uint32_t group = 0;
    std::vector<JobId> jobs;  // that run there
    Use use = Use::kFree;
    size_t level = 0;
  };
  static constexpr size_t kLevels = 10;
  struct Group {
    NodeId node;
    GpuKind kind;
    uint64_t memory_bytes = 0;
    uint32_t size = 0, present = 0, free = 0, on_loan = 0;
    std::array<uint32_t, kLevels> by_level{};  // GPUs that jobs of a level have and would give up
    std::array<uint32_t, kLevels> staying{};   // ... and would not
  };
  using Broken = std::optional<std::string>;

  void event(const Event& event);
  void command(const Command& command);
  void leave(JobId id);
  Broken decide(const Decision& decision);
  Broken go(JobId id, const GpuSet& gpus, bool packed, const char* what);
  Broken fits(const Job& job, const GpuSet& gpus) const;
  Broken memory_holds(const Job& job) const;
  bool goes_anywhere(const Job& job) const;
  Broken importance(const std::vector<JobId>& started);
  void run(Job& job, const GpuSet& gpus);
  void stop(Job& job, State state);
  uint32_t& counter(const Device& device);
  void recount(const GpuSet& gpus);
  Job* find(JobId id);

  bool preemptive_;
  std::unordered_map<uint32_t, Device> devices_;
  std::vector<Group> groups_;
  std::unordered_map<uint64_t, Job> jobs_;
  std::set<JobId> waiting_;         // queued or suspended, not by the operator
  std::set<JobId> grown_;           // whose memory use grew in this step
  std::vector<JobId> prioritised_;  // whose importance changed in this step
  size_t running_ = 0;
  uint32_t largest_ = 0;
};

}  // namespace lull::jobs
