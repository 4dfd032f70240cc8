// The subcommands of `lull trace` that read traces: each gets the words after its own name and
// returns the exit code (0 done, 1 failed, 2 wrong usage). Called by the table of `lull trace`.
// A trace that cannot be read to its end is shown as far as it goes, with the error on stderr and
// exit code 1.
#pragma once

#include "tools/lull/command.h"

namespace lull::command {

int trace_record_main(const Words& words);  // writes one: hands on the program's exit code
int trace_show_main(const Words& words);
int trace_timeline_main(const Words& words);
int trace_diff_main(const Words& words);
int trace_export_main(const Words& words);
int trace_import_main(const Words& words);

}  // namespace lull::command
