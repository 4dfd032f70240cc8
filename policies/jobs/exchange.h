// Two units change places, on trial: jobs slow each other on a PCIe switch, and no GPU is free to
// move to. Only while nobody waits, one trial at a time, each pair of units once until a job
// arrives or goes; judged by the sum of all rates in the node. What made it no better is undone.
// Pure; owned by `gandiva`.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "policies/jobs/cluster.h"

namespace lull::jobs {

class Exchange {
 public:
  Exchange(double margin, Duration patience) : margin_(margin), patience_(patience) {}

  // Ends a trial that has an answer. True: one is still on.
  bool judge(Instant now, Cluster& cluster, Cluster::Out& out);
  // Begins one, where a node has a pack, or a job that is slower than it could be.
  void try_one(Instant now, Cluster& cluster, Cluster::Out& out);

 private:
  struct Trial {
    uint64_t a = 0, b = 0;  // units
    NodeId node;
    double sum_before = 0;
    Instant since;
  };
  double margin_;
  Duration patience_;
  std::optional<Trial> trial_;
  std::set<std::pair<uint64_t, uint64_t>> tried_;
  uint64_t generation_ = 0;
};

}  // namespace lull::jobs
