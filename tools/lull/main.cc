// The command `lull`: finds the subcommand and hands it the rest of the words.
#include <csignal>
#include <cstdio>
#include <exception>

#include "tools/lull/command.h"

namespace lull::command {
namespace {

struct Row {
  const char* name;
  const char* what;
  int (*main)(const Words&);
};
constexpr Row kCommands[] = {
    {"run", "run a CUDA program under lull", run_main},
    {"status", "who shares the GPUs now, and who is held by whom", status_main},
    {"top", "live: who uses the GPUs, how much, and who is slowed down", top_main},
    {"profile", "what is kept of tasks between runs", profile_main},
    {"policy", "show or change the policy of the running daemon", policy_main},
    {"priority", "change the priority of a running task", priority_main},
    {"doctor", "what here would stop lull from working, and how to mend it", doctor_main},
    {"compare", "measure two programs alone and together, under each policy", compare_main},
    {"simulate", "the same in a simulator: no GPU, no processes, many times faster", simulate_main},
    {"trace", "record and show where every kernel's time went", trace_main},
};

void print_help(std::FILE* to) {
  fmt::print(to,
             "lull lets several CUDA programs share one GPU without hurting the one that matters."
             "\n\nusage: lull COMMAND ...   (lull COMMAND --help says more)\n\n");
  for (const Row& row : kCommands) fmt::print(to, "  {:<10} {}\n", row.name, row.what);
  fmt::print(to,
             "\nThe daemon is lulld. A program finds it at $LULL_SOCKET, /run/lull/lulld.sock,\n"
             "$XDG_RUNTIME_DIR/lull/lulld.sock or /tmp/lull-UID/lulld.sock, whichever is first.\n");
}

}  // namespace

}  // namespace lull::command

int main(int argc, char** argv) {
  using namespace lull::command;
  signal(SIGPIPE, SIG_DFL);
  const Words all(argv + (argc > 0), argv + argc);
  if (all.empty()) {
    print_help(stderr);
    return kUsage;
  }
  if (all[0] == "--help" || all[0] == "-h" || all[0] == "help") {
    print_help(stdout);
    return kDone;
  }
  if (all[0] == "--version") {
    fmt::print("lull {}\n", LULL_VERSION);
    return kDone;
  }
  for (const Row& row : kCommands) {
    if (all[0] != row.name) continue;
    try {
      return row.main(Words(all.begin() + 1, all.end()));
    } catch (const std::exception& error) {
      complain(fmt::format("{}: unexpected: {}", row.name, error.what()));
      return all[0] == "run" ? kRunFailed : kFailed;
    }
  }
  std::string known;
  for (const Row& row : kCommands)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  complain(fmt::format("'{}' is no command: use one of {}", all[0], known));
  return kUsage;
}
