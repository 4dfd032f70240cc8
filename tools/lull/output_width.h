// How wide what a command prints may be. Called by commands that print tables, on the main thread.
#pragma once

#include <cstddef>

#include "tools/measure/text_table.h"

namespace lull::command {

// COLUMNS where it is set, else the terminal's width, else `otherwise`: in a pipe nothing has to
// fit.
size_t output_width(size_t otherwise = kAnyWidth);

}  // namespace lull::command
