// Pairs of clients that cannot share a device, of lulld's status, in words. Called by `lull status`
// and `lull doctor`. Pure; what a daemon leaves out reads as nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lull::command {

// One line for each more important client that this one, of the status's clients, cannot share a
// device with: "cannot share device 0 with serve (3): its longest kernel takes 12.6 ms, serve can
// wait 600 us".
std::vector<std::string> describe_unsharable(const nlohmann::json& status,
                                             const nlohmann::json& client);

}  // namespace lull::command
