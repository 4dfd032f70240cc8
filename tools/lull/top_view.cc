#include "tools/lull/top_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/lull/reply_fields.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

using nlohmann::json;

constexpr size_t kTaskLeast = 8;
constexpr size_t kTaskMost = 28;

// Printable ASCII only, at most `width` of it: names come from programs.
std::string cut(const std::string& text, size_t width) {
  std::string plain;
  for (const char c : text) {
    if ((c & '\xc0') == '\x80') continue;  // the rest of a UTF-8 character
    plain += c >= ' ' && c <= '~' ? c : '?';
  }
  if (plain.size() > width) {
    plain.resize(width);
    if (width > 2) plain.back() = '~';
  }
  return plain;
}

std::string share(const json& client, const char* name) {
  const double value = field<double>(client, name, -1);
  return value < 0 ? "-" : fmt::format("{:.0f}%", std::min(value, 1.0) * 100);
}

std::string rate(double value) {
  if (value < 0) return "-";
  if (value < 10'000) return fmt::format("{:.0f}", value);
  return value < 1e7 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.1f}M", value / 1e6);
}

struct Column {
  const char* name;
  int keep;  // the lowest go first
  bool left;
  std::string (*value)(const json& client, const json& device);
};

const json& iteration(const json& client) {
  static const json kNone = json::object();
  if (!client.is_object()) return kNone;
  const auto found = client.find("iteration");
  return found != client.end() && found->is_object() ? *found : kNone;
}

const Column kColumns[] = {
    {"ID", 2, false,
     [](const json& c, const json&) { return fmt::format("{}", field<uint64_t>(c, "id", 0)); }},
    {"TASK", 100, true,
     [](const json& c, const json&) { return field<std::string>(c, "task", "?"); }},
    {"PRIO", 7, true,
     [](const json& c, const json&) { return priority_name(field(c, "priority", 5)); }},
    {"GATE", 1, true,
     [](const json&, const json& d) { return field<std::string>(d, "gate", "?"); }},
    {"BUSY", 9, false, [](const json& c, const json&) { return share(c, "busy_share"); }},
    {"LAUNCH/S", 4, false,
     [](const json& c, const json&) { return rate(field<double>(c, "launches_per_s", -1)); }},
    {"HELD", 8, false, [](const json& c, const json&) { return share(c, "held_share"); }},
    {"MEMORY", 5, false,
     [](const json&, const json& d) { return show_bytes(field<uint64_t>(d, "memory_bytes", 0)); }},
    {"ITERATION", 6, false,
     [](const json& c, const json&) -> std::string {
       const json& found = iteration(c);
       const double ns = field<double>(found, "median_ns", 0);
       if (!field(found, "locked", false) || ns <= 0) return "-";
       return show_ns(ns) + (field(found, "in_step", true) ? "" : "?");
     }},
    {"LAUNCHES", 0, false,
     [](const json& c, const json&) -> std::string {
       const auto period = field<uint64_t>(iteration(c), "period_launches", 0);
       return period == 0 ? "-" : fmt::format("{}", period);
     }},
    {"SLOWDOWN", 10, false,
     [](const json& c, const json&) -> std::string {
       const double slowdown = field<double>(iteration(c), "slowdown", 0);
       const double bound = field(field(c, "max_slowdown", json()), "mean", -1.0);
       return (slowdown <= 0 ? "-" : fmt::format("{:.2f}x", slowdown)) +
              (bound < 0 ? "" : fmt::format(" of {:.2f}x", 1 + bound));
     }},
};
constexpr size_t kCount = std::size(kColumns);

class Table {
 public:
  void add(const json& client, const json& device) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < kCount; ++i) {
      cells.push_back(cut(kColumns[i].value(client, device), kTaskMost));
      widths_[i] = std::max(widths_[i], cells[i].size());
    }
    rows_.push_back(std::move(cells));
  }
  Table() {
    for (size_t i = 0; i < kCount; ++i) {
      widths_[i] = std::string_view(kColumns[i].name).size();
      shown_[i] = true;
    }
  }
  // Leaves out and narrows until a line fits.
  void fit(size_t width) {
    while (line_width() > width) {
      size_t task = 1;
      if (widths_[task] > kTaskLeast) {
        widths_[task] =
            std::max(kTaskLeast, widths_[task] - std::min(widths_[task], line_width() - width));
        if (line_width() <= width) return;
      }
      size_t least = kCount;
      for (size_t i = 0; i < kCount; ++i) {
        if (!shown_[i] || i == task) continue;
        if (least == kCount || kColumns[i].keep < kColumns[least].keep) least = i;
      }
      if (least == kCount) return;
      shown_[least] = false;
    }
  }
  std::string heading() const {
    std::vector<std::string> names;
    for (const Column& column : kColumns) names.emplace_back(column.name);
    return line(names);
  }
  std::string row(size_t index) const { return line(rows_[index]); }

 private:
  size_t line_width() const {
    size_t width = 0;
    for (size_t i = 0; i < kCount; ++i) width += shown_[i] ? widths_[i] + 2 : 0;
    return width;
  }
  std::string line(const std::vector<std::string>& cells) const {
    std::string text;
    for (size_t i = 0; i < kCount; ++i) {
      if (!shown_[i]) continue;
      const std::string cell = cut(cells[i], widths_[i]);
      text += kColumns[i].left ? fmt::format("  {:<{}}", cell, widths_[i])
                               : fmt::format("  {:>{}}", cell, widths_[i]);
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  }
  std::vector<std::vector<std::string>> rows_;
  size_t widths_[kCount];
  bool shown_[kCount];
};

}  // namespace

std::vector<TopLine> top_lines(const json& status, size_t width) {
  width = std::max(width, kNarrowest);
  std::vector<TopLine> lines;
  const auto add = [&](const std::string& text, bool heading = false) {
    lines.push_back({cut(text, width), heading});
  };
  add(fmt::format("lulld {}, up {:.0f} s, policy {}", field<std::string>(status, "version", "?"),
                  field<double>(status, "uptime_s", 0), field<std::string>(status, "policy", "?")));
  if (field(status, "simulated", false)) {
    add(fmt::format("simulated GPU: sharing {}, slow motion {}",
                    field<std::string>(status, "sharing", "?"),
                    field<double>(status, "slow_motion", 1)));
  }
  // One layout for all devices.
  Table table;
  struct Place {
    const json* device;
    std::vector<size_t> rows;
    double busy = 0;
    uint64_t memory = 0;
  };
  std::vector<Place> places;
  size_t next = 0;
  for (const json& device : list(status, "devices")) {
    Place place{&device, {}};
    const auto uuid = field<std::string>(device, "uuid", "?");
    for (const json& client : list(status, "clients")) {
      for (const json& used : list(client, "devices")) {
        if (field<std::string>(used, "uuid", "") != uuid) continue;
        table.add(client, used);
        place.rows.push_back(next++);
        place.busy += field<double>(client, "busy_share", 0);
        place.memory += field<uint64_t>(used, "memory_bytes", 0);
      }
    }
    places.push_back(std::move(place));
  }
  table.fit(width);
  for (const Place& place : places) {
    add("");
    add(fmt::format(
        "device {}  {}  busy {:.0f}%  memory {} of {}", field<uint64_t>(*place.device, "index", 0),
        field<std::string>(*place.device, "name", "?"), std::min(place.busy, 1.0) * 100,
        show_bytes(place.memory), show_bytes(field<uint64_t>(*place.device, "total_bytes", 0))));
    add(table.heading(), /*heading=*/true);
    for (const size_t row : place.rows) add(table.row(row));
    if (place.rows.empty()) add("  nobody uses it now");
  }
  if (places.empty()) add("no device is known yet");
  size_t waiting = 0;
  size_t unscheduled = 0;
  for (const json& client : list(status, "clients")) {
    const bool unknown = !list(client, "unscheduled").empty();
    unscheduled += unknown ? 1 : 0;
    waiting += list(client, "devices").empty() && !unknown ? 1 : 0;
  }
  if (waiting > 0) add(fmt::format("{} attached, no device used yet", waiting));
  if (unscheduled > 0) {
    add(fmt::format("{} unscheduled on devices that lulld does not know: see lull status",
                    unscheduled));
  }
  return lines;
}

}  // namespace lull::command
