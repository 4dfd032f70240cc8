// exclusive: one job at a time has the device, by arrival; when it leaves, the next one.
//
// Arrival is the job's on the node, not on this device: devices that are shared by the same jobs
// then agree on who goes first, and jobs over several devices do not wait for each other in a ring.
// A job that came earlier elsewhere therefore takes the device when it arrives here.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

std::unique_ptr<LaunchPolicy> make_exclusive(const SettingValues& values);

}  // namespace lull::policies
