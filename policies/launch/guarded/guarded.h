// guarded: the user says what an important task may lose (3 % in the mean, 5 % at p99 of its requests), and less
// important tasks take the rest. A task may state its own bound (`lull run --max-slowdown`). README.md says how guarded
// decides.
//
// This is the shell. It knows which clients there are and who is in whose way, and it tells each lower client what may
// go. For every client with lower ones a RequestGuard says what the moment leaves. admission.h is the rule.
//
//              nothing on the device, no launch for a second
//        awake ----------------------------------------------> resting
//              <----------------------------------------------
//              an event of its own; any client comes, goes, or changes its priority
//
// A step looks only at clients that are awake, however many there are. A lower client that rests has its gate closed
// where a more important client exists, so that its next launch asks. The guard of an important client that rested is
// told what it missed when the client is back.
#pragma once

#include <memory>
#include <string_view>

#include "policies/launch/registry.h"

namespace lull::policies {

// A setting that only the simulator's row has (tools/simulate/simulated_policies.cc): the parts to take out, a sum of
// 1 << Part (request_guard.h).
inline constexpr std::string_view kPartsKey = "parts";

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values);

}  // namespace lull::policies
