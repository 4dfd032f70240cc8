// Values as a user types and reads them: sizes, priorities, sharing models, lengths of time. Pure.
//
// Called by every subcommand and by the simulator. An error is the half line "why: what would be right".
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "policies/vocabulary.h"

namespace lull::command {

// "20G", "512M", "1.5g", "64KiB", "1000000B": bytes, units of 1024. At least 1. A number alone is
// none: nobody who says 20 means 20 bytes.
std::expected<uint64_t, std::string> parse_bytes(std::string_view text);

// "high" or "2": the level, 0 highest .. 9.
std::expected<int, std::string> parse_priority(std::string_view text);

// "3%" or "3%,5%": what a task may lose in the mean and at p99, in tenths of a percent from 0% to
// 1000%. One number is the mean; p99 is then 5/3 of it, as in the preset of 3 % and 5 %.
std::expected<SlowdownBound, std::string> parse_slowdown(std::string_view text);
// {30, 50} -> "3%,5%", as it is typed, and "3 % in the mean and 5 % at p99", as it is read.
std::string show_slowdown(SlowdownBound bound);
std::string describe_slowdown(SlowdownBound bound);

// 2 -> "high", 3 -> "3".
std::string priority_name(int level);

// What `compare` and `simulate` compare when no policy is named.
inline constexpr std::array kComparedPolicies = {"share", "priority", "fikit", "guarded"};

// "time_slice", "mps" or "serial", as the number in a simulated device's file.
std::expected<uint32_t, std::string> parse_sharing(std::string_view text);
std::string_view sharing_name(uint32_t sharing);

// 20 GiB -> "20.0 GiB"; 1'234'000 ns -> "1.23 ms".
std::string show_bytes(uint64_t bytes);
std::string show_ns(double ns);
// 0.312 -> "31.2 %": how every share is shown; in JSON and CSV it stays 0.312. "-" where it is not known.
std::string show_share(double share);

}  // namespace lull::command
