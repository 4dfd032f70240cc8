// `lull simulate cluster`, for simulate.cc.
#pragma once

#include "tools/lull/command.h"

namespace lull::command {

// Names it, with its options, in what `simulate` says of itself.
void describe_simulate_cluster(CommandLine& simulate);

}  // namespace lull::command
