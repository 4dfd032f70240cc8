#include "tools/lull/json_output.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace lull::command {
namespace {

constexpr const char* kWhat = "print JSON, or write it: --json=FILE";

bool cannot_write(std::string_view command, const std::string& file) {
  complain(fmt::format("{}: --json: {}: {}: name a file that can be written", command, file,
                       std::strerror(errno)));
  return false;
}

}  // namespace

Option JsonOutput::add_to(CommandLine& line, bool after_blank) {
  if (after_blank)
    return line.option("--json", file_, kWhat).value_name("FILE").optional_value("-");
  return line.flag("--json{-}", file_, kWhat).value_name("FILE");
}

bool JsonOutput::check(std::string_view command) const {
  if (!asked() || replaces_text()) return true;
  return std::ofstream(file_, std::ios::app) ? true : cannot_write(command, file_);
}

bool JsonOutput::write_text(std::string_view command, const std::string& text) {
  if (replaces_text()) {
    fmt::print("{}", text);
    std::fflush(stdout);
    return true;
  }
  std::ofstream out(file_, begun_ ? std::ios::app : std::ios::trunc);
  begun_ = true;
  out << text;
  return out.flush() ? true : cannot_write(command, file_);
}

}  // namespace lull::command
