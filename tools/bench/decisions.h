// `lull-bench --decisions`: what a step of the engine costs on a device with many clients of which
// few launch (crowded_device.h), under guarded. Prints processor time; nothing passes or fails.
#pragma once

namespace lull::bench {

// As JSON, or as a table. The exit code.
int run_decisions(bool json);

}  // namespace lull::bench
