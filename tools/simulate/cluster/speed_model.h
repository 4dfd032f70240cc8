// How fast a simulated job goes where it is, beside whom it is. No policy is told any of it: they
// see iterations. Pure.
//
//   alone            1 / iteration_s, times the kind's speed, give or take 20 % a job and kind
//   elastic          n GPUs for one it asked for: n to the power of 0.9
//   locality         the job's own factor where its GPUs are of two sockets or nodes
//   PCIe switch      a job that loads it has 81 % beside each other that does (Gandiva: two
//   language
//                    models 19 % slower each), 60 % at least
//   packed           all jobs of a pack are slowed by max(1 + 0.05 others, all / e):
//                    `all` is the sum of what each uses of the GPU alone, `others` without the
//                    job's own, e the part of the GPU that is not lost in changes of hands: 0.73 to
//                    0.93, drawn for each pair by the seed, the mean of the pack's pairs. The range
//                    is what Gandiva's table 1 shows, whose packed throughput is e / use of what
//                    its time-sliced one is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/simulate/cluster/cluster_spec.h"
#include "tools/simulate/cluster/job_spec.h"

namespace lull::simulate::cluster {

class SpeedModel {
 public:
  SpeedModel(uint64_t seed, const JobSpecs& jobs) : seed_(seed), jobs_(jobs) {}

  // Iterations a second of a job that runs by itself on these GPUs, which are of one kind.
  // `beside`: other jobs that load one of its switches.
  double alone(size_t job, std::span<const jobs::Gpu* const> gpus, size_t beside) const;
  // What all jobs of a pack are slowed by, job by job: `slowed(pack, i)` >= 1.
  double slowed(std::span<const size_t> pack, size_t i) const;
  // Share of the time in which the GPUs of a pack do something.
  double busy(std::span<const size_t> pack) const;

 private:
  double drawn(uint64_t a, uint64_t b, uint64_t what) const;  // 0 to 1

  uint64_t seed_;
  const JobSpecs& jobs_;
};

}  // namespace lull::simulate::cluster
