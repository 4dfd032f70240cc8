#include "tools/lull/foreground_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lull::command {
namespace {

// A terminal sends these to the whole foreground group, the program included; others send them to
// us and mean the program.
constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr int kSignalExit = 128;

volatile sig_atomic_t program_pid = 0;

void pass_on(int signal, siginfo_t* from, void*) {
  const int before = errno;
  if (from->si_code <= 0 && program_pid > 0) kill(program_pid, signal);
  errno = before;
}

}  // namespace

std::expected<ForegroundProgram, StartError> ForegroundProgram::start(const ProgramStart& program) {
  // What the program fails to do before it is one comes back through this pipe.
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return std::unexpected(StartError{kRunFailed, fmt::format("no pipe: {}", std::strerror(errno))});
  }
  sigset_t passed, before;
  sigemptyset(&passed);
  for (const int signal : kPassedOn) sigaddset(&passed, signal);
  sigprocmask(SIG_BLOCK, &passed, &before);
  const pid_t pid = fork();
  if (pid == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const StartError error = become(program);
    const int code = error.code;
    if (write(report[1], &code, sizeof code) < 0) { /* its exit code says it too */ }
    _exit(code);
  }
  const int fork_error = errno;
  close(report[1]);
  if (pid < 0) {
    close(report[0]);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::unexpected(
        StartError{kRunFailed, fmt::format("no new process: {}", std::strerror(fork_error))});
  }
  program_pid = pid;
  for (const int signal : kPassedOn) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;  // nohup
    struct sigaction action {};
    action.sa_sigaction = pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  int code = 0;
  ssize_t got;
  while ((got = read(report[0], &code, sizeof code)) < 0 && errno == EINTR) {
  }
  close(report[0]);
  if (got != static_cast<ssize_t>(sizeof code)) return ForegroundProgram(pid);
  ForegroundProgram(pid).wait();
  return std::unexpected(StartError{
      code, fmt::format("'{}': {}", program.file,
                        code == kNotFound ? "no such program, or its interpreter is missing"
                                          : "cannot be executed: is it a program of this machine?")});
}

int ForegroundProgram::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  program_pid = 0;
  return status;
}

int end_as(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  const int signal = WTERMSIG(wait_status);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  std::fflush(nullptr);
  raise(signal);
  return kSignalExit + signal;
}

}  // namespace lull::command
