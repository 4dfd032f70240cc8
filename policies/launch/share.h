// share: every gate is open; the hardware shares the device as it does without lull.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

std::unique_ptr<LaunchPolicy> make_share(const SettingValues& values);

}  // namespace lull::policies
