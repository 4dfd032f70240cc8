// Processes that `lull compare` starts, and what must be gone when it ends. Each child leads a
// process group of its own and gets a signal when compare dies, however it dies. The destructor
// ends the child and reaps it. Used by one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lull::command {

struct ChildStart {
  std::vector<std::string> words;           // words[0]: path of the executable
  std::map<std::string, std::string> set;   // added to the environment
  std::vector<std::string> unset_prefixes;  // variables with these prefixes are taken out before
  std::string output_file;                  // stdout and stderr
};

class ChildProcess {
 public:
  static std::expected<std::unique_ptr<ChildProcess>, std::string> start(const ChildStart& what);
  ~ChildProcess();  // SIGKILL to the whole group
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The wait status once the leader has ended; does not wait.
  std::optional<int> ended();
  // SIGTERM, then after `grace` SIGKILL; returns when the leader is gone.
  void end(std::chrono::milliseconds grace);
  // The last line it wrote, for error messages.
  std::string last_words() const;
  // "exit code 3: last line", "killed by signal 9".
  std::string how_it_ended();

 private:
  ChildProcess(pid_t pid, std::string output_file)
      : pid_(pid), output_file_(std::move(output_file)) {}
  pid_t pid_;
  std::string output_file_;
  std::optional<int> status_;
};

// While it lives, SIGINT, SIGTERM and SIGHUP do not end the process but are remembered.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  static int seen();  // the signal, or 0
};

// A private folder, removed with its content at the end. If a killed process has left one (its pid
// is gone and nobody holds its lock), it is removed when the next is made.
class ScratchFolder {
 public:
  static std::expected<std::unique_ptr<ScratchFolder>, std::string> make();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  ScratchFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;  // flock on the folder: held as long as it is in use
};

}  // namespace lull::command
