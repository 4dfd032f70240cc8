#include "policies/launch/registry.h"

#include <charconv>

#include "policies/launch/exclusive.h"
#include "policies/launch/fikit.h"
#include "policies/launch/guarded.h"
#include "policies/launch/priority.h"
#include "policies/launch/share.h"
#include "policies/launch/task_guard.h"
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
       {"parts", kGuardParts, 1, kGuardParts},
       {kMaxHoldKey, 30'000, 0, 3'600'000}}},
     ProgressNeed::kBetweenLevels,
     Holding::kByPrediction,
     make_guarded,
     Predictor::kBest},
};

std::string_view next_word(std::string_view& text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) {
    text = {};
    return {};
  }
  text.remove_prefix(begin);
  const size_t length = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(length);
  return word;
}

// What a user typed, fit for one line: cut, and with unprintable bytes replaced.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + "'";
}

std::string names_of(std::span<const PolicyRow> rows) {
  std::string names;
  for (const PolicyRow& row : rows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

std::string settings_of(const PolicyRow& row) {
  std::string keys;
  for (const Setting& setting : row.settings) {
    if (setting.key.empty()) break;
    if (!keys.empty()) keys += ", ";
    keys += setting.key;
    keys += "=" + std::to_string(setting.preset);
  }
  return keys.empty() ? "it has none" : "it has " + keys;
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
    return std::unexpected("unknown policy " + quoted(name) + ": one of " + names_of(rows));
  }
  const PolicyRow& row = *choice.row;
  for (size_t i = 0; i < kMaxSettings; ++i) choice.values[i] = row.settings[i].preset;
  std::array<bool, kMaxSettings> given{};
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    size_t i = 0;
    while (i < kMaxSettings && (row.settings[i].key.empty() || row.settings[i].key != key)) ++i;
    if (i == kMaxSettings) {
      return std::unexpected("policy " + std::string(name) + " has no setting " + quoted(key) +
                             ": " + settings_of(row));
    }
    const Setting& setting = row.settings[i];
    const std::string_view number = word.substr(std::min(equals + 1, word.size()));
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc{} || end != number.data() + number.size() || value < setting.lowest ||
        value > setting.highest) {
      return std::unexpected("policy setting " + quoted(word) + ": " + std::string(key) +
                             " takes a whole number from " + std::to_string(setting.lowest) +
                             " to " + std::to_string(setting.highest));
    }
    if (given[i]) {
      return std::unexpected("policy setting " + std::string(key) +
                             " is given twice: give it once");
    }
    given[i] = true;
    choice.values[i] = value;
  }
  choice.text = std::string(name);
  for (size_t i = 0; i < kMaxSettings && !row.settings[i].key.empty(); ++i) {
    choice.text += " " + std::string(row.settings[i].key) + "=" + std::to_string(choice.values[i]);
    if (row.settings[i].key == kMaxHoldKey) {
      choice.max_hold = Duration{choice.values[i] * 1'000'000};
    }
  }
  return choice;
}

std::expected<std::string, std::string> check_policy(std::string_view text) {
  auto choice = parse_policy(text);
  if (!choice) return std::unexpected(std::move(choice.error()));
  return std::move(choice->text);
}

}  // namespace lull::policies
