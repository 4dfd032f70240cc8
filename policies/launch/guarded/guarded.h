// guarded: the user says what an important task may lose (3 % in the mean, 5 % at p99 of its
// requests), and less important ones take the rest. A task that states a bound of its own
// (`lull run --max-slowdown`) is held to that one. README.md says how it decides.
//
// This is the shell: which clients there are, who is in whose way, and what each lower one is told.
// For every client with lower ones a RequestGuard says what the moment leaves; admission.h is the
// rule.
//
//              nothing on the device, no launch for a second
//        awake ----------------------------------------------> resting
//              <----------------------------------------------
//              an event of its own; any client comes, goes, or changes its priority
//
// A step looks at those that are awake, however many there are. A lower client that rests has its
// gate closed where there is anybody more important, so that its next launch is asked for; an
// important one that rests is told what it missed when it is back.
#pragma once

#include <cstddef>
#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

// Where each setting stands in the policy's row (registry.cc). The last one is the simulator's
// alone: parts to take out, a sum of 1 << Part (request_guard.h).
enum GuardedSetting : size_t {
  kGuardedMean,
  kGuardedP99,
  kGuardedFloor,
  kGuardedSwitchCost,
  kGuardedMaxHold,
  kGuardedWithout,
};

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values);

}  // namespace lull::policies
