#include "tests/shim/probe_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

extern char** environ;

namespace lull::test {
namespace {
constexpr int kAnswerMs = 120'000;
}  // namespace

std::string private_directory() {
  char name[] = "/tmp/lull-shim-test-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  return name;
}

ProbeProcess::ProbeProcess(const Environment& environment) {
  Environment all = environment;
  all.emplace("LD_PRELOAD", LULL_SHIM_PATH);
  all.emplace("LD_LIBRARY_PATH", LULL_PROBE_LIBRARIES);
  std::vector<std::string> text;
  for (auto& [key, value] : all) text.push_back(key + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string inherited = *entry;
    if (inherited.rfind("LULL_", 0) != 0 && inherited.rfind("LD_", 0) != 0) {
      text.push_back(inherited);
    }
  }
  std::vector<char*> pointers;
  for (auto& entry : text) pointers.push_back(entry.data());
  pointers.push_back(nullptr);

  int in[2], out[2];
  REQUIRE(pipe2(in, O_CLOEXEC) == 0);
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  errors_ = memfd_create("probe stderr", MFD_CLOEXEC);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[0], 0);
  posix_spawn_file_actions_adddup2(&files, out[1], 1);
  posix_spawn_file_actions_adddup2(&files, errors_, 2);
  char program[] = LULL_PROBE_PATH;
  char* arguments[] = {program, nullptr};
  REQUIRE(posix_spawn(&pid_, program, &files, nullptr, arguments, pointers.data()) == 0);
  posix_spawn_file_actions_destroy(&files);
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
}

ProbeProcess::~ProbeProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    finish();
  }
  close(errors_);
}

void ProbeProcess::tell(const std::string& command) {
  const std::string line = command + "\n";
  REQUIRE(write(in_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

std::string ProbeProcess::answer() {
  for (;;) {
    const size_t end = buffered_.find('\n');
    if (end != std::string::npos) {
      const std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    pollfd wait{out_, POLLIN, 0};
    if (poll(&wait, 1, kAnswerMs) != 1) return "no answer in two minutes";
    char bytes[4096];
    const ssize_t got = read(out_, bytes, sizeof bytes);
    if (got <= 0) return "end of file";
    buffered_.append(bytes, static_cast<size_t>(got));
  }
}

std::string ProbeProcess::complaints() {
  std::string text(4096, '\0');
  const ssize_t got = pread(errors_, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

int ProbeProcess::finish() {
  if (in_ >= 0) close(in_);
  if (out_ >= 0) close(out_);
  in_ = out_ = -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lull::test
