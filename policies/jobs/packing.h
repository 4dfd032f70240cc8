// Packs: which jobs are tried together on their GPUs, and which of them stay together. By trial
// and measurement; nothing is assumed about how jobs slow each other. Pure; owned by `gandiva`.
//
// A pack's worth is the sum of its jobs' rates, each as a share of the best that the job has made
// alone on such GPUs. Taking turns makes 1. A trial ends when each job has done kTrialIterations in
// it, or after `patience` with at least one: the pack is kept if its worth has risen above 1, and
// above what it was without the new job, by the margin; else the new job leaves, and the two are
// not tried again. A kept pack whose worth falls below 1 loses the job that joined last.
//
// While nobody waits, one job at a time is tried in another pack. That is judged by the sum of all
// rates in the nodes concerned, for jobs slow each other beyond their own GPUs; a job that makes it
// no better goes back.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "policies/jobs/cluster.h"

namespace lull::jobs {

class Packing {
 public:
  struct Rules {
    size_t most = 8;  // jobs on a GPU
    double margin = 0.05;
    Duration patience{60'000'000'000};
  };
  explicit Packing(Rules rules) : rules_(rules) {}

  // Ends trials that have an answer, and packs that are no longer worth it or do not fit.
  void judge(Instant now, Cluster& cluster, Cluster::Out& out);
  // Somebody waits: the least busy of those who wait are tried beside the least busy that run.
  void try_more(Instant now, Cluster& cluster, std::span<Unit* const> waiting, Cluster::Out& out);
  // Nobody waits, and all that run are measured: a job of the pack that is worth least, for its
  // number of jobs, is tried elsewhere. Each such move once, until a job arrives or goes.
  // False: there is nothing to try, and no trial is on.
  bool try_other(Instant now, Cluster& cluster, Cluster::Out& out);

 private:
  using Pair = std::pair<uint64_t, uint64_t>;
  // A job that is tried elsewhere, and where it goes back to.
  struct Move {
    JobId job;
    uint64_t home = 0;  // a unit's id
    NodeId from, to;
    double sum_before = 0;
    Instant since;
  };
  static Pair pair_of(const Job& a, const Job& b);
  // `from`: the unit of the job, waiting or in a pack.
  bool may_join(const Cluster& cluster, const Job& job, const Unit& from, const Unit& host) const;
  // What the two made together when they were measured; 0: never.
  double known_worth(const Job& job, const Unit& host) const;
  void tried(Instant now, Unit& host, Job& job, double before);
  void judge_move(Instant now, Cluster& cluster, Cluster::Out& out);
  void forget_the_gone(const Cluster& cluster);

  Rules rules_;
  std::set<Pair> bad_;            // were slower together than by turns
  std::map<Pair, double> worth_;  // of two jobs together, as measured
  std::optional<Move> move_;
  std::set<Pair> moved_;     // job, and those it was tried beside
  uint64_t generation_ = 0;  // of the jobs that there are, when moved_ was begun
};

}  // namespace lull::jobs
