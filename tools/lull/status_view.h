// What `lull status` shows, from the daemon's answer to `status`. Pure; called by status.cc,
// top_view.cc and tests. Fields that a daemon leaves out show as "-".
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace lull::command {

// Of a simulated GPU whose sharing lulld does not know yet.
inline constexpr const char* kNotMade = "simulated GPU: the first program makes it";

// The whole text, in lines of at most `width` characters.
std::string status_text(const nlohmann::json& status, size_t width);

// One sentence: how many programs share how many GPUs, who is held by whom now, and what needs a
// person's attention.
std::string status_verdict(const nlohmann::json& status);

}  // namespace lull::command
