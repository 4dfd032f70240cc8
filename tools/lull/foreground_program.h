// A program that runs in the place of this one, as far as anybody can tell: it keeps the terminal and
// the process group, signals that are sent to us go on to it, and in the end we end as it did. Used
// by `lull trace record`, once a process, on the main thread.
//
// Not passed on: SIGKILL and SIGSTOP, which nobody can catch. If we are killed the program goes on.
#pragma once

#include <sys/types.h>

#include <expected>

#include "tools/lull/program_start.h"

namespace lull::command {

class ForegroundProgram {
 public:
  static std::expected<ForegroundProgram, StartError> start(const ProgramStart& program);
  // Until it has ended; its wait status.
  int wait();

 private:
  explicit ForegroundProgram(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// Ends this process by the signal that ended the program, else returns its exit code.
int end_as(int wait_status);

}  // namespace lull::command
