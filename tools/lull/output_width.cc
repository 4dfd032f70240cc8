#include "tools/lull/output_width.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace lull::command {

size_t output_width(size_t otherwise) {
  constexpr size_t kMost = 10'000;
  if (const char* told = std::getenv("COLUMNS")) {
    size_t columns = 0;
    const char* end = told + std::strlen(told);
    const auto [rest, error] = std::from_chars(told, end, columns);
    if (error == std::errc{} && rest == end && columns > 0 && columns <= kMost) return columns;
  }
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return otherwise;
}

}  // namespace lull::command
