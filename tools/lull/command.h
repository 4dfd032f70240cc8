// The subcommands of `lull`: what each file offers to main.cc, and how all of them fail.
//
// Called by: main.cc, once, on the main thread; each gets the words after its own name and
// returns the exit code (0 done, 1 failed, 2 wrong usage; `run` 125 instead of both).
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/command_line/command_line.h"

namespace lull::command {

using Words = std::vector<std::string>;

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRunFailed = 125;  // as env(1)
inline constexpr int kCannotInvoke = 126;
inline constexpr int kNotFound = 127;

int run_main(const Words& words);
int status_main(const Words& words);
int top_main(const Words& words);
int profile_main(const Words& words);
int policy_main(const Words& words);
int priority_main(const Words& words);
int suspend_main(const Words& words);
int resume_main(const Words& words);
int migrate_main(const Words& words);
int pin_main(const Words& words);
int resize_main(const Words& words);
int discover_main(const Words& words);
int ask_main(const Words& words);
int doctor_main(const Words& words);
int compare_main(const Words& words);
int simulate_main(const Words& words);
int simulate_cluster_main(const Words& words);  // `simulate cluster`
int trace_main(const Words& words);

struct Command {
  const char* name;
  const char* what;
  int (*main)(const Words&);
};
void print_commands(std::FILE* to, std::span<const Command> commands);
// Whether `word` asks for the descriptions behind the help (kDescribeWord); then they were printed, of
// `name` and its commands. Each command describes itself when it is asked.
bool said_description(std::string_view word, std::string_view name, std::string_view what,
                      std::span<const Command> commands);
// The one of that name; null, and a line that names them all, where there is none. `of`: before
// that line, as "trace: ".
const Command* find_command(std::span<const Command> commands, std::string_view name,
                            std::string_view of = "");
bool asks_for_help(std::string_view word);

// One line on stderr: "lull: " + text.
void complain(std::string_view text);

// Whether `word` asks for the version; then it was printed.
bool said_version(std::string_view word);

// Parses `words`; the command line's name is "lull NAME". Empty: go on. Otherwise the exit code:
// help or the version was printed (0), or one line said what is wrong with the words (`usage_code`).
std::optional<int> parse_words(CommandLine& line, const Words& words, int usage_code = kUsage);

}  // namespace lull::command
