// exclusive: one job at a time has the device, in the order of their arrival.
//
// What counts is the job's arrival on the node, not on this device. So devices shared by the same
// jobs agree on who goes first, and jobs over several devices do not wait for each other in a ring.
// A job that came earlier elsewhere takes the device when it arrives here.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

std::unique_ptr<LaunchPolicy> make_exclusive(const SettingValues& values);

}  // namespace lull::policies
