// priority in_flight_us max_hold_ms: strict priority at kernel boundaries.
//
//   no more important client active            gate open
//   one is active, none has work               credit: at most in_flight_us in flight
//   one has work (in flight or waiting)        gate closed
//
// A client is active while it has work and for kActiveFor after its last launch. Clients of one
// level share. in_flight_us is what a more important launch may find ahead of it, so the less
// important clients that are active divide it. A unit longer than its client's part goes when
// nothing of that client is in flight. It counts in full until it completes, so nothing else of
// that client goes before.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

// Settings: in_flight_us, max_hold_ms.
std::unique_ptr<LaunchPolicy> make_priority(const SettingValues& values);

}  // namespace lull::policies
