// `fifo`: jobs start in the order of their importance, then of their arrival, on GPUs of their own,
// and keep them to their end. A job that finds no GPUs holds up all behind it, unless `skip=1`.
#pragma once

#include <memory>

#include "policies/jobs/registry.h"

namespace lull::jobs {

std::unique_ptr<JobPolicy> make_fifo(const SettingValues& values);

}  // namespace lull::jobs
