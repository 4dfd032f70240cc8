// guarded: the user says what an important task may lose (3 % in the mean, 5 % at p99 of its
// iterations or requests), and less important ones take all the rest. The default policy. A task
// that states a bound of its own (`lull run --max-slowdown`) is held to that one.
//
// For every client with lower ones on its device, a guard
//   - finds its iteration (IterationDetector) and learns how one goes with nobody in its way
//     (OwnTimeline), from iterations kept clean: the first few, one in kCleanEvery later, and any
//     while it is over its bound, which is also how a change of the task itself is noticed;
//   - keeps accounts of the delay that each iteration really had: a mean account that earns the
//     allowed share of every iteration, and the iterations that may exceed the p99 bound;
//   - says at each moment how much lower work may be in flight so that the iteration ends within
//     what its accounts allow:
//
//        room = slack until the host's next wait + allowed delay - what it takes to react
//
// Lower clients get credit within the room, in batches, and a unit longer than the credit is let go
// by name where it fits. A unit longer than any room is spent from the accounts: it waits until the
// mean account holds its cost and an iteration over p99 is due, and goes at the iteration's best
// moment; until then nothing else is spent. Kernels not seen before count as kUnknown and go one at
// a time. Clients without a detected iteration are guarded as under `priority`, by a small credit.
// A floor, where the operator sets one, is met whatever the accounts say.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

std::unique_ptr<LaunchPolicy> make_guarded(const SettingValues& values);

}  // namespace lull::policies
