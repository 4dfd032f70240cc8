// `static`: a job starts at once where the least is in use, beside others where no GPU is free and
// their memory allows it, and stays there: a node without a job policy. Jobs of different
// importance do not share.
#pragma once

#include <memory>

#include "policies/jobs/registry.h"

namespace lull::jobs {

std::unique_ptr<JobPolicy> make_static(const SettingValues& values);

}  // namespace lull::jobs
