// Moves running jobs that have their GPUs alone: to a faster kind, to GPUs that are nearer to each
// other, away from where they are slow, and out of the way of a larger job that waits. Pure; owned
// by `gandiva`.
//
// Each move is a trial: what a job makes at its new place is measured as everywhere. A job that was
// moved for its own good is left alone for kRest.
#pragma once

#include <map>
#include <span>

#include "policies/jobs/cluster.h"

namespace lull::jobs {

class Relocation {
 public:
  // Nobody waits: free GPUs go to jobs that run badly.
  void spread(Instant now, Cluster& cluster, Cluster::Out& out);
  // The first waiting job that all free GPUs together would hold gets its GPUs in one node: smaller
  // jobs there move to where GPUs are free.
  void defragment(Instant now, Cluster& cluster, std::span<Unit* const> waiting, Cluster::Out& out);

 private:
  bool rests(Instant now, const Job& job) const;

  std::map<JobId, Instant> moved_;  // when a job was last moved for its own good
};

}  // namespace lull::jobs
