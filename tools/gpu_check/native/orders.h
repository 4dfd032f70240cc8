// How a probe is led while it runs: the one who started it writes orders on stdin, a line each, and
// reads an answer to each on stdout, a JSON object in a line. So that one process, with one context
// and one place under MPS, can be asked many things. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lull::probe {

class Orders {
 public:
  // Whether next() would return at once.
  bool waiting() const;
  // The next order, without its end of line; nothing once stdin has ended. Waits.
  std::optional<std::string> next();

 private:
  std::string read_;  // what came and is no whole line yet, or behind one
  bool ended_ = false;
};

// Prints one line, and sees to it that it arrives.
void answer(const nlohmann::json& what);

}  // namespace lull::probe
