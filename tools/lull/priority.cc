// `lull priority TASK LEVEL`: changes the priority of a running task.
#include <nlohmann/json.hpp>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/measure/values.h"

namespace lull::command {

int priority_main(const Words& words) {
  std::string task, level_text, socket;
  CommandLine line("Changes the priority of a running task.", "lull priority");
  line.option("task", task, "task or job name, pid or client id").required();
  line.option("level", level_text, "0 (highest) to 9, or realtime, high, normal, low, idle")
      .required();
  line.option("--socket", socket, "socket of lulld");
  if (const auto code = parse_words(line, words)) return *code;
  const auto level = parse_priority(level_text);
  if (!level) {
    complain("priority: " + level.error());
    return kUsage;
  }
  const auto answer = ask_daemon(socket.empty() ? default_socket() : socket,
                                 {{"op", "priority"}, {"task", task}, {"level", *level}});
  if (!answer) {
    complain("priority: " + answer.error().text);
    return kFailed;
  }
  fmt::print("{}: priority {}\n", task, priority_name(*level));
  return kDone;
}

}  // namespace lull::command
