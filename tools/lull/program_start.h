// A program as `lull run` and `lull trace record` start it: found, checked, with the environment in
// which it runs under lull. Called once by each, on the main thread; starts nothing itself but by
// `become`.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "tools/lull/command.h"
#include "tools/lull/installed.h"
#include "tools/lull/launch_environment.h"

namespace lull::command {

// How many of `words` are lull's own: up to the program's name. Options that take a value are
// known from `line`, so that `--name x prog --name y` is cut before `prog`. A `--` is dropped.
size_t own_words(const CommandLine& line, const Words& words, bool& marker);

struct ProgramStart {
  std::string file;
  Words words;
  Environment environment;
  bool no_driver = false;  // neither NVIDIA's here, nor a simulated one asked for
};
inline constexpr const char* kNoDriver = "no NVIDIA driver here (libcuda.so.1 is not found)";
struct StartError {
  int code = kRunFailed;
  std::string text;  // "what failed: why: what to do", without "lull: run:"
};

// `words`: the program and its arguments, not empty. Reads the file system and the environment.
std::expected<ProgramStart, StartError> prepare_program(const Words& words, LaunchWishes wishes,
                                                        const Installed& parts);

// Takes the place of this process. Returns only when that fails.
StartError become(const ProgramStart& program);

}  // namespace lull::command
