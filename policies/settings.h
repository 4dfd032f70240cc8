// Settings of a policy as a user types them: `key=value` words after the policy's name. Shared by
// the registries of the launch policies and of the job policies. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

namespace lull::policies {

inline constexpr size_t kMaxSettings = 6;

// A whole number that the text may set. An empty key ends a row's list.
struct Setting {
  std::string_view key;
  int64_t preset = 0;
  int64_t lowest = 0;
  int64_t highest = 0;
};
using Settings = std::array<Setting, kMaxSettings>;
// What a text sets, or the presets. By the settings' names, which must outlive it.
class SettingValues {
 public:
  SettingValues() = default;
  explicit SettingValues(const Settings& settings);
  // Nothing where the row has no such setting.
  std::optional<int64_t> find(std::string_view key) const;
  // The row has this setting: else std::bad_optional_access.
  int64_t operator[](std::string_view key) const { return find(key).value(); }
  // Also a setting that the row does not have, while there is room for it.
  void set(std::string_view key, int64_t value);

 private:
  struct Value {
    std::string_view key;
    int64_t value = 0;
  };
  std::array<Value, kMaxSettings> values_;
};

// Takes the first word off `text`; empty: there is none.
std::string_view next_word(std::string_view& text);
// What a user typed, fit for one line: cut, and with unprintable bytes replaced.
std::string quoted(std::string_view text);

// `text`: what follows the policy's name. An error says in one line what would be right.
[[nodiscard]] std::expected<SettingValues, std::string> parse_settings(std::string_view name,
                                                                       const Settings& settings,
                                                                       std::string_view text);
// The name and every setting, in the row's order.
std::string settings_text(std::string_view name, const Settings& settings,
                          const SettingValues& values);

}  // namespace lull::policies
