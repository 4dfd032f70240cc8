#include "coordinator/daemon/log.h"

#include <unistd.h>

namespace lull::daemon {

std::string printable(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

void Log::line(std::string_view text) const {
  if (silent_) return;
  const std::string out = "lulld: " + printable(text) + "\n";
  // One write, so that lines of several processes do not mix; a closed stderr is nobody's error.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, out.data(), out.size());
}

void Log::detail(std::string_view text) const {
  if (verbose_) line(text);
}

}  // namespace lull::daemon
