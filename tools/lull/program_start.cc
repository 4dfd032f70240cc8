#include "tools/lull/program_start.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/lull/program_check.h"

extern char** environ;

namespace lull::command {
namespace {

Environment current_environment() {
  Environment all;
  for (char** entry = environ; entry && *entry; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals) all.emplace(std::string(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
  }
  return all;
}

}  // namespace

size_t own_words(const CommandLine& line, const Words& words, bool& marker) {
  marker = false;
  for (size_t n = 0; n < words.size(); ++n) {
    const std::string& word = words[n];
    if (word == "--") {
      marker = true;
      return n;
    }
    if (word.size() < 2 || word[0] != '-') return n;
    if (word.find('=') != std::string::npos) continue;
    if (line.takes_value(word)) ++n;
  }
  return words.size();
}

std::expected<ProgramStart, StartError> prepare_program(const Words& words, LaunchWishes wishes,
                                                        const Installed& parts) {
  const auto fail = [](const std::string& text, int code = kRunFailed) {
    return std::unexpected(StartError{code, text});
  };
  const Environment before = current_environment();
  const auto path = before.find("PATH");
  const auto file = find_program(words[0], path == before.end() ? "/usr/bin:/bin" : path->second);
  if (!file) {
    const bool missing = file.error() == ENOENT;
    return fail(
        fmt::format("'{}': {}", words[0],
                    missing ? "no such program: check the name and PATH"
                            : "cannot be executed: check that it is a file with x permission"),
        missing ? kNotFound : kCannotInvoke);
  }
  if (access(parts.shim.c_str(), R_OK) != 0) {
    return fail(
        fmt::format("{}: {}: build or install lull whole", parts.shim, std::strerror(errno)));
  }
  if (parts.shim.find_first_of(" :") != std::string::npos) {
    return fail(
        fmt::format("'{}': LD_PRELOAD allows no space or colon in a path: move lull", parts.shim));
  }
  if (wishes.simulate) {
    const std::string driver = parts.sim_folder + "/libcuda.so.1";
    if (access(driver.c_str(), R_OK) != 0) {
      return fail(fmt::format("no simulated driver at {}: build target simgpu_cuda", driver));
    }
  }
  const bool no_driver =
      !wishes.simulate && dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr;
  if (const auto real = real_executable(*file)) {
    if (const auto facts = read_elf_file(*real)) wishes.has_asan = facts->needs("libasan.so");
  }
  return ProgramStart{*file, words, launch_environment(before, wishes, parts), no_driver};
}

StartError become(const ProgramStart& program) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : program.environment) entries.push_back(name + "=" + value);
  std::vector<char*> envp, argv;
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  for (const std::string& word : program.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  // execvpe, because it runs a script without #! as a shell would.
  environ = envp.data();
  execvpe(program.file.c_str(), argv.data(), envp.data());
  const int error = errno;
  return {error == ENOENT ? kNotFound : kCannotInvoke,
          fmt::format("'{}': {}", program.file, std::strerror(error))};
}

}  // namespace lull::command
