#include "tools/measure/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace lull::command {
namespace {

constexpr std::pair<const char*, int> kLevels[] = {
    {"realtime", 0}, {"high", 2}, {"normal", 5}, {"low", 7}, {"idle", 9}};
constexpr std::string_view kSharing[] = {"time_slice", "mps", "serial"};

}  // namespace

std::expected<uint64_t, std::string> parse_bytes(std::string_view text) {
  const auto wrong = [&](const char* why) {
    return std::unexpected(
        fmt::format("'{}' {}: give a number with its unit, K, M, G or T, as in 20G", text, why));
  };
  double number = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number)) return wrong("is no size");
  std::string_view unit(rest, static_cast<size_t>(text.data() + text.size() - rest));
  if (unit.empty()) return wrong("has no unit");
  double factor = 1;
  if (unit != "B" && unit != "b") {
    const size_t power = std::string_view("kmgt").find(static_cast<char>(unit[0] | 0x20));
    if (power == std::string_view::npos) return wrong("has an unknown unit");
    const std::string_view tail = unit.substr(1);
    if (!(tail.empty() || tail == "B" || tail == "b" || tail == "iB")) {
      return wrong("has an unknown unit");
    }
    factor = std::pow(1024.0, static_cast<double>(power + 1));
  }
  const double bytes = number * factor;
  if (bytes < 1) return wrong("is too small");
  if (bytes >= 0x1p63) return wrong("is too large");
  return static_cast<uint64_t>(bytes);
}

std::expected<int, std::string> parse_priority(std::string_view text) {
  for (const auto& [name, level] : kLevels) {
    if (text == name) return level;
  }
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') return text[0] - '0';
  return std::unexpected(fmt::format(
      "'{}' is no priority: use 0 (highest) to 9, or realtime, high, normal, low, idle", text));
}

std::expected<SlowdownBound, std::string> parse_slowdown(std::string_view text) {
  const auto wrong = [&](const char* why) {
    return std::unexpected(fmt::format(
        "'{}' {}: give percent, 0% to 1000%, in the mean or in the mean and at p99, as in 3% or "
        "3%,5%",
        text, why));
  };
  int32_t parts[2] = {-1, -1};
  std::string_view rest = text;
  for (int32_t& part : parts) {
    double percent = 0;
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), percent, std::chars_format::fixed);
    if (error != std::errc{} || !(percent >= 0) || std::signbit(percent)) {
      return wrong("is no slowdown");
    }
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (!rest.starts_with('%')) return wrong("is not in percent");
    rest.remove_prefix(1);
    if (percent * 10 > kMostSlowdownPerMille) return wrong("is too large");
    part = static_cast<int32_t>(std::lround(percent * 10));
    if (std::abs(percent * 10 - part) > 1e-6) return wrong("is finer than a tenth of a percent");
    if (rest.empty()) break;
    if (!rest.starts_with(',') || &part != &parts[0]) return wrong("is no slowdown");
    rest.remove_prefix(1);
  }
  if (parts[1] < 0) parts[1] = std::min((parts[0] * 5 + 2) / 3, kMostSlowdownPerMille);
  if (parts[1] < parts[0]) return wrong("allows less at p99 than in the mean");
  return SlowdownBound{parts[0], parts[1]};
}

std::string show_slowdown(SlowdownBound bound) {
  return fmt::format("{:g}%,{:g}%", bound.mean_per_mille / 10.0, bound.p99_per_mille / 10.0);
}

std::string describe_slowdown(SlowdownBound bound) {
  return fmt::format("{:g} % in the mean and {:g} % at p99", bound.mean_per_mille / 10.0,
                     bound.p99_per_mille / 10.0);
}

std::string priority_name(int level) {
  for (const auto& [name, value] : kLevels) {
    if (value == level) return name;
  }
  return fmt::format("{}", level);
}

std::expected<uint32_t, std::string> parse_sharing(std::string_view text) {
  for (uint32_t n = 0; n < std::size(kSharing); ++n) {
    if (text == kSharing[n]) return n;
  }
  return std::unexpected(
      fmt::format("'{}' is no sharing model: use time_slice, mps or serial", text));
}

std::string_view sharing_name(uint32_t sharing) {
  return sharing < std::size(kSharing) ? kSharing[sharing] : "unknown";
}

std::string show_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string show_ns(double ns) {
  if (!std::isfinite(ns)) return "-";
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.3g} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.3g} ms", ns / 1e6);
  return fmt::format("{:.4g} s", ns / 1e9);
}

std::string show_share(double share) {
  return std::isfinite(share) && share >= 0 ? fmt::format("{:.1f} %", share * 100) : "-";
}

}  // namespace lull::command
