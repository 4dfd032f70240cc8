// Finds who runs best beside whom in a node: the node's jobs are tried in other arrangements, one
// at a time, while nobody waits. Pure; owned by `gandiva`.
//
// An arrangement says who is on which GPUs of a node. Its worth is the sum of all rates in the
// node, each as a share of the job's best alone. It covers the whole node because jobs slow each
// other beyond their own GPUs. So a pack that is slower than turns may be part of the best
// arrangement: it leaves a GPU to others.
//
// A neighbour of an arrangement is one move away: a packed job joins another unit, two jobs of two
// packs change places, or two units do. The search is best first: it tries the neighbours of the
// best arrangement measured, then those of the next, down to kNearly of the best. So it also finds
// two moves of which the first makes things worse. Each arrangement is tried once; GPUs on one
// switch count as equal. A trial ends when each job has done kTrialIterations, or after
// kFewIterations if it is below kNearly of the best. Of each arrangement the jobs' rates are kept,
// not the worth: a job's best alone may be seen only later.
//
// If the same jobs have run for kSettled, the search goes on from the best arrangement alone, and
// may leave GPUs free: jobs that load a PCIe switch can make more on one GPU than on two that share
// the switch. Then a single job may join another unit, and a unit may move to a free GPU. This ends
// when the best arrangement has no neighbour left. The best of all is taken if it is better than
// the first by the margin. While its jobs stay as they are, no pack of the node parts for a GPU
// that it leaves free.
//
//   rest --a pack, or a slow job--> trial --measured--> next trial ... --none left--> over
//   Another set of jobs in the node: back to rest.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "policies/jobs/cluster.h"

namespace lull::jobs {

class Arrange {
 public:
  explicit Arrange(TrialRules rules) : rules_(rules) {}

  // After a round that left nobody waiting: ends trials that have an answer, begins others. One
  // trial a node at once.
  void step(Instant now, Cluster& cluster, Cluster::Out& out);
  // Somebody waits: no trial goes on, and all stay where they are.
  void drop();
  // Whether a pack is not to be judged by itself: it is on trial, or nobody waits and the best
  // arrangement contains it although it is slower than turns.
  bool keeps(const Cluster& cluster, const Unit& pack) const;
  // Whether an arrangement leaves GPUs of this group free: then no pack parts for them.
  bool keeps_free(const Cluster& cluster, size_t group) const;

 private:
  struct Placement {
    Places gpus;
    std::vector<uint64_t> jobs;  // ids, ascending; none: a free GPU
    auto operator<=>(const Placement&) const = default;
  };
  using Arrangement = std::vector<Placement>;  // ascending by GPUs
  struct Measured {
    Arrangement how;
    std::vector<std::vector<double>> per_second;  // of each placement's jobs; empty: not measured
    bool expanded = false;                        // all its neighbours have been tried
  };
  // Of one group of GPUs.
  struct Search {
    std::vector<uint64_t> jobs;  // that run there, ascending
    std::vector<Measured> measured;
    size_t best = 0;  // of `measured`, once it is over
    std::set<uint64_t> seen;
    std::optional<Arrangement> trial;
    Instant since;
    Instant begun;       // since when these jobs run there
    bool frees = false;  // arrangements that leave GPUs free are tried, too
    bool over = false;
  };

  static std::optional<Arrangement> arrangement_of(const Cluster& cluster, const Group& group);
  static uint64_t signature(const Cluster& cluster, const Arrangement& how);
  static bool may_gain(const Cluster& cluster, const Group& group);
  static Measured measure(const Cluster& cluster, const Arrangement& here);
  // By what is known of the jobs now.
  static double worth(const Cluster& cluster, const Group& group, const Measured& measured);
  static double worth(const Cluster& cluster, const Group& group, const Measured& measured,
                      size_t placement);
  static bool far_below(const Cluster& cluster, const Group& group, const Search& search,
                        const Measured& trial);
  bool fits(const Cluster& cluster, const Group& group, const Placement& placement) const;
  std::optional<Arrangement> untried_neighbour(const Cluster& cluster, const Group& group,
                                               const Arrangement& of, Search& search) const;
  std::optional<Arrangement> next_trial(Instant now, const Cluster& cluster, const Group& group,
                                        const Arrangement& here, Search& search) const;
  static void carry_out(Instant now, Cluster& cluster, const Arrangement& from,
                        const Arrangement& to, std::optional<int64_t> no_better, Cluster::Out& out);

  // The best arrangement of a group, if its jobs are arranged so now; else null.
  const Measured* found(const Cluster& cluster, size_t group) const;

  TrialRules rules_;
  bool calm_ = false;             // nobody waited at the last step
  std::vector<Search> searches_;  // by group
};

}  // namespace lull::jobs
