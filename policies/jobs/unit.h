// What a job policy knows of a job, and of jobs that run together. Plain data of Cluster
// (cluster.h). Only Cluster changes it, except for the marks of a round (rounds.h) and of a trial
// (packing.h).
//
// A *unit* is what runs on a set of GPUs: one job, or several that are packed. A unit is placed,
// suspended and resumed as one. A GPU has at most one running unit.
#pragma once

#include <cstddef>
#include <vector>

#include "policies/jobs/job_policy.h"

namespace lull::jobs {

struct Unit;

// Iterations of each job that a comparison needs.
inline constexpr uint64_t kTrialIterations = 10;

// Rules for trying jobs together (packing.h) or at other places (arrange.h).
struct TrialRules {
  size_t most = 8;       // jobs on a GPU
  double margin = 0.05;  // by which it has to be better
  Duration patience{60'000'000'000};
};

// A job's iterations since its place, or the jobs beside it, last changed.
struct Pace {
  uint64_t iterations = 0;
  Duration time;
  void add(uint64_t count, Duration each);
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
  uint64_t iterations = 0;  // that were told of, in all
  Unit* unit = nullptr;
  double served_gpu_ns = 0;  // GPU time that it has had up to settle(); if packed, its share

  // Its pace alone on this many GPUs of a kind; null: not measured.
  const Pace* alone(GpuKind kind, size_t gpus) const;
  Pace& note_alone(GpuKind kind, size_t gpus);
  bool may_leave() const { return request.suspendable && movable; }  // at a person's command
  bool may_stop() const { return may_leave() && !pinned; }
  bool may_move() const { return may_stop() && request.migratable; }
  // Whether its pace alone is known on GPUs of any kind.
  bool profiled() const;
  // The best that it has made there; 0: not measured.
  double best_per_second(GpuKind kind, size_t gpus) const;
  // What its rate there is compared with; 0: nothing is known.
  double reference_per_second(GpuKind kind, size_t gpus) const;
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

// Where a GPU is in Cluster::slots(); of use within a policy only.
using GpuIndex = uint32_t;
using Places = std::vector<GpuIndex>;  // ascending

struct Unit {
  uint64_t id = 0;         // ascending in the order in which units were made
  std::vector<Job*> jobs;  // never empty
  Places gpus;             // where it runs, or ran last; empty: never placed
  bool running = false;
  bool held = false;     // suspended by the operator
  bool pinned = false;   // any of its jobs is: it stays where it is
  bool unasked = false;  // a job came onto its GPUs by itself: no decision has made this pack
  Places wanted;         // if pinned: where the operator wants it
  Instant since;         // running: from when; else: when it stopped (or arrived)
  Instant settled;       // until when its jobs are charged for what they had
  Duration move_cost;    // how long its GPUs did nothing when it last started
  // While the pack is on trial: who joined last, when, and the sum of rates before.
  std::vector<Job*> joined;
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
  bool of_one_importance() const;  // else some have come by themselves
  uint32_t size() const { return first().request.gpus; }
  // The multi-job that all of its jobs are of; 0: there is none.
  MultiJobId multi_job() const;
  size_t extra() const { return running && gpus.size() > size() ? gpus.size() - size() : 0; }
  // How long a turn of it lasts: moves take 1 % at most.
  Duration turn(Duration quantum) const;
  uint64_t least_iterations() const;  // of any of its jobs, since something last changed
  bool may_leave() const;             // all of its jobs may be suspended
  bool may_stop() const;              // ... and the operator has not pinned it
  bool may_move() const;
  bool started() const;  // any of its jobs has been placed before
  bool any_pinned() const;
  // The last of its jobs that `may` be stopped, or moved; null: none.
  Job* last_that(bool (Job::*may)() const) const;
};

}  // namespace lull::jobs
