// Elastic jobs take idle GPUs of their node, and only while nobody waits. They give them back in
// the round in which somebody else has a use for them (rounds.h: GPUs on loan). Pure; owned by
// `gandiva`.
#pragma once

#include "policies/jobs/cluster.h"

namespace lull::jobs {

// Grows elastic jobs that run alone, in the order of their importance and arrival, by the free GPUs
// of their nodes.
void grow_elastic(Instant now, Cluster& cluster, Cluster::Out& out);

}  // namespace lull::jobs
