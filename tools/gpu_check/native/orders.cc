#include "tools/gpu_check/native/orders.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace lull::probe {

bool Orders::waiting() const {
  if (ended_ || read_.find('\n') != std::string::npos) return true;
  pollfd in{STDIN_FILENO, POLLIN, 0};
  return poll(&in, 1, 0) > 0;
}

std::optional<std::string> Orders::next() {
  for (;;) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      std::string order = read_.substr(0, end);
      read_.erase(0, end + 1);
      return order;
    }
    if (ended_) return std::nullopt;
    char part[4096];
    const ssize_t got = read(STDIN_FILENO, part, sizeof part);
    if (got > 0) {
      read_.append(part, static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      ended_ = true;
    }
  }
}

void answer(const nlohmann::json& what) {
  std::printf("%s\n", what.dump().c_str());
  std::fflush(stdout);
}

}  // namespace lull::probe
