// `lull trace`: finds the subcommand and hands it the rest of the words.
#include "tools/lull/command.h"
#include "tools/lull/trace/commands.h"

namespace lull::command {
namespace {

struct Row {
  const char* name;
  const char* what;
  int (*main)(const Words&);
};
constexpr Row kTraceCommands[] = {
    {"record", "run a program and record its launches", trace_record_main},
    {"show", "where the time went: kernels, gaps, tasks, streams, who held whom", trace_show_main},
    {"timeline", "streams and gates over time, in the terminal", trace_timeline_main},
    {"diff", "what changed from one trace to another", trace_diff_main},
    {"export", "as a Perfetto trace, an HTML report or a workload", trace_export_main},
    {"import", "a PyTorch profiler recording as a trace", trace_import_main},
};

}  // namespace

int trace_main(const Words& words) {
  const auto help = [](std::FILE* to) {
    fmt::print(to, "usage: lull trace COMMAND ...   (lull trace COMMAND --help says more)\n\n");
    for (const Row& row : kTraceCommands) fmt::print(to, "  {:<10} {}\n", row.name, row.what);
  };
  if (words.empty()) {
    help(stderr);
    return kUsage;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    help(stdout);
    return kDone;
  }
  std::string known;
  for (const Row& row : kTraceCommands) {
    if (words[0] == row.name) return row.main(Words(words.begin() + 1, words.end()));
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  complain(fmt::format("trace: '{}' is no command: use one of {}", words[0], known));
  return kUsage;
}

}  // namespace lull::command
