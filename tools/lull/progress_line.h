// One line on stderr that is rewritten in place while something takes long. Where stderr is no
// terminal it shows nothing.
//
// Called by: commands that take long, on the main thread.
#pragma once

#include <unistd.h>

#include <string_view>

#include "tools/lull/command.h"

namespace lull::command {

class ProgressLine {
 public:
  ~ProgressLine() { clear(); }
  bool is_shown() const { return terminal_; }
  void show(std::string_view text) {
    if (!terminal_) return;
    fmt::print(stderr, "\r\033[Klull: {}", text);
    std::fflush(stderr);
    dirty_ = true;
  }
  void clear() {
    if (!dirty_) return;
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    dirty_ = false;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool dirty_ = false;
};

}  // namespace lull::command
