#include "tools/bench/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace lull::bench {

std::optional<nlohmann::json> run_child(const std::string& program,
                                        std::vector<std::string> arguments,
                                        const std::vector<std::string>& given) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return std::nullopt;
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("LULL_", 0) != 0 && text.rfind("LD_", 0) != 0) environment.push_back(text);
  }
  environment.insert(environment.end(), given.begin(), given.end());
  arguments.insert(arguments.begin(), program);
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& text : strings) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  pid_t child = 0;
  const int error = posix_spawn(&child, program.c_str(), &actions, nullptr,
                                pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; error == 0 && (n = read(out[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(out[0]);
  if (error != 0) return std::nullopt;
  int status = 0;
  waitpid(child, &status, 0);
  auto result = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (status != 0 || result.is_discarded()) return std::nullopt;
  return result;
}

}  // namespace lull::bench
