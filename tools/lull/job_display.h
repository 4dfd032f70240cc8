// A job of lulld's status (coordinator/daemon/job_status.h) in words. Called by `lull status` and
// by the commands that move jobs. Pure; what a daemon leaves out reads as nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lull::command {

// It is not yet where it was sent, and may still get there.
bool is_on_its_way(const nlohmann::json& job);
// "train: leaving, out, 1.2 of 3.0 GiB at 12 GiB/s": one line.
std::string describe_job(const nlohmann::json& job);
// There is something to tell of it beyond that it runs.
bool is_worth_showing(const nlohmann::json& job);
// Of a client's "residence": "swapped out, 3 GB in host memory, 12 MB fixed: managed memory"; empty
// where it cannot be moved.
std::string describe_residence(const nlohmann::json& residence);

}  // namespace lull::command
