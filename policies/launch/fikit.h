// fikit epsilon_us switch_cost_us max_hold_ms: the published gap-filling rule, as a yardstick.
//
// Wu, "FIKIT", arXiv 2311.10359. On each launch of the most important task, the mean pause SG after
// that kernel is a budget. Waiting launches of less important tasks are released: the highest level
// first, and within a level the longest whose mean length SK fits. Each takes its SK off the
// budget. This ends when nothing fits, when what is left is not above epsilon, or when the most
// important task launches again.
//
//   high launches k ........ k ends ......................... its next launch, predicted
//      |<----- SK[k] ------>|<------------- SG[k] ---------------->|
//      | fillers released here, at once; they run here: |x1|x2|...x|
//                               a later launch fits into what is left: max(now, x's end) .. gap end
//
// What is ours, where the publication leaves room:
//   - Candidates are the launches that wait, one a thread. One that comes later competes for what
//     is left of the gap then: time shrinks the budget, as fillers do.
//   - The gap begins when the high kernel is predicted to end (after what it queues behind), and
//     moves when its completion is seen.
//   - Each filler costs SK + switch_cost_us.
//   - With several clients at the highest level the last launch sets the budget, and nothing is
//     filled while another of them has work in flight.
//   - A more important client that is not active (kActiveFor) holds nobody: gates are open.
// A kernel that fits no gap waits for as long as the high task is active; only the watchdog
// (max_hold_ms) lets it go.
#pragma once

#include <memory>

#include "policies/launch/registry.h"

namespace lull::policies {

// Settings: epsilon_us, switch_cost_us, max_hold_ms.
std::unique_ptr<LaunchPolicy> make_fikit(const SettingValues& values);

}  // namespace lull::policies
