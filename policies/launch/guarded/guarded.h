// guarded: the user says what an important task may lose (3 % in the mean, 5 % at p99 of its
// iterations or requests), and less important ones take all the rest. A task that states a bound of
// its own (`lull run --max-slowdown`) is held to that one.
//
// For every client with lower ones on its device, a guard (task_guard.h)
//   - learns how its iteration goes by itself (own_timeline.h), also while others run;
//   - measures at each wait of its host what others have cost it, and keeps accounts: a mean account
//     that earns the allowed share of all service, and the services that may exceed the p99 bound;
//   - says at each moment how much lower work may be in flight so that the wait ends within that:
//
//        room = slack until the host's next wait + what the accounts allow - what it takes to react
//
// What a unit needs of the room is what such have been seen to cost (kernel_costs.h), all of its
// length where that is not known. Where no iteration is known the slack counts as none, less what
// has run in the way, and the same rule holds. Lower clients get credit within the room, and a unit longer than the credit is let go
// by name where it fits. A unit longer than any room is spent from the accounts: it waits until they
// hold its cost and a service over p99 is due, and goes at the iteration's best moment; where it
// surely exceeds p99 even there, as a request begins, whose slack is then left for what follows. While
// the important client has nothing on the device, short units go on a small credit. An account that is
// overdrawn keeps everybody off until it has recovered. A floor, where the operator sets one, is met
// whatever the accounts say.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

// Where each setting stands in the policy's row (registry.cc). The last one is the simulator's
// alone: parts to take out, a sum of 1 << Part.
enum GuardedSetting : size_t {
  kGuardedMean,
  kGuardedP99,
  kGuardedFloor,
  kGuardedSwitchCost,
  kGuardedMaxHold,
  kGuardedWithout,
};
inline constexpr int64_t kAllParts = (int64_t{1} << 17) - 1;

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values);

}  // namespace lull::policies
