// time_slice quantum_us: the jobs with work take turns, a quantum of model time each.
//
//             quantum over or idle,
//             another job waits               nothing of it in flight
//   running ---------------------> draining -----------------------> running (the next job)
//   its gates open                 all gates closed                  by arrival, round and round
//
// A job that has had nothing to do for kIdlePass hands over before its quantum is over. A job alone
// keeps the device. Draining ends after kDrainQuanta quanta at the latest, so that work which never
// completes (or waits for another device) does not stop the others for good.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

inline constexpr Duration kIdlePass{500'000};
inline constexpr int64_t kDrainQuanta = 10;

// Settings: quantum_us.
std::unique_ptr<LaunchPolicy> make_time_slice(const SettingValues& values);

}  // namespace lull::policies
