#include "policies/settings.h"

#include <algorithm>
#include <charconv>

namespace lull::policies {
namespace {

std::string presets_of(const Settings& settings) {
  std::string keys;
  for (const Setting& setting : settings) {
    if (setting.key.empty()) break;
    if (!keys.empty()) keys += ", ";
    keys += setting.key;
    keys += "=" + std::to_string(setting.preset);
  }
  return keys.empty() ? "it has none" : "it has " + keys;
}

}  // namespace

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

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + "'";
}

SettingValues::SettingValues(const Settings& settings) {
  for (size_t i = 0; i < kMaxSettings; ++i) values_[i] = {settings[i].key, settings[i].preset};
}

void SettingValues::set(std::string_view key, int64_t value) {
  for (Value& at : values_) {
    if (at.key != key && !at.key.empty()) continue;
    at = {key, value};
    return;
  }
}

std::optional<int64_t> SettingValues::find(std::string_view key) const {
  for (const Value& value : values_) {
    if (value.key == key) return value.value;
  }
  return std::nullopt;
}

std::expected<SettingValues, std::string> parse_settings(std::string_view name,
                                                         const Settings& settings,
                                                         std::string_view text) {
  SettingValues values(settings);
  std::array<bool, kMaxSettings> given{};
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    size_t i = 0;
    while (i < kMaxSettings && (settings[i].key.empty() || settings[i].key != key)) ++i;
    if (i == kMaxSettings) {
      return std::unexpected("policy " + std::string(name) + " has no setting " + quoted(key) +
                             ": " + presets_of(settings));
    }
    const Setting& setting = settings[i];
    const std::string_view number = word.substr(std::min(equals + 1, word.size()));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
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
    values.set(setting.key, value);
  }
  return values;
}

std::string settings_text(std::string_view name, const Settings& settings,
                          const SettingValues& values) {
  std::string text(name);
  for (size_t i = 0; i < kMaxSettings && !settings[i].key.empty(); ++i) {
    text += " " + std::string(settings[i].key) + "=" + std::to_string(values[settings[i].key]);
  }
  return text;
}

}  // namespace lull::policies
