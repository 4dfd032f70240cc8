// The daemon's log: one line a fact, to stderr, "lulld: text". Loop thread and start-up.
// No levels but `verbose`, no files, no time stamps: the service manager adds those.
#pragma once

#include <string>
#include <string_view>

namespace lull::daemon {

class Log {
 public:
  explicit Log(bool verbose, bool silent = false) : verbose_(verbose), silent_(silent) {}
  void line(std::string_view text) const;
  // Only with --verbose.
  void detail(std::string_view text) const;

 private:
  bool verbose_;
  bool silent_;
};

// `text` on one printable line: control characters become '?'. For what clients wrote.
std::string printable(std::string_view text);

}  // namespace lull::daemon
