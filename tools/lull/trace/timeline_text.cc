#include "tools/lull/trace/timeline_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/lull/trace/report_text.h"

namespace lull::trace {
namespace {

constexpr size_t kLeastColumns = 10, kMostLabel = 32, kTickColumns = 20;
constexpr const char* kBlocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kAscii[] = {" ", ".", ":", "-", "=", "+", "*", "%", "#"};

std::string label_of(const LaneKey& key, const Report& report) {
  if (key.kind == LaneKind::kGate) return fmt::format("held {}", report.task_name(key.client));
  if (key.kind == LaneKind::kCalls) {
    return fmt::format("calls t{} {}", key.thread.value, report.task_name(key.client));
  }
  if (key.kind == LaneKind::kRange) {
    return fmt::format("ranges t{} {}", key.thread.value, report.task_name(key.client));
  }
  return fmt::format("gpu {} s{} {}", key.device.value, key.stream.value,
                     report.task_name(key.client));
}

std::string label_of(const IterationRow& row, const Report& report) {
  return "iterations " + report.task_name(row.client);
}

// 1, 2 or 5 times a power of ten.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(std::max(least, 1.0))));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string timeline_text(const Lanes& lanes, const Report& report,
                          const TimelineOptions& options) {
  size_t label_width = 0;
  for (const auto& [key, spans] : lanes.all()) {
    label_width = std::max(label_width, std::min(kMostLabel, label_of(key, report).size()));
  }
  for (const IterationRow& row : report.iterations) {
    label_width = std::max(label_width, std::min(kMostLabel, label_of(row, report).size()));
  }
  const size_t columns = std::max(
      kLeastColumns, options.width > label_width + 10 ? options.width - label_width - 10 : 0);
  const double range =
      static_cast<double>(std::max<int64_t>(1, options.until_ns - options.from_ns));
  const double column_ns = range / static_cast<double>(columns);

  // The axis: a tick where a round time falls, its figure to the right of it.
  const double step = round_step(column_ns * static_cast<double>(kTickColumns));
  const auto offset = static_cast<double>(options.from_ns - options.origin_ns);
  std::string axis(columns + 16, ' ');
  const double first = std::ceil(offset / step) * step;
  // Counted: far from the origin a step may be too small to change a double.
  for (size_t n = 0; n <= columns; ++n) {
    const double tick = first + static_cast<double>(n) * step;
    if (tick < offset) continue;
    if (tick >= offset + range) break;
    const auto at = static_cast<size_t>((tick - offset) / column_ns);
    const std::string text = "|" + (tick == 0 ? std::string("0") : time_text(tick));
    if (at + text.size() <= columns) axis.replace(at, text.size(), text);
  }
  axis.erase(axis.find_last_not_of(' ') + 1);
  std::string out = std::string(label_width + 1, ' ') + axis + '\n';

  const auto put_label = [&](std::string label) {
    if (label.size() > label_width) label = label.substr(0, label_width - 2) + "..";
    out += fmt::format("{:<{}} ", label, label_width);
  };
  for (const auto& [key, spans] : lanes.all()) {
    std::vector<double> busy(columns, 0), calls(columns, 0);
    double total = 0;
    for (const Span& span : spans) {
      const double from = static_cast<double>(span.start_ns - options.from_ns);
      const double until = static_cast<double>(span.end_ns - options.from_ns);
      if (key.kind == LaneKind::kCalls) {
        // A call has no length here: how full a column is says how many there were.
        const auto at = static_cast<size_t>(std::clamp(from / column_ns, 0.0, columns - 1.0));
        calls[at] += span.count;
        continue;
      }
      const double length = std::max(until - from, 1.0);
      const double density = std::min(1.0, static_cast<double>(span.busy_ns) / length);
      const auto last = std::min(static_cast<double>(columns) - 1, std::floor(until / column_ns));
      for (double c = std::max(0.0, std::floor(from / column_ns)); c <= last; ++c) {
        const double part = std::min(until, (c + 1) * column_ns) - std::max(from, c * column_ns);
        if (part <= 0) continue;
        busy[static_cast<size_t>(c)] += part * density;
        total += part * density;
      }
    }
    if (const double most = *std::max_element(calls.begin(), calls.end()); most > 0) {
      for (size_t c = 0; c < columns; ++c) busy[c] = calls[c] / most * column_ns;
    }
    put_label(label_of(key, report));
    for (const double part : busy) {
      const double share = std::min(1.0, part / column_ns);
      // Anything at all is seen.
      const auto level = part <= 0 ? 0 : std::max<long>(1, std::lround(share * 8));
      out += (options.ascii ? kAscii : kBlocks)[level];
    }
    out += key.kind == LaneKind::kCalls
               ? "\n"
               : fmt::format(" {:>5.1f} %\n", std::min(1.0, total / range) * 100);
  }
  // Where iterations begin.
  for (const IterationRow& row : report.iterations) {
    std::string marks(columns, ' ');
    for (const int64_t at_ns : row.starts_ns) {
      if (at_ns < options.from_ns || at_ns >= options.until_ns) continue;
      const double at = static_cast<double>(at_ns - options.from_ns) / column_ns;
      marks[std::min(columns - 1, static_cast<size_t>(at))] = '|';
    }
    if (marks.find('|') == std::string::npos) continue;
    put_label(label_of(row, report));
    marks.erase(marks.find_last_not_of(' ') + 1);
    out += marks + '\n';
  }
  return out;
}

}  // namespace lull::trace
