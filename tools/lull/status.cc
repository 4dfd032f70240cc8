// `lull status`: the daemon's own account, as a table or as it came.
#include <nlohmann/json.hpp>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/status_view.h"

namespace lull::command {

int status_main(const Words& words) {
  JsonOutput as_json;
  std::string socket;
  CommandLine line("Shows who shares the GPUs, whose gate is closed, and who holds whom.",
                   "lull status");
  as_json.add_to(line);
  line.option("--socket", socket, "socket of lulld");
  if (const auto code = parse_words(line, words)) return *code;
  const auto answer = ask_daemon(socket.empty() ? default_socket() : socket, {{"op", "status"}});
  if (!answer) {
    complain("status: " + answer.error().text);
    return kFailed;
  }
  if (!as_json.replaces_text()) fmt::print("{}", status_text(*answer, output_width()));
  return as_json.write("status", *answer) ? kDone : kFailed;
}

}  // namespace lull::command
