// The policies that the simulator knows: all of a daemon's, and `guarded` with parts taken out, to
// see what each part is worth (tools/simulate/ablations). No daemon and no user is offered that.
#pragma once

#include <span>

#include "policies/launch/registry.h"

namespace lull::simulate {

// `guarded_without parts=N`: N is a sum of the bits that policies::Part names.
std::span<const policies::PolicyRow> simulated_policies();

}  // namespace lull::simulate
