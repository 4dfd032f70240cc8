// `time_slice`: all jobs take turns of `quantum_s` on GPUs of their own, the more important ones
// first. Who has had its turn goes to the back.
#pragma once

#include <memory>

#include "policies/jobs/registry.h"

namespace lull::jobs {

std::unique_ptr<JobPolicy> make_time_slice(const SettingValues& values);

}  // namespace lull::jobs
