// `static`: a job starts at once where the least is in use, and stays there, as on a node without a
// job policy. If no GPU is free, it starts beside others if memory allows it. Jobs of different
// importance do not share.
#pragma once

#include <memory>

#include "policies/jobs/registry.h"

namespace lull::jobs {

std::unique_ptr<JobPolicy> make_static(const SettingValues& values);

}  // namespace lull::jobs
