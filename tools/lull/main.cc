// The command `lull`: finds the subcommand and hands it the rest of the words.
#include <csignal>
#include <cstdio>
#include <exception>

#include "coordinator/channel/socket_place.h"
#include "tools/lull/command.h"
#include "tools/measure/text_table.h"

namespace lull::command {
namespace {

constexpr Command kCommands[] = {
    {"run", "run a CUDA program under lull", run_main},
    {"status", "who shares the GPUs now, and who is held by whom", status_main},
    {"top", "live: who uses the GPUs, how much, and who is slowed down", top_main},
    {"profile", "what is kept of tasks between runs", profile_main},
    {"policy", "show or change the policy of the running daemon", policy_main},
    {"priority", "change the priority of a running task", priority_main},
    {"suspend", "suspend a job: its device memory moves to the host", suspend_main},
    {"resume", "let a suspended job go on", resume_main},
    {"migrate", "move a job to other GPUs of this node", migrate_main},
    {"pin", "let nobody move a job", pin_main},
    {"resize", "give an elastic job more GPUs, or fewer", resize_main},
    {"discover", "how many workers an elastic job may have now, for launchers", discover_main},
    {"doctor", "what here would stop lull from working, and how to mend it", doctor_main},
    {"compare", "measure two programs alone and together, under each policy", compare_main},
    {"simulate", "programs, or a cluster, in a simulator: no GPU, no processes", simulate_main},
    {"ask", "send lulld one request as JSON, for scripts", ask_main},
    {"trace", "record and show where every kernel's time went", trace_main},
};

constexpr const char* kWhat =
    "lull lets CUDA programs share one GPU without hurting the one that matters.";

void print_help(std::FILE* to) {
  fmt::print(to, "{}\n\nusage: lull COMMAND ...   (lull COMMAND --help says more)\n\n", kWhat);
  print_commands(to, kCommands);
  fmt::print(to, "\n{}\n",
             wrapped(fmt::format("The daemon is lulld. A program finds it at the first of {}.",
                                 channel::kSocketPlaces),
                     80));
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
  if (asks_for_help(all[0])) {
    print_help(stdout);
    return kDone;
  }
  if (said_version(all[0]) || said_description(all[0], "lull", kWhat, kCommands)) return kDone;
  const Command* command = find_command(kCommands, all[0]);
  if (command == nullptr) return kUsage;
  try {
    return command->main(Words(all.begin() + 1, all.end()));
  } catch (const std::exception& error) {
    complain(fmt::format("{}: unexpected: {}", command->name, error.what()));
    return all[0] == "run" ? kRunFailed : kFailed;
  }
}
