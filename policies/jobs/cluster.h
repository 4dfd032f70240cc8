// What a job policy knows: GPUs, jobs, who runs where, what was measured. Pure.
//
// Owned by a policy. `apply` takes the events in; the other calls are decisions: each is appended
// to `out` and is a fact here from then on. So nothing is decided twice.
//
//   cluster.cc             what is: GPUs, jobs, units; events
//   cluster_decisions.cc   what is decided
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "policies/jobs/multi_job.h"
#include "policies/jobs/unit.h"

namespace lull::jobs {

// One GPU.
struct Slot {
  Gpu gpu;
  bool present = true;
  uint32_t group = 0;
  Unit* unit = nullptr;   // that runs there
  Unit* claim = nullptr;  // that has claimed it in the round that is being decided
  bool extra = false;     // it is on loan to the unit that runs there
};

// The GPUs of one kind in one node.
struct Group {
  NodeId node;
  GpuKind kind;
  uint64_t memory_bytes = 0;  // of the smallest
  std::vector<GpuIndex> gpus;
  uint32_t present = 0;
  uint32_t free = 0;  // present, and nobody runs there
  // Of the round that is being decided.
  uint32_t unclaimed = 0;
  uint32_t open = 0;  // unclaimed, and free or with a displaced unit
};

class Cluster {
 public:
  using Out = std::vector<Decision>;

  // True: who should run where may have changed.
  bool apply(Instant now, const Event& event);

  // ---- what is -------------------------------------------------------------------------------
  std::vector<Slot>& slots() { return slots_; }
  const std::vector<Slot>& slots() const { return slots_; }
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Unit*>& units() const { return units_; }  // ascending by id
  Job* find(JobId job) const;
  uint32_t free_gpus() const { return free_gpus_; }
  uint32_t free_gpus(GpuKind kind) const {
    const auto found = free_of_kind_.find(kind);
    return found == free_of_kind_.end() ? 0 : found->second;
  }
  GpuKind kind_of(const Unit& unit) const { return slots_[unit.gpus.front()].gpu.kind; }
  NodeId node_of(const Unit& unit) const { return slots_[unit.gpus.front()].gpu.node; }
  // The memory that a unit's jobs need of each GPU together; nothing: not known of one of them.
  std::optional<uint64_t> memory_of(const Unit& unit) const;
  bool kind_will_do(const Unit& unit, const Group& group) const;
  // GPU time that a job has had; of a unit, its least served job.
  double served_gpu_ns(const Job& job, Instant now) const;
  double served_gpu_ns(const Unit& unit, Instant now) const;
  // The sum of its jobs' rates, each as a share of the job's best alone on such GPUs; nothing while
  // one is not known.
  std::optional<double> sum_of_rates(const Unit& unit) const;
  // The same of all that run in a node; nothing while one has done fewer iterations than this.
  std::optional<double> sum_of_rates(NodeId node, uint64_t iterations = kTrialIterations) const;
  // Null: it is of none.
  MultiJob* multi_job(const Job& job);
  MultiJob* multi_job(const Unit& unit);  // null: its jobs are not all of one
  // Gives jobs that were not measured what their multi-job lets expect of them.
  void expect_of_siblings();

  // ---- decisions -----------------------------------------------------------------------------
  void start(Instant now, Unit& unit, Places gpus, Reason reason, Out& out);
  void stop(Instant now, Unit& unit, Reason reason, Out& out);
  void migrate(Instant now, Unit& unit, Places gpus, Reason reason, Out& out);
  // A unit of one job that runs: more or fewer GPUs.
  void resize(Instant now, Unit& unit, Places gpus, Reason reason, Out& out);
  // A single job joins a running unit there.
  void pack(Instant now, Unit& single, Unit& host, Reason reason, Out& out);
  // A packed job, running or waiting, becomes a suspended unit of its own.
  Unit& unpack(Instant now, Job& job, Reason reason, Out& out);
  // A packed job goes on alone on free GPUs, in a unit of its own.
  Unit& part(Instant now, Job& job, Places gpus, Reason reason, Out& out);
  // A pack that does not run: each of its jobs waits in a unit of its own.
  void dissolve(Instant now, Unit& unit);
  // The operator's command; true where it changed something.
  bool obey(Instant now, const Command& command, Out& out);
  // Obeys earlier commands to migrate a packed job that could not be stopped then.
  void obey_wishes(Instant now, Out& out);

  GpuSet devices(const Places& gpus) const;

 private:
  Unit& make_unit(Job& job, Instant now);
  void remove_unit(Unit& unit);
  Job* leave(Instant now, JobId id);  // takes the job out of its unit
  void forget(const Job& job);
  Unit& split(Instant now, Job& job);
  void stopped(Instant now, Unit& unit);
  void settle(Instant now, Unit& unit);
  void take(Unit& unit);
  void give(Unit& unit);
  void take_out(Unit& pack, Job& job);
  void forget_pace(Unit& unit);
  void add_free(Group& group, int gpus);
  void appear(const Gpu& gpu);
  void vanish(Instant now, DeviceId device);
  void stands(Instant now, const JobStands& event);
  bool iterations(const IterationsFinished& event);
  std::optional<GpuIndex> index_of(DeviceId device) const;
  Places places(const GpuSet& gpus) const;

  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  std::map<NodeId, std::vector<uint32_t>> groups_of_;  // by node
  std::unordered_map<uint32_t, GpuIndex> index_;
  std::unordered_map<uint64_t, std::unique_ptr<Job>> jobs_;
  std::map<MultiJobId, MultiJob> multi_jobs_;
  std::unordered_map<uint64_t, std::unique_ptr<Unit>> owned_;
  std::vector<Unit*> units_;
  std::vector<Command> wishes_;  // of obey_wishes; one a job
  uint64_t arrivals_ = 0;
  uint64_t made_units_ = 0;
  uint32_t free_gpus_ = 0;
  std::map<GpuKind, uint32_t> free_of_kind_;
};

}  // namespace lull::jobs
