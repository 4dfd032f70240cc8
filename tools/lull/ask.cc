// `lull ask REQUEST`: one request to lulld as JSON, and its answer, for scripts and the Python package.
#include <nlohmann/json.hpp>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"

namespace lull::command {

int ask_main(const Words& words) {
  std::string text, socket;
  CommandLine line(
      "Sends lulld one request and prints the answer, both JSON objects, for scripts. An answer that "
      "says \"ok\":false is printed too, with exit code 1; without a lulld nothing is printed.",
      "lull ask");
  line.option("request", text, "as in '{\"op\":\"status\"}'; - reads it from standard input").required();
  line.option("--socket", socket, "socket of lulld").value_name("FILE");
  if (const auto code = parse_words(line, words)) return *code;
  if (text == "-") {
    text.clear();
    char part[4096];
    for (size_t got; (got = std::fread(part, 1, sizeof part, stdin)) > 0;) text.append(part, got);
  }
  const auto request = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) {
    complain("ask: the request is no JSON object: say for example '{\"op\":\"status\"}'");
    return kUsage;
  }
  const auto answer = ask_daemon(socket.empty() ? default_socket() : socket, request);
  if (!answer && answer.error().kind != AskError::kRefused) {
    complain("ask: " + answer.error().text);
    return kFailed;
  }
  const nlohmann::json reply =
      answer ? *answer : nlohmann::json{{"ok", false}, {"error", answer.error().text}};
  fmt::print("{}\n", reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return answer ? kDone : kFailed;
}

}  // namespace lull::command
