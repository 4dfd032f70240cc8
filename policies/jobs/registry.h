// The job policies by name: one row each (registry.cc), and the text form that users type, as for
// the launch policies (policies/launch/registry.h):
//
//   name [key=value]...      time_slice quantum_s=60
//
// Called by whoever carries job decisions out, and by whoever takes a policy text from a user.
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "policies/jobs/job_policy.h"
#include "policies/settings.h"

namespace lull::jobs {

using policies::kMaxSettings;
using policies::Setting;
using policies::SettingValues;

struct JobPolicyRow {
  std::string_view name;
  std::array<Setting, kMaxSettings> settings;
  // Suspends less important jobs for a more important one that waits.
  bool preemptive = false;
  bool sizes_jobs = false;  // gives elastic jobs idle GPUs, and takes them back
  std::unique_ptr<JobPolicy> (*make)(const SettingValues&) = nullptr;
  std::string_view what;  // in half a line, for the help
};

struct JobPolicyChoice {
  const JobPolicyRow* row = nullptr;
  SettingValues values{};
  std::string text;  // normalised: every setting, in the row's order
};

std::span<const JobPolicyRow> job_policy_rows();
inline constexpr std::string_view kDefaultJobPolicy = "static";

// An error says in one line what would be right.
[[nodiscard]] std::expected<JobPolicyChoice, std::string> parse_job_policy(std::string_view text);

}  // namespace lull::jobs
