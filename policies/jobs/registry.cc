#include "policies/jobs/registry.h"

#include "policies/jobs/fifo.h"
#include "policies/jobs/gandiva.h"
#include "policies/jobs/las.h"
#include "policies/jobs/static.h"
#include "policies/jobs/time_slice.h"

namespace lull::jobs {
namespace {

constexpr Setting kQuantum{"quantum_s", 60, 1, 86'400};

constexpr JobPolicyRow kRows[] = {
    {"static",
     {},
     false,
     false,
     make_static,
     "a job stays where it starts; GPUs are shared as memory allows"},
    {"fifo",
     {{{"skip", 0, 0, 1}}},
     false,
     false,
     make_fifo,
     "GPUs of its own, in the order of arrivals, to the end"},
    {"time_slice", {{kQuantum}}, true, false, make_time_slice, "turns on GPUs of its own"},
    {"las",
     {{{"threshold_gpu_s", 57600, 1, 1'000'000'000}}},
     true,
     false,
     make_las,
     "least attained service in two queues, after Tiresias"},
    {"gandiva",
     {{kQuantum,
       {"pack_most", 8, 1, 64},
       {"margin_per_mille", 50, 0, 1000},
       {"grow_after_s", 60, 0, 86'400},
       {"level_gpu_s", 600, 1, 1'000'000'000},
       {"survivors_first", 0, 0, 1}}},
     true,
     true,
     make_gandiva,
     "turns, packs that are measured, migration, elastic jobs"},
};

}  // namespace

std::span<const JobPolicyRow> job_policy_rows() { return kRows; }

std::expected<JobPolicyChoice, std::string> parse_job_policy(std::string_view text) {
  std::string_view rest = text;
  const std::string_view name = policies::next_word(rest);
  const JobPolicyRow* row = nullptr;
  std::string names;
  for (const JobPolicyRow& one : kRows) {
    if (one.name == name) row = &one;
    if (!names.empty()) names += ", ";
    names += one.name;
  }
  if (row == nullptr) {
    return std::unexpected("unknown job policy " + policies::quoted(name) + ": one of " + names);
  }
  auto values = policies::parse_settings(name, row->settings, rest);
  if (!values) return std::unexpected(std::move(values.error()));
  return JobPolicyChoice{row, *values, policies::settings_text(name, row->settings, *values)};
}

}  // namespace lull::jobs
