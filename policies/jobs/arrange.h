// Who is best beside whom in a node: its jobs are tried in other arrangements, one at a time, while
// nobody waits. Pure; owned by `gandiva`.
//
// An arrangement says who is on which GPUs of a node. Its worth is the sum of all rates in the
// node, each as a share of the job's best alone: jobs slow each other beyond their own GPUs. A
// neighbour of an arrangement differs by one packed job that joins another unit, two jobs of two
// packs that change places, or two units that do. Best first search: the neighbours of the best
// arrangement that was measured are tried, then those of the next, down to kNearly of the best, so
// that two moves are found of which the first makes it worse. Each arrangement is tried once; GPUs
// on one switch are as good as each other. At the end the best is taken, if it is better than the
// first by the margin. What is kept of each arrangement are its jobs' rates, not its worth: a job's
// best alone may be seen only in a later one.
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
  // Whether jobs are on trial in this group of GPUs: its packs are not judged by themselves.
  bool on_trial(size_t group) const {
    return group < searches_.size() && searches_[group].trial.has_value();
  }

 private:
  struct Spot {
    Places gpus;
    std::vector<uint64_t> jobs;  // ids, ascending
    auto operator<=>(const Spot&) const = default;
  };
  using Arrangement = std::vector<Spot>;  // ascending by GPUs
  struct Measured {
    Arrangement how;
    std::vector<std::vector<double>> per_second;  // of each spot's jobs; empty: none could be had
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
    bool over = false;
  };

  static std::optional<Arrangement> arrangement_of(const Cluster& cluster, const Group& group);
  static uint64_t signature(const Cluster& cluster, const Arrangement& how);
  static bool may_gain(const Cluster& cluster, const Group& group);
  static Measured measure(const Cluster& cluster, const Arrangement& here);
  // By what is known now. 0 where a pack of it is slower than turns.
  static double worth(const Cluster& cluster, const Group& group, const Measured& measured);
  bool fits(const Cluster& cluster, const Group& group, const Spot& spot) const;
  std::optional<Arrangement> untried_neighbour(const Cluster& cluster, const Group& group,
                                               const Arrangement& of,
                                               std::set<uint64_t>& seen) const;
  std::optional<Arrangement> next_trial(const Cluster& cluster, const Group& group,
                                        const Arrangement& here, Search& search) const;
  static void carry_out(Instant now, Cluster& cluster, const Arrangement& from,
                        const Arrangement& to, std::optional<int64_t> no_better, Cluster::Out& out);

  TrialRules rules_;
  std::vector<Search> searches_;  // by group
};

}  // namespace lull::jobs
