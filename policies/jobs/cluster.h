// What a job policy knows: GPUs, jobs, who runs where, what was measured. Pure.
//
// Owned by a policy. `apply` takes the events in; the other calls are decisions: each is appended
// to `out` and is a fact here from then on. Who has been decided about so is never asked for twice.
//
// A *unit* is what runs on a set of GPUs: one job, or several that are packed. A unit is placed,
// suspended and resumed as one. A GPU has at most one running unit.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "policies/jobs/job_policy.h"

namespace lull::jobs {

struct Unit;

// Iterations of each job that a comparison needs.
inline constexpr uint64_t kTrialIterations = 10;

// Of jobs that are tried together (packing.h) or elsewhere (arrange.h).
struct TrialRules {
  size_t most = 8;       // jobs on a GPU
  double margin = 0.05;  // by which it has to be better
  Duration patience{60'000'000'000};
};

// Iterations since who runs with the job, or where, last changed.
struct Pace {
  uint64_t iterations = 0;
  Duration time;
  bool known() const { return iterations > 0; }
  double per_second() const {
    return known() ? static_cast<double>(iterations) * 1e9 / static_cast<double>(time.ns) : 0;
  }
};

struct Job {
  JobRequest request;
  uint64_t arrival = 0;  // ascending in the order of arrivals
  Instant arrived;
  bool started = false;  // it has something to resume
  bool movable = true;
  bool pinned = false;          // by the operator
  uint64_t memory_bytes = 0;    // measured, else as asked for; 0: not known
  uint32_t busy_per_mille = 0;  // of its first GPU while it ran alone; 0: not known
  Pace pace;
  Unit* unit = nullptr;
  double served_gpu_ns = 0;  // GPU time that it has had; of a packed job its share. Up to settle()

  // Its pace alone on so many GPUs of a kind; null: not measured.
  const Pace* alone(GpuKind kind, size_t gpus) const;
  Pace& note_alone(GpuKind kind, size_t gpus);
  // Whether its pace alone is known on GPUs of any kind.
  bool profiled() const;
  // The best that it has made there; 0: not measured.
  double best_per_second(GpuKind kind, size_t gpus) const;
  void note_best(GpuKind kind, size_t gpus, double per_second);

 private:
  struct Alone {
    GpuKind kind;
    size_t gpus;
    Pace pace;
    double best_per_second = 0;
  };
  std::vector<Alone> alone_;
};

// Places of GPUs in the policy's view; of use within it only.
using GpuIndex = uint32_t;
using Places = std::vector<GpuIndex>;  // ascending

struct Unit {
  uint64_t id = 0;         // that of its first job's arrival: ascending, one of its own
  std::vector<Job*> jobs;  // never empty
  Places gpus;             // where it runs, or ran last; empty: never placed
  bool running = false;
  bool held = false;    // suspended by the operator
  bool pinned = false;  // any of its jobs is: it stays where it is
  Places wanted;        // of a pinned one: where the operator wants it
  Instant since;        // running: from when; else: when it stopped (or arrived)
  Instant settled;      // until when its jobs were charged for what they had
  Duration move_cost;   // what its GPUs lost when it last started
  // The pack that is being tried: who joined last, when, and the sum of rates before.
  Job* joined = nullptr;
  Instant joined_at;
  double sum_before = 0;

  // Of the round that is being decided (rounds.h).
  size_t rank = 0;
  bool displaced = false;
  bool claimed = false;
  Places target;
  Why start_why = Why::kNext;

  Job& first() const { return *jobs.front(); }
  Priority priority() const { return first().request.priority; }
  uint32_t size() const { return first().request.gpus; }
  size_t extra() const { return running && gpus.size() > size() ? gpus.size() - size() : 0; }
  uint64_t least_iterations() const;  // of any of its jobs, since something last changed
  bool may_stop() const;  // all of its jobs may be suspended, and the operator has not pinned it
  bool may_move() const;
  bool started() const;  // any of its jobs has been placed before
};

// One GPU.
struct Slot {
  Gpu gpu;
  bool present = true;
  uint32_t group = 0;
  Unit* unit = nullptr;   // that runs there
  Unit* claim = nullptr;  // of the round that is being decided
  bool extra = false;     // of its running unit's GPUs one that is on loan
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

  // Whether who should run where may be different now.
  bool apply(Instant now, const Event& event);

  // ---- what is -------------------------------------------------------------------------------
  std::vector<Slot>& slots() { return slots_; }
  const std::vector<Slot>& slots() const { return slots_; }
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Unit*>& units() const { return units_; }  // ascending by id
  Job* find(JobId job) const;
  uint32_t free_gpus() const { return free_gpus_; }
  GpuKind kind_of(const Unit& unit) const { return slots_[unit.gpus.front()].gpu.kind; }
  NodeId node_of(const Unit& unit) const { return slots_[unit.gpus.front()].gpu.node; }
  // What jobs of a unit need of each GPU together; none: one of them is not known.
  std::optional<uint64_t> memory_of(const Unit& unit) const;
  bool kind_will_do(const Unit& unit, const Group& group) const;
  // GPU time that the least served of its jobs has had.
  double served_gpu_ns(const Unit& unit, Instant now) const;
  // Its jobs' rates, each as a share of the best that it has made alone on such GPUs, summed; none
  // while one is not known.
  std::optional<double> sum_of_rates(const Unit& unit) const;
  // The same of all that run in two nodes; none while one has not done kTrialIterations.
  std::optional<double> sum_of_rates(NodeId a, NodeId b) const;

  // ---- decisions -----------------------------------------------------------------------------
  void start(Instant now, Unit& unit, Places gpus, Reason reason, Out& out);
  void stop(Instant now, Unit& unit, Reason reason, Out& out);
  void migrate(Instant now, Unit& unit, Places gpus, Reason reason, Out& out);
  // A unit of one job that runs: more or fewer GPUs.
  void resize(Instant now, Unit& unit, Places gpus, Reason reason, Out& out);
  // A single job joins a running unit there.
  void pack(Instant now, Unit& single, Unit& host, Reason reason, Out& out);
  // A packed job becomes a suspended unit of its own.
  Unit& unpack(Instant now, Job& job, Reason reason, Out& out);
  // A packed job goes on alone on free GPUs, in a unit of its own.
  Unit& part(Instant now, Job& job, Places gpus, Reason reason, Out& out);
  // A pack that does not run: each of its jobs waits for itself.
  void dissolve(Instant now, Unit& unit);
  // The operator's command; true where it changed something.
  bool obey(Instant now, const Command& command, Out& out);

  GpuSet devices(const Places& gpus) const;

 private:
  Unit& make_unit(Job& job, Instant now);
  void remove_unit(Unit& unit);
  Job* leave(Instant now, JobId id);  // the job without its unit
  Unit& split(Instant now, Job& job);
  void settle(Instant now, Unit& unit);
  void take(Unit& unit);
  void give(Unit& unit);
  void forget_pace(Unit& unit);
  void appear(const Gpu& gpu);
  void vanish(Instant now, DeviceId device);
  void stands(Instant now, const JobStands& event);
  bool iterations(const IterationsFinished& event);
  std::optional<GpuIndex> index_of(DeviceId device) const;
  Places places(const GpuSet& gpus) const;

  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  std::unordered_map<uint32_t, GpuIndex> index_;
  std::unordered_map<uint64_t, std::unique_ptr<Job>> jobs_;
  std::unordered_map<uint64_t, std::unique_ptr<Unit>> owned_;
  std::vector<Unit*> units_;
  uint64_t arrivals_ = 0;
  uint64_t made_units_ = 0;
  uint32_t free_gpus_ = 0;
};

}  // namespace lull::jobs
