#include "tools/lull/command.h"

namespace lull::command {

void complain(std::string_view text) {
  std::string line = fmt::format("lull: {}", text);
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  fmt::print(stderr, "{}\n", line);
}

std::optional<int> parse_words(CLI::App& app, const Words& words, int usage_code) {
  const std::string name = app.get_name().substr(std::string_view("lull ").size());
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(reversed);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kDone;
  } catch (const CLI::ParseError& error) {
    complain(fmt::format("{}: {}: see `lull {} --help`", name, error.what(), name));
    return usage_code;
  }
}

}  // namespace lull::command
