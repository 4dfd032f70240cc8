// What `--json` means, the same for every command: alone it prints JSON in place of the text; as
// --json=FILE it writes the JSON into FILE, and the text is printed as ever.
//
// Called by: the subcommands that have it, on the main thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tools/lull/command.h"

namespace lull::command {

class JsonOutput {
 public:
  // `after_blank`: for commands without words of their own, which take `--json FILE` too.
  Option add_to(CommandLine& line, bool after_blank = false);

  // Of use after the words were parsed.
  bool asked() const { return !file_.empty(); }
  bool replaces_text() const { return file_ == "-"; }
  // Whether it can be written; false: one line on stderr says why not. For commands that take long.
  bool check(std::string_view command) const;
  // Prints or writes it, `indent` blanks a level (-1: one line); nothing where it was not asked for.
  // False: one line on stderr.
  template <typename Json>
  bool write(std::string_view command, const Json& json, int indent = 2) {
    return !asked() || write_text(command, json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
  }

 private:
  bool write_text(std::string_view command, const std::string& text);

  std::string file_;     // "-": standard output
  bool begun_ = false;  // what is written next follows it
};

}  // namespace lull::command
