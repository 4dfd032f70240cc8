// What `lull status` shows, from the daemon's answer to `status`. Pure; called by status.cc,
// top_view.cc and tests. Fields that a daemon leaves out show as "-".
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace lull::command {

// How a simulated GPU is shared; that there is none yet, where lulld does not know.
std::string simulated_gpu(const nlohmann::json& status);

// The whole text, in lines of at most `width` characters.
std::string status_text(const nlohmann::json& status, size_t width);

// One sentence: how many programs share how many GPUs, who is held by whom now, and what needs a
// person's attention.
std::string status_verdict(const nlohmann::json& status);

}  // namespace lull::command
