#include "tools/lull/compare/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

extern char** environ;

namespace lull::command {
namespace {

constexpr std::chrono::milliseconds kEndPoll{5};
constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr const char* kScratchPrefix = "lull-compare.";

volatile sig_atomic_t stop_signal = 0;
struct sigaction old_actions[std::size(kStopSignals)];

void remember(int signal) { stop_signal = signal; }

std::string scratch_parent() {
  if (const char* told = std::getenv("TMPDIR"); told && access(told, W_OK | X_OK) == 0) return told;
  // In memory: the simulated device's file is written all the time.
  return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

}  // namespace

std::expected<std::unique_ptr<ChildProcess>, std::string> ChildProcess::start(
    const ChildStart& what) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    bool out = false;
    for (const std::string& prefix : what.unset_prefixes) out |= text.starts_with(prefix);
    if (!out) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : what.set) variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  std::vector<char*> envp, argv;
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  for (const std::string& word : what.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return std::unexpected(fmt::format("no new process: {}", std::strerror(errno)));
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(125);
    for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(what.output_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(125);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  setpgid(pid, pid);
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, what.output_file));
}

ChildProcess::~ChildProcess() {
  kill(-pid_, SIGKILL);
  if (!status_) {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

std::optional<int> ChildProcess::ended() {
  if (!status_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  }
  return status_;
}

void ChildProcess::end(std::chrono::milliseconds grace) {
  if (ended()) return;
  kill(-pid_, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + grace;
  while (!ended()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      kill(-pid_, SIGKILL);
      int status = 0;
      while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
      status_ = status;
      return;
    }
    std::this_thread::sleep_for(kEndPoll);
  }
}

std::string ChildProcess::last_words() const {
  std::ifstream in(output_file_);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::string ChildProcess::how_it_ended() {
  const auto status = ended();
  if (!status) return "still runs";
  std::string last = last_words();
  if (last.starts_with("lull: ")) last = last.substr(6);
  const std::string how = WIFSIGNALED(*status)
                              ? fmt::format("ended by signal {}", WTERMSIG(*status))
                              : fmt::format("exit code {}", WEXITSTATUS(*status));
  return last.empty() ? how : fmt::format("{}: {}", how, last);
}

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = remember;
  for (size_t n = 0; n < std::size(kStopSignals); ++n) {
    sigaction(kStopSignals[n], &action, &old_actions[n]);
  }
}
StopSignals::~StopSignals() {
  for (size_t n = 0; n < std::size(kStopSignals); ++n) {
    sigaction(kStopSignals[n], &old_actions[n], nullptr);
  }
}
int StopSignals::seen() { return stop_signal; }

std::expected<std::unique_ptr<ScratchFolder>, std::string> ScratchFolder::make() {
  const std::string parent = scratch_parent();
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kScratchPrefix)) continue;
    const long pid = std::strtol(name.c_str() + std::strlen(kScratchPrefix), nullptr, 10);
    if (pid <= 0 || kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH) continue;
    const int lock = open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0) continue;
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(entry.path(), ignored);
    close(lock);
  }
  std::string path = fmt::format("{}/{}{}.XXXXXX", parent, kScratchPrefix, getpid());
  if (mkdtemp(path.data()) == nullptr) {
    return std::unexpected(
        fmt::format("no folder {}: {}: set TMPDIR to a writable one", path, std::strerror(errno)));
  }
  const int lock = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock >= 0) flock(lock, LOCK_EX | LOCK_NB);
  return std::unique_ptr<ScratchFolder>(new ScratchFolder(path, lock));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace lull::command
