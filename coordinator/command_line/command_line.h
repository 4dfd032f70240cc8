// What a program of lull reads from its command line: named options, positional words, subcommands.
//
// Called by: the main thread of each program (lull, lulld, lull-play, lull-bench, the device
// probe), once. CLI11 does the work, in command_line.cc alone: it is large, and every file that
// includes it takes half a minute longer to compile. Nothing here prints or exits; the caller says
// what `Stop::text` is and which exit code follows.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lull {

// Alone on a command line, in place of --help: the same descriptions as JSON, from which
// tools/manual makes the manual pages and completions. Not in the help.
//   {"name":"lull run","what":"..","options":[{"names":["-o","--output"],"positional":false,
//    "what":"..","value":"FILE","takes_value":true,"needs_value":true,"several":false,
//    "required":false,"choices":["a","b"]}],"commands":[the same of each subcommand]}
inline constexpr std::string_view kDescribeWord = "--describe-options";

// One option, flag or positional word. A handle: copies mean the same option, which lives as long
// as its CommandLine.
class Option {
 public:
  Option required() const;
  // The value must lie in [low, high]; both ends are allowed.
  template <std::integral T, std::integral U>
  Option range(T low, U high) const {
    return integer_range(static_cast<int64_t>(low), static_cast<int64_t>(high));
  }
  Option range(double low, double high) const;
  Option one_of(std::initializer_list<const char*> words) const;
  // May be given several times, with one value each; for a vector that would take all words
  // that follow otherwise.
  Option repeated() const;
  // May be given without a value: that is `otherwise`.
  Option optional_value(std::string otherwise = "") const;
  Option excludes(Option other) const;
  Option needs(Option other) const;
  // What stands for the value in the help, as FILE.
  Option value_name(std::string name) const;
  // Left out of the help.
  Option hidden() const;

  // Whether it was on the command line; of use after parse().
  explicit operator bool() const;

 private:
  friend class CommandLine;
  explicit Option(CLI::Option* option) : option_(option) {}
  Option integer_range(int64_t low, int64_t high) const;

  CLI::Option* option_;
};

class CommandLine {
 public:
  // Why there is nothing more to do: `help` (or the version) was asked for and is `text`, or the
  // words are wrong and `text` says how, in a line without an end.
  struct Stop {
    bool wrong = false;
    std::string text;
  };

  // `name` is what the help calls the program, as "lull run".
  CommandLine(std::string description, std::string name);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // `names`: "-o,--output", or a word without dashes for a positional one. `value` keeps what it
  // holds where the option is not given; it must live until parse() has returned.
  // T: std::string, std::vector<std::string>, int, uint32_t, uint64_t, double.
  template <typename T>
  Option option(std::string names, T& value, std::string what = "");
  Option flag(std::string names, bool& value, std::string what = "");
  // A flag that may have a value: "--sim{default}" alone gives "default", --sim=mps gives "mps".
  Option flag(std::string names, std::string& value, std::string what = "");
  // --version gives `text`, of the subcommands that there are, too.
  void version(std::string text);

  // A subcommand. It lives as long as this one.
  CommandLine& command(std::string name, std::string what);
  // One of the subcommands has to be given.
  void require_command();
  // Of a subcommand: whether it is the one that was given.
  bool given() const;

  // Reads the words after the program's name. Empty: go on.
  std::optional<Stop> parse(const std::vector<std::string>& words);

  // Whether `word` (as "--policy") is an option that takes the next word as its value.
  bool takes_value(std::string_view word) const;
  // How many options and words were given; of use after parse().
  size_t given_count() const;
  // Without the program before it: "run" of "lull run".
  std::string short_name() const;

 private:
  explicit CommandLine(CLI::App* app);

  std::unique_ptr<CLI::App> owned_;  // null in a subcommand
  CLI::App* app_;
  std::vector<std::unique_ptr<CommandLine>> commands_;
};

}  // namespace lull
