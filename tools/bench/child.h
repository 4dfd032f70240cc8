// Runs a measured program, which prints one line of JSON, in an environment without anything of
// lull's but what is given.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lull::bench {

// None: it could not be run, failed, or printed something else.
std::optional<nlohmann::json> run_child(const std::string& program,
                                        std::vector<std::string> arguments,
                                        const std::vector<std::string>& environment);

}  // namespace lull::bench
