#include "tools/lull/command.h"

#include <nlohmann/json.hpp>

namespace lull::command {

void complain(std::string_view text) {
  std::string line = fmt::format("lull: {}", text);
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  fmt::print(stderr, "{}\n", line);
}

std::optional<int> parse_words(CommandLine& line, const Words& words, int usage_code) {
  line.version("lull " LULL_VERSION);
  const auto stop = line.parse(words);
  if (!stop) return std::nullopt;
  if (!stop->wrong) {
    fmt::print("{}", stop->text);
    return kDone;
  }
  const std::string name = line.short_name();
  complain(fmt::format("{}: {}: see `lull {} --help`", name, stop->text, name));
  return usage_code;
}

void print_commands(std::FILE* to, std::span<const Command> commands) {
  for (const Command& command : commands) {
    fmt::print(to, "  {:<10} {}\n", command.name, command.what);
  }
}

bool said_description(std::string_view word, std::string_view name, std::string_view what,
                      std::span<const Command> commands) {
  if (word != kDescribeWord) return false;
  nlohmann::ordered_json list = nlohmann::json::array();
  for (const Command& command : commands) {
    list.push_back({{"name", command.name}, {"what", command.what}});
  }
  const nlohmann::ordered_json all = {
      {"name", name}, {"what", what}, {"commands", std::move(list)}};
  fmt::print("{}\n", all.dump(1));
  return true;
}

const Command* find_command(std::span<const Command> commands, std::string_view name,
                            std::string_view of) {
  std::string known;
  for (const Command& command : commands) {
    if (name == command.name) return &command;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", command.name);
  }
  complain(fmt::format("{}'{}' is no command: use one of {}", of, name, known));
  return nullptr;
}

bool said_version(std::string_view word) {
  if (word != "--version") return false;
  fmt::print("lull {}\n", LULL_VERSION);
  return true;
}

bool asks_for_help(std::string_view word) {
  return word == "--help" || word == "-h" || word == "help";
}

}  // namespace lull::command
