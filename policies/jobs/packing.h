// Packs: which jobs are tried together on their GPUs, and which of them stay together. Measurements
// decide; nothing is assumed about how jobs slow each other. Pure; owned by `gandiva`.
//
// A pack's worth is the sum of its jobs' rates, each as a share of the job's best alone on such
// GPUs. Taking turns makes 1. A trial ends when each job has done kTrialIterations in it, or after
// `patience` if each has done at least one. The pack is kept if its worth has risen above 1, and
// above what it was without the new job, by the margin. Else the new job leaves, and the two are
// not tried again for kBadTurns turns, the next time for twice as many. A kept pack whose worth
// falls below 1 loses the job that joined last.
//
// Jobs of one multi-job are alike: what counts is how many are together. As many are tried at a
// time as fill the GPU by their use; as many stay as the sum of their rates, rounded up. While
// nobody waits, other arrangements of a node are tried: arrange.h.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "policies/jobs/arrange.h"
#include "policies/jobs/cluster.h"

namespace lull::jobs {

class Packing {
 public:
  explicit Packing(TrialRules rules) : rules_(rules) {}

  // Ends trials that have an answer, and packs that are no longer worth it, except those that an
  // arrangement keeps.
  void judge(Instant now, Cluster& cluster, const Arrange& arrange, Cluster::Out& out);
  // Waiting jobs of a multi-job join their siblings: as many as were faster together before, and
  // with `try_others` more on trial. Jobs that join are taken out of `waiting`.
  void join_siblings(Instant now, Cluster& cluster, std::vector<Unit*>& waiting, bool try_others,
                     Cluster::Out& out);
  // Somebody waits: the least busy jobs that wait are tried beside the least busy that run.
  // `waiting`: in the policy's order.
  void try_more(Instant now, Cluster& cluster, std::vector<Unit*> waiting, Cluster::Out& out);

 private:
  using Pair = std::pair<uint64_t, uint64_t>;
  static Pair pair_of(const Job& a, const Job& b);
  // `from`: the unit of the job, waiting or in a pack.
  bool may_join(Instant now, const Cluster& cluster, const Job& job, const Unit& from,
                const Unit& host) const;
  void note_bad(Instant now, Cluster& cluster, const Unit& unit, const Job& a, const Job& b);
  // Siblings have passed a trial: those that are not needed for the sum of their rates leave.
  void hold_enough(Instant now, Cluster& cluster, MultiJob& of, Unit& unit, double sum,
                   const std::vector<Job*>& joined, Cluster::Out& out);
  // What the two made together when they were measured; 0: never.
  double known_worth(const Job& job, const Unit& host) const;
  void tried(Instant now, Unit& host, Job& job, double before);
  void forget_the_gone(const Cluster& cluster);

  TrialRules rules_;
  // Two jobs that were slower together than by turns. They are tried again after a while, twice as
  // long each time: others beside them may have been the cause, and jobs change.
  struct Bad {
    Instant until;
    Duration next;
  };
  std::map<Pair, Bad> bad_;
  std::map<Pair, double> worth_;  // of two jobs together, as measured
};

}  // namespace lull::jobs
