// `gandiva`: introspective scheduling after Gandiva (Xiao et al., OSDI'18). See README.md for its
// rules in words.
//
//   reactive       on an arrival, departure, failure or turn: rounds.h, by level of service had
//   introspective  every half turn, from what was measured since:
//     packing.h      the least busy jobs share GPUs, on trial, while somebody waits
//     relocation.h   jobs move to better GPUs, and out of the way of larger jobs
//     elastic.h      elastic jobs take idle GPUs
#pragma once

#include <memory>

#include "policies/jobs/registry.h"

namespace lull::jobs {

std::unique_ptr<JobPolicy> make_gandiva(const SettingValues& values);

}  // namespace lull::jobs
