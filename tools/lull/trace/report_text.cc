#include "tools/lull/trace/report_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "tools/lull/trace/kernel_display.h"
#include "tools/lull/trace/kernel_kind.h"
#include "tools/measure/text_table.h"
#include "tools/measure/values.h"

namespace lull::trace {
namespace {

using command::show_share;
using command::TextTable;

// "~6.5 ms ± 0.3": an estimate, with half of its 95 % interval in the same unit.
std::string total_text(const Total& total) {
  const std::string text = time_text(total.total_ns(), total.is_known());
  if (!total.is_estimate()) return text;
  const double ns = total.total_ns();
  const double unit = ns < 1e3 ? 1 : ns < 1e6 ? 1e3 : ns < 1e9 ? 1e6 : 1e9;
  const double error = total.error_ns / unit;
  return error < 10 ? fmt::format("~{} ± {:.2g}", text, error)
                    : fmt::format("~{} ± {:.0f}", text, error);
}
std::string quantile_text(const LogHistogram& lengths, double share) {
  return time_text(lengths.quantile_ns(share), lengths.count() > 0);
}

std::string devices_text(const Report& report, size_t width) {
  std::string out;
  const auto add = [&](const std::string& line, size_t indent) {
    out += command::wrapped(line, width, indent) + '\n';
  };
  for (const DeviceRow& row : report.devices) {
    std::string line = fmt::format("device {}  {}", row.info.device.value,
                                   row.info.name.empty() ? "unknown" : row.info.name);
    if (!row.info.uuid.empty()) line += "  " + row.info.uuid;
    if (row.info.total_bytes > 0) line += "  " + command::show_bytes(row.info.total_bytes);
    add(line, 2);
    if (!row.busy.empty()) {
      line =
          fmt::format("  busy {}{} of {}", row.is_partial() ? "at least " : "",
                      show_share(row.busy_share()), time_text(static_cast<double>(row.span_ns())));
      const LogHistogram& idle = row.busy.idle();
      if (idle.count() > 0) {
        line += fmt::format(", idle {} times: p50 {}, p90 {}, longest {}", idle.count(),
                            quantile_text(idle, 0.5), quantile_text(idle, 0.9),
                            time_text(static_cast<double>(idle.max_ns())));
      }
      add(line, 4);
    } else if (row.total.timed > 0) {
      add(fmt::format("  {} of device work, when it ran is not recorded", total_text(row.total)),
          4);
    }
  }
  return out;
}

std::string counts_text(const Report& report) {
  std::string out = fmt::format("{} launches", report.launches);
  uint64_t all = 0, to_time = 0, timed = 0;
  for (const ClientRow& row : report.clients) {
    all += row.total.count;
    to_time += row.total.to_time();
    timed += row.total.timed;
  }
  if (timed >= to_time) {
    out += to_time > 0 ? ", all timed" : "";
    if (to_time > 0 && all > to_time) {
      out += fmt::format(" but small copies ({}), which never are", all - to_time);
    }
  } else {
    out += fmt::format(
        ", {} of them timed{}", show_share(static_cast<double>(timed) / static_cast<double>(all)),
        timed > 0 ? ": totals marked ~ are estimates, ± half of a 95 % interval" : "");
  }
  uint64_t dropped = 0;
  for (const ClientRow& row : report.clients) dropped += row.dropped();
  if (dropped > 0) {
    out += fmt::format("; {} records were lost (a full ring, a slow disk): counts are too low",
                       dropped);
  }
  if (report.cancelled > 0) {
    out += fmt::format("; the driver refused {} of the launches", report.cancelled);
  }
  return out;
}

std::string kernels_text(const Report& report, const TextOptions& options, CallSites& sites) {
  double all_ns = 0;
  for (const KernelRow& row : report.kernels) all_ns += std::max(0.0, row.total.total_ns());
  const auto rows = sorted_kernels(report, options.by);
  const size_t shown = std::min(options.top, rows.size());
  static constexpr const char* kBy[] = {"time", "count", "gap after"};
  std::string out = fmt::format("\nKERNELS by {}, {} of {}\n", kBy[static_cast<int>(options.by)],
                                shown, rows.size());
  const bool many_devices = report.devices.size() > 1;
  static const KernelInfo kUnknown;
  const auto info_of = [&](const KernelRow& row) -> const KernelInfo& {
    return row.kernel < report.kernel_infos.size() ? report.kernel_infos[row.kernel] : kUnknown;
  };
  const bool call_sites =
      std::any_of(rows.begin(), rows.begin() + static_cast<long>(shown),
                  [&](const auto* row) { return !info_of(*row).call_site.empty(); });
  std::vector<TextTable::Column> columns = {{"TOTAL"},   {"SHARE"},   {"COUNT"},
                                            {"P50"},     {"P90"},     {"P99"},
                                            {"GAP P50"}, {"GAP P90"}, {"GAP SUM"}};
  if (many_devices) columns.push_back(TextTable::key_column("GPU"));
  columns.push_back(TextTable::name_column("KERNEL", shorten_name));
  columns.push_back(TextTable::word_column("GRID / BLOCK"));
  if (call_sites) columns.push_back(TextTable::text_column("FROM"));
  TextTable table(columns);
  for (size_t i = 0; i < shown; ++i) {
    const KernelRow& row = *rows[i];
    const KernelInfo& info = info_of(row);
    std::vector<std::string> line = {
        total_text(row.total),
        row.total.is_known() && all_ns > 0 ? show_share(row.total.total_ns() / all_ns) : "-",
        fmt::format("{}", row.total.count),
        quantile_text(row.duration, 0.50),
        quantile_text(row.duration, 0.90),
        quantile_text(row.duration, 0.99),
        quantile_text(row.gap, 0.50),
        quantile_text(row.gap, 0.90),
        time_text(static_cast<double>(row.gap.total_ns()), row.gap.count() > 0)};
    if (many_devices) line.push_back(fmt::format("{}", row.device.value));
    line.push_back(display_name(info.name));
    line.push_back(shape_text(info));
    if (call_sites) {
      line.push_back(info.call_site.empty() ? "" : sites.line(info.call_site, 3));
    }
    table.add(std::move(line));
  }
  return out + table.text(options.width);
}

std::string kinds_text(const Report& report, size_t width) {
  const auto rows = kind_rows(report);
  double all_ns = 0;
  for (const KindRow& row : rows) all_ns += row.total_ns;
  if (all_ns <= 0) return {};
  TextTable table({{"TOTAL"}, {"SHARE"}, {"COUNT"}, TextTable::name_column("KIND")});
  for (const KindRow& row : rows) {
    table.add({(row.estimated ? "~" : "") + time_text(row.total_ns),
               show_share(row.total_ns / all_ns), fmt::format("{}", row.count),
               std::string(row.kind)});
  }
  return "\nKINDS of kernels, by name\n" + table.text(width);
}

std::string tasks_text(const Report& report, size_t width) {
  TextTable table({TextTable::key_column("ID"),
                   TextTable::name_column("TASK"),
                   {"PID"},
                   TextTable::word_column("PRIORITY"),
                   {"LAUNCHES"},
                   {"COPIES"},
                   {"MEMSETS"},
                   {"DEVICE TIME"},
                   {"HELD"},
                   {"HELD TIME"},
                   {"PEAK MEMORY"},
                   {"LOST"}});
  for (const ClientRow& row : report.clients) {
    table.add({fmt::format("{}", row.started.client.value), row.started.task,
               fmt::format("{}", row.started.pid), command::priority_name(row.priority.level),
               fmt::format("{}", row.exact_launches()),
               fmt::format("{}", row.has_ended ? row.ended.copies : row.copies),
               fmt::format("{}", row.has_ended ? row.ended.memsets : row.memsets),
               total_text(row.total), fmt::format("{}", row.held),
               time_text(static_cast<double>(row.held_ns)),
               row.peak_bytes > 0 ? command::show_bytes(row.peak_bytes) : "-",
               fmt::format("{}", row.dropped())});
  }
  return table.empty() ? std::string() : "\nTASKS\n" + table.text(width);
}

std::string streams_text(const Report& report, size_t width) {
  TextTable table({TextTable::name_column("TASK"),
                   TextTable::key_column("GPU"),
                   TextTable::key_column("STREAM"),
                   {"LAUNCHES"},
                   {"DEVICE TIME"},
                   {"OF SPAN"},
                   {"WAITS"}});
  for (const StreamRow& row : report.streams) {
    double span_ns = 0;
    for (const DeviceRow& device : report.devices) {
      if (device.info.device == row.device) span_ns = static_cast<double>(device.span_ns());
    }
    table.add(
        {report.task_name(row.client), fmt::format("{}", row.device.value),
         fmt::format("{}", row.stream.value), fmt::format("{}", row.total.count),
         total_text(row.total),
         row.total.is_known() && span_ns > 0 ? show_share(row.total.total_ns() / span_ns) : "-",
         fmt::format("{}", row.syncs)});
  }
  return table.empty() ? std::string() : "\nSTREAMS\n" + table.text(width);
}

std::string cause_text(const Report& report, const IdleRow& row) {
  switch (row.cause) {
    case IdleCause::kHost:
      return "host late: the next launch was not made yet";
    case IdleCause::kWait:
      return "its thread waited in a synchronisation";
    case IdleCause::kHeld:
      return "held for " + report.task_name(row.by);
    case IdleCause::kOthers:
      return "launched, kernels of " + report.task_name(row.by) + " ran";
    case IdleCause::kStart:
      return "launched, not begun on the device";
    case IdleCause::kUnknown:
      break;
  }
  return "its launch has no record";
}

// Of each task on each device its time there without a unit of its own, cut by cause.
std::string idle_text(const Report& report, size_t width) {
  if (report.idle.empty()) return {};
  std::map<std::pair<uint32_t, uint32_t>, double> sums;
  for (const IdleRow& row : report.idle) {
    sums[{row.device.value, row.client.value}] += static_cast<double>(row.lengths.total_ns());
  }
  const bool many_devices = report.devices.size() > 1, many_tasks = report.clients.size() > 1;
  std::vector<TextTable::Column> columns = {
      {"IDLE"}, {"SHARE"}, {"TIMES"}, {"P50"}, {"P99"}, {"LONGEST"}};
  if (many_tasks) columns.push_back({"OTHERS RAN"});
  if (many_devices) columns.push_back(TextTable::key_column("GPU"));
  columns.push_back(TextTable::name_column("TASK"));
  columns.push_back(TextTable::text_column("BECAUSE"));
  TextTable table(columns);
  for (const IdleRow& row : report.idle) {
    const auto total_ns = static_cast<double>(row.lengths.total_ns());
    const double sum_ns = sums[{row.device.value, row.client.value}];
    std::vector<std::string> line = {time_text(total_ns),
                                     sum_ns > 0 ? show_share(total_ns / sum_ns) : "-",
                                     fmt::format("{}", row.lengths.count()),
                                     quantile_text(row.lengths, 0.5),
                                     quantile_text(row.lengths, 0.99),
                                     time_text(static_cast<double>(row.lengths.max_ns()))};
    if (many_tasks) line.push_back(time_text(static_cast<double>(row.others_ns)));
    if (many_devices) line.push_back(fmt::format("{}", row.device.value));
    line.push_back(report.task_name(row.client));
    line.push_back(cause_text(report, row));
    table.add(std::move(line));
  }
  return "\nIDLE time of tasks, between the units of each\n" + table.text(width);
}

std::string held_text(const Report& report, size_t width) {
  TextTable table({TextTable::name_column("TASK"),
                   TextTable::name_column("HELD BY"),
                   {"TIMES"},
                   {"TOTAL"},
                   {"P50"},
                   {"P99"},
                   {"LONGEST"}});
  for (const HeldRow& row : report.held) {
    table.add({report.task_name(row.client), report.task_name(row.by),
               fmt::format("{}", row.held.count()),
               time_text(static_cast<double>(row.held.total_ns())), quantile_text(row.held, 0.5),
               quantile_text(row.held, 0.99), time_text(static_cast<double>(row.held.max_ns()))});
  }
  return table.empty() ? std::string() : "\nHELD\n" + table.text(width);
}

std::string ranges_text(const Report& report, const TextOptions& options) {
  TextTable table({{"TOTAL"},
                   {"COUNT"},
                   {"P50"},
                   {"P90"},
                   {"P99"},
                   {"LONGEST"},
                   TextTable::name_column("TASK"),
                   TextTable::name_column("RANGE")});
  const size_t shown = std::min(options.top, report.ranges.size());
  for (size_t i = 0; i < shown; ++i) {
    const RangeRow& row = report.ranges[i];
    const bool lasts = row.kind != RangeKind::kMark;
    table.add({time_text(static_cast<double>(row.lengths.total_ns()), lasts),
               fmt::format("{}", row.lengths.count()),
               lasts ? quantile_text(row.lengths, 0.5) : "-",
               lasts ? quantile_text(row.lengths, 0.9) : "-",
               lasts ? quantile_text(row.lengths, 0.99) : "-",
               time_text(static_cast<double>(row.lengths.max_ns()), lasts),
               report.task_name(row.client), report.range_name(row.range)});
  }
  return table.empty() ? std::string()
                       : fmt::format("\nRANGES that programs mark (NVTX), {} of {}\n{}", shown,
                                     report.ranges.size(), table.text(options.width));
}

std::string iterations_text(const Report& report, size_t width) {
  TextTable table({TextTable::name_column("TASK"),
                   {"ITERATIONS"},
                   {"LAUNCHES EACH"},
                   {"P50"},
                   {"P90"},
                   {"P99"},
                   {"CONFIDENCE"},
                   TextTable::word_column("LEAST MEMORY")});
  for (const IterationRow& row : report.iterations) {
    table.add({report.task_name(row.client), fmt::format("{}", row.iterations),
               fmt::format("{}", row.launches_each), quantile_text(row.length, 0.5),
               quantile_text(row.length, 0.9), quantile_text(row.length, 0.99),
               show_share(row.confidence),
               row.lowest_bytes > 0
                   ? fmt::format("{} at launch {}", command::show_bytes(row.lowest_bytes),
                                 row.lowest_position)
                   : "-"});
  }
  return table.empty() ? std::string() : "\nITERATIONS\n" + table.text(width);
}

}  // namespace

std::string time_text(double ns, bool known) { return known ? command::show_ns(ns) : "-"; }

std::string heading_line(const Report& report) {
  const FileInfo& info = report.info;
  std::string out = fmt::format("{}: {}", report.file, info.source.empty() ? "trace" : info.source);
  if (!info.lull_version.empty()) out += " " + info.lull_version;
  if (!info.host.empty()) out += " on " + info.host;
  if (info.created_unix_ns > 0) {
    const auto seconds = static_cast<std::time_t>(info.created_unix_ns / 1'000'000'000);
    out += fmt::format(", {:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(seconds));
  }
  if (!info.command.empty()) out += ", " + info.command;
  if (info.simulated) {
    out +=
        fmt::format(", simulated GPU (sharing {}, slow motion {})", info.sharing, info.slow_motion);
  }
  return out;
}

std::string verdict_text(const Report& report) {
  if (report.kernels.empty()) return "Nothing was launched.";
  double all_ns = 0;
  std::vector<std::pair<double, KernelIndex>> kernels;  // of all devices
  for (const KernelRow& row : report.kernels) {
    const double ns = std::max(0.0, row.total.total_ns());
    all_ns += ns;
    const auto same = std::find_if(kernels.begin(), kernels.end(),
                                   [&](const auto& one) { return one.second == row.kernel; });
    if (same != kernels.end()) {
      same->first += ns;
    } else {
      kernels.emplace_back(ns, row.kernel);
    }
  }
  std::string out = report.info.simulated ? "Simulated: " : "";
  if (all_ns <= 0) {
    out += "no launch was timed: record with --timing full to see where the time goes";
  } else {
    const auto [most_ns, which] =
        *std::max_element(kernels.begin(), kernels.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; });
    const std::string name = which < report.kernel_infos.size()
                                 ? shorten_name(display_name(report.kernel_infos[which].name), 40)
                                 : "?";
    out += fmt::format("{} takes {} of the device time", name, show_share(most_ns / all_ns));
    for (const DeviceRow& row : report.devices) {
      if (row.busy.empty()) continue;
      out += fmt::format(", and device {} was busy {}{} of the time", row.info.device.value,
                         row.is_partial() ? "at least " : "", show_share(row.busy_share()));
    }
  }
  if (!report.held.empty()) {
    const HeldRow& longest = report.held.front();
    out += fmt::format("; {} waited {} for {}", report.task_name(longest.client),
                       time_text(static_cast<double>(longest.held.total_ns())),
                       report.task_name(longest.by));
  }
  return out + ".";
}

std::string report_text(const Report& report, const TextOptions& options, CallSites& sites) {
  std::string out = command::wrapped(heading_line(report), options.width, 2) + '\n';
  out += devices_text(report, options.width);
  out += command::wrapped(counts_text(report), options.width, 2) + '\n';
  if (!report.policies.empty()) {
    out += "policy: " + report.policies.front().policy;
    if (report.policies.size() > 1) {
      out += fmt::format(", changed {} times, last to {}",
                         report.policies.size() - 1 + report.policies_left_out,
                         report.policies.back().policy);
    }
    out += '\n';
  }
  out += kernels_text(report, options, sites);
  out += kinds_text(report, options.width);
  out += idle_text(report, options.width);
  out += tasks_text(report, options.width);
  out += streams_text(report, options.width);
  out += held_text(report, options.width);
  out += iterations_text(report, options.width);
  out += ranges_text(report, options);
  out += '\n' + command::wrapped(verdict_text(report), options.width) + '\n';
  return out;
}

}  // namespace lull::trace
