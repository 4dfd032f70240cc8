// The launch policies by name: one row each (registry.cc), and the text form that users type.
//
//   name [key=value]...      time_slice quantum_us=30000
//
// Called by the engine and by whoever takes a policy text from a user. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "policies/launch/launch_policy.h"
#include "policies/prediction/predictor.h"
#include "policies/settings.h"

namespace lull::policies {

// When the device must report each completion of the clients on it.
enum class ProgressNeed : uint8_t {
  kNever,
  kBetweenLevels,  // clients of different priority share the device
  kBetweenJobs,    // clients of different jobs share the device
};
// Why a launch is held: by prediction (the watchdog limits that), or by order (it does not).
enum class Holding : uint8_t { kNothing, kByPrediction, kByOrder };

struct PolicyRow {
  std::string_view name;
  std::array<Setting, kMaxSettings> settings;
  ProgressNeed progress = ProgressNeed::kNever;
  Holding holding = Holding::kNothing;
  std::unique_ptr<LaunchPolicy> (*make)(const SettingValues&) = nullptr;
  Predictor predictor = Predictor::kMean;  // says the lengths and pauses that it is told
};
// Watchdog setting: by this key, in ms, 0 for off.
inline constexpr std::string_view kMaxHoldKey = "max_hold_ms";

// A policy text understood.
struct PolicyChoice {
  const PolicyRow* row = nullptr;
  SettingValues values{};
  std::string text;   // normalised: every setting, in the row's order
  Duration max_hold;  // 0: no watchdog
};

// All policies, in the order in which they are listed to a user.
std::span<const PolicyRow> policy_rows();
// The policy of an engine or daemon that is told none.
inline constexpr std::string_view kDefaultPolicy = "guarded";

// An error says in one line what would be right.
[[nodiscard]] std::expected<PolicyChoice, std::string> parse_policy(
    std::string_view text, std::span<const PolicyRow> rows = policy_rows());

// The normalised text, or one line saying what would be right.
[[nodiscard]] std::expected<std::string, std::string> check_policy(std::string_view text);

}  // namespace lull::policies
