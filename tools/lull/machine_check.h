// Whether lull can work on this machine: driver, device files, daemon, preloading, limits.
// Called by `lull doctor`. Looks only; starts nothing but a copy of itself under liblull.so.
#pragma once

#include <string>

#include "tools/lull/findings.h"

namespace lull::command {

// `simulate`: the simulated GPU is meant, so that a missing driver is no failure.
Findings check_machine(const std::string& socket_path, bool simulate);

// What the copy started by check_machine does: exit 0 when liblull.so is mapped, 1 when not.
int preload_probe();
inline constexpr const char* kPreloadProbeWord = "--preload-probe";

}  // namespace lull::command
