// `las`: least attained service in two queues, after Tiresias (Gu et al., NSDI'19: discretised
// 2D-LAS). A job's service is the GPU time it has had (GPUs times time). Jobs below
// `threshold_gpu_s` go before those above; within a queue the order is that of arrivals, so that
// only a job that passes the threshold loses its GPUs. Of 1, 4, 16 and 64 GPU hours, 16 made the
// best mean JCT on the generator's tuning seeds (docs/simulation/cluster.md).
#pragma once

#include <memory>

#include "policies/jobs/registry.h"

namespace lull::jobs {

std::unique_ptr<JobPolicy> make_las(const SettingValues& values);

}  // namespace lull::jobs
