// Jobs made from a seed. The same seed gives the same jobs everywhere. What is drawn from where to
// where, and by whose word, stands beside each line of generator.cc and in the README.
#pragma once

#include "tools/simulate/cluster/cluster_spec.h"
#include "tools/simulate/cluster/job_spec.h"

namespace lull::simulate::cluster {

// A cluster's jobs: `count` of them, sizes and lengths after the Philly trace as Gavel samples it,
// arrivals heavy-tailed, at a load between `least_load` and `most_load` of the cluster's capacity.
JobSpecs make_cluster_jobs(uint64_t seed, uint32_t count, const ClusterSpec& cluster,
                           double least_load = 0.8, double most_load = 1.2);

// What a job is like whose trace says only when it came, how many GPUs it had and for how long.
JobSpec make_nature(uint64_t seed, uint64_t index);

// Six long jobs of one GPU each, all at once: for the comparison with all static placements.
JobSpecs make_six_jobs(uint64_t seed);

// A hyper-parameter search: `count` jobs of one GPU at once, of which `good` reach the aim.
// `small`: networks that use little of a GPU (8.7 to 14.1 %), else any.
JobSpecs make_search_jobs(uint64_t seed, uint32_t count, uint32_t good, bool small);

}  // namespace lull::simulate::cluster
