// `lull trace`: finds the subcommand and hands it the rest of the words.
#include "tools/lull/command.h"
#include "tools/lull/trace/commands.h"

namespace lull::command {
namespace {

constexpr Command kTraceCommands[] = {
    {"record", "run a program and record its launches", trace_record_main},
    {"show", "where the time went: kernels, gaps, tasks, streams, who held whom", trace_show_main},
    {"timeline", "streams and gates over time, in the terminal", trace_timeline_main},
    {"diff", "what changed from one trace to another", trace_diff_main},
    {"export", "as a Perfetto trace, an HTML report, CSV or a workload", trace_export_main},
    {"import", "a PyTorch profiler recording as a trace", trace_import_main},
};

}  // namespace

int trace_main(const Words& words) {
  const auto help = [](std::FILE* to) {
    fmt::print(to, "usage: lull trace COMMAND ...   (lull trace COMMAND --help says more)\n\n");
    print_commands(to, kTraceCommands);
  };
  if (words.empty()) {
    help(stderr);
    return kUsage;
  }
  if (asks_for_help(words[0])) {
    help(stdout);
    return kDone;
  }
  if (said_version(words[0]) ||
      said_description(words[0], "lull trace", "Records and shows where every kernel's time went.",
                       kTraceCommands)) {
    return kDone;
  }
  const Command* command = find_command(kTraceCommands, words[0], "trace: ");
  return command == nullptr ? kUsage : command->main(Words(words.begin() + 1, words.end()));
}

}  // namespace lull::command
