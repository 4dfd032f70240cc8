#include "tools/lull/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tools/lull/reply_fields.h"
#include "tools/lull/status_view.h"
#include "tools/measure/text_table.h"
#include "tools/measure/values.h"

namespace lull::command {
namespace {

using nlohmann::json;

// Printable ASCII only: names come from programs.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c & '\xc0') == '\x80') continue;  // the rest of a UTF-8 character
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  return out;
}

std::string share(const json& client, const char* name) {
  return show_share(std::min(field<double>(client, name, -1), 1.0));
}

std::string rate(double value) {
  if (value < 0) return "-";
  if (value < 10'000) return fmt::format("{:.0f}", value);
  return value < 1e7 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.1f}M", value / 1e6);
}

struct Column {
  const char* name;
  int keep;  // the lowest go first
  bool left, is_name;
  std::string (*value)(const json& client, const json& device);
};

const json& iteration(const json& client) {
  static const json kNone = json::object();
  if (!client.is_object()) return kNone;
  const auto found = client.find("iteration");
  return found != client.end() && found->is_object() ? *found : kNone;
}

const Column kColumns[] = {
    {"ID", 2, false, false,
     [](const json& c, const json&) { return fmt::format("{}", field<uint64_t>(c, "id", 0)); }},
    {"TASK", 0, true, true,
     [](const json& c, const json&) { return field<std::string>(c, "task", "?"); }},
    {"PRIO", 7, true, false,
     [](const json& c, const json&) { return priority_name(field(c, "priority", 5)); }},
    {"GATE", 1, true, false,
     [](const json&, const json& d) { return field<std::string>(d, "gate", "?"); }},
    {"BUSY", 9, false, false, [](const json& c, const json&) { return share(c, "busy_share"); }},
    {"LAUNCH/S", 4, false, false,
     [](const json& c, const json&) { return rate(field<double>(c, "launches_per_s", -1)); }},
    {"HELD", 8, false, false, [](const json& c, const json&) { return share(c, "held_share"); }},
    {"MEMORY", 5, false, false,
     [](const json&, const json& d) { return show_bytes(field<uint64_t>(d, "memory_bytes", 0)); }},
    {"ITERATION", 6, false, false,
     [](const json& c, const json&) -> std::string {
       const json& found = iteration(c);
       const double ns = field<double>(found, "median_ns", 0);
       if (!field(found, "locked", false) || ns <= 0) return "-";
       return show_ns(ns) + (field(found, "in_step", true) ? "" : "?");
     }},
    {"LAUNCHES", 0, false, false,
     [](const json& c, const json&) -> std::string {
       const auto period = field<uint64_t>(iteration(c), "period_launches", 0);
       return period == 0 ? "-" : fmt::format("{}", period);
     }},
    {"SLOWDOWN", 10, false, false,
     [](const json& c, const json&) -> std::string {
       const double slowdown = field<double>(iteration(c), "slowdown", 0);
       const double bound = field(field(c, "max_slowdown", json()), "mean", -1.0);
       return (slowdown <= 0 ? "-" : fmt::format("{:.2f}x", slowdown)) +
              (bound < 0 ? "" : fmt::format(" of {:.2f}x", 1 + bound));
     }},
};

TextTable table_of_tasks() {
  std::vector<TextTable::Column> columns;
  for (const Column& column : kColumns) {
    auto one = column.is_name ? TextTable::name_column(column.name)
               : column.left  ? TextTable::word_column(column.name)
                              : TextTable::Column{column.name};
    one.keep = column.keep;
    columns.push_back(std::move(one));
  }
  return TextTable(std::move(columns));
}

}  // namespace

std::vector<TopLine> top_lines(const json& status, size_t width) {
  width = std::max(width, kNarrowest);
  std::vector<TopLine> lines;
  const auto add = [&](const std::string& text, bool heading = false) {
    lines.push_back({plain(text), heading});
  };
  // A sentence, or facts with two blanks between, on as many lines as it needs.
  const auto say = [&](const std::string& text) {
    std::istringstream in(wrapped(plain(text), width, 2));
    for (std::string line; std::getline(in, line);) add(line.substr(0, width));
  };
  say(fmt::format("lulld {}, up {:.0f} s, policy {}", field<std::string>(status, "version", "?"),
                  field<double>(status, "uptime_s", 0), field<std::string>(status, "policy", "?")));
  if (field(status, "simulated", false)) {
    say(simulated_gpu(status));
  }
  // One layout for all devices.
  TextTable table = table_of_tasks();
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
        std::vector<std::string> cells;
        for (const Column& column : kColumns) cells.push_back(plain(column.value(client, used)));
        table.add(std::move(cells));
        place.rows.push_back(next++);
        place.busy += field<double>(client, "busy_share", 0);
        place.memory += field<uint64_t>(used, "memory_bytes", 0);
      }
    }
    places.push_back(std::move(place));
  }
  const auto rows = table.lines(width);
  for (const Place& place : places) {
    add("");
    say(fmt::format(
        "device {}  {}  busy {}  memory {} of {}", field<uint64_t>(*place.device, "index", 0),
        field<std::string>(*place.device, "name", "?"), show_share(std::min(place.busy, 1.0)),
        show_bytes(place.memory), show_bytes(field<uint64_t>(*place.device, "total_bytes", 0))));
    add(rows.front(), /*heading=*/true);
    for (const size_t row : place.rows) add(rows[row + 1]);
    if (place.rows.empty()) add("  nobody uses it now");
  }
  add("");
  say(status_verdict(status));
  return lines;
}

}  // namespace lull::command
