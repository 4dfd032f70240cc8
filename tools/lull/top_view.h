// What `lull top` shows, from the daemon's answer to `status`: text lines, none wider than asked.
// Pure; called by top.cc and by tests. Fields that a daemon leaves out show as "-".
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lull::command {

inline constexpr size_t kNarrowest = 20;

struct TopLine {
  std::string text;
  bool heading = false;  // column names: shown inverted in a terminal
};

// Where not everything fits, whole columns go, the least telling first, and names are shortened. Ends
// with the sentence of status_verdict().
std::vector<TopLine> top_lines(const nlohmann::json& status, size_t width);

}  // namespace lull::command
