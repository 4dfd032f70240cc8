#include "policies/launch/registry.h"

#include "policies/launch/exclusive.h"
#include "policies/launch/fikit.h"
#include "policies/launch/guarded/guarded.h"
#include "policies/launch/priority.h"
#include "policies/launch/share.h"
#include "policies/launch/time_slice.h"

namespace lull::policies {
namespace {

constexpr Setting kMaxHold{kMaxHoldKey, 100, 0, 3'600'000};

constexpr PolicyRow kRows[] = {
    {"share", {}, ProgressNeed::kNever, Holding::kNothing, make_share},
    {"exclusive", {}, ProgressNeed::kNever, Holding::kByOrder, make_exclusive},
    {"time_slice",
     {{{"quantum_us", 30'000, 100, 10'000'000}}},
     ProgressNeed::kBetweenJobs,
     Holding::kByOrder,
     make_time_slice},
    {"priority",
     {{{"in_flight_us", 50, 1, 10'000'000}, kMaxHold}},
     ProgressNeed::kBetweenLevels,
     Holding::kByPrediction,
     make_priority},
    {"fikit",
     {{{"epsilon_us", 10, 0, 1'000'000}, {"switch_cost_us", 0, 0, 1'000'000}, kMaxHold}},
     ProgressNeed::kBetweenLevels,
     Holding::kByPrediction,
     make_fikit},
    // Slowdowns and floor in thousandths.
    {"guarded",
     {{{"mean_per_mille", 30, 0, 10'000},
       {"p99_per_mille", 50, 0, 10'000},
       {"floor_per_mille", 0, 0, 500},
       {"switch_cost_us", 0, 0, 1'000'000},
       {kMaxHoldKey, 30'000, 0, 3'600'000}}},
     ProgressNeed::kBetweenLevels,
     Holding::kByPrediction,
     make_guarded,
     Predictor::kBest},
};

std::string names_of(std::span<const PolicyRow> rows) {
  std::string names;
  for (const PolicyRow& row : rows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace

std::span<const PolicyRow> policy_rows() { return kRows; }

std::expected<PolicyChoice, std::string> parse_policy(std::string_view text,
                                                      std::span<const PolicyRow> rows) {
  const std::string_view name = next_word(text);
  PolicyChoice choice;
  for (const PolicyRow& row : rows) {
    if (row.name == name) choice.row = &row;
  }
  if (choice.row == nullptr) {
    return std::unexpected("unknown policy " + quoted(name) + ": one of " + names_of(policy_rows()));
  }
  const PolicyRow& row = *choice.row;
  const auto values = parse_settings(name, row.settings, text);
  if (!values) return std::unexpected(values.error());
  choice.values = *values;
  choice.text = settings_text(name, row.settings, *values);
  choice.max_hold = Duration{values->find(kMaxHoldKey).value_or(0) * 1'000'000};
  return choice;
}

std::expected<std::string, std::string> check_policy(std::string_view text) {
  auto choice = parse_policy(text);
  if (!choice) return std::unexpected(std::move(choice.error()));
  return std::move(choice->text);
}

}  // namespace lull::policies
