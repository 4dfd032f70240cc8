#include "tools/lull/trace/report_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/lull/trace/kernel_display.h"
#include "tools/lull/trace/kernel_kind.h"

namespace lull::trace {
namespace {

using Json = nlohmann::ordered_json;

// ns to us with three decimals: what is printed is what is stored.
double us(double ns) { return std::round(ns) / 1e3; }
Json us_or_null(double ns, bool known) { return known ? Json(us(ns)) : Json(); }
double share(double part) { return std::round(part * 1e6) / 1e6; }

// {prefix}p50_us, {prefix}p90_us, {prefix}p99_us; null without samples.
void add_quantiles(Json& row, const std::string& prefix, const LogHistogram& lengths) {
  const bool known = lengths.count() > 0;
  row[prefix + "p50_us"] = us_or_null(lengths.quantile_ns(0.50), known);
  row[prefix + "p90_us"] = us_or_null(lengths.quantile_ns(0.90), known);
  row[prefix + "p99_us"] = us_or_null(lengths.quantile_ns(0.99), known);
}

void add_total(Json& row, const Total& total) {
  row["timed"] = total.timed;
  row["estimated"] = total.is_estimate();
  row["measured_us"] = us(static_cast<double>(total.measured_ns));
  row["total_us"] = us_or_null(total.total_ns(), total.is_known());
  row["error_us"] = us_or_null(total.error_ns, total.is_known());
}

Json kernel_json(const Report& report, const KernelRow& row, double all_ns, CallSites& sites) {
  static const KernelInfo kUnknown;
  const KernelInfo& info =
      row.kernel < report.kernel_infos.size() ? report.kernel_infos[row.kernel] : kUnknown;
  Json out;
  out["name"] = display_name(info.name);
  out["mangled"] = info.name;
  out["kind"] = kind_name(info.kind);
  out["work"] = work_kind(info.kind, display_name(info.name));
  out["grid"] = info.grid;
  out["block"] = info.block;
  out["shared_bytes"] = info.shared_bytes;
  out["graph_kernels"] = info.graph_kernels;
  out["device"] = row.device.value;
  out["id"] = fmt::format("{:016x}", info.id.value);
  out["image"] = fmt::format("{:016x}", info.image_hash);
  out["call_site"] = sites.frames(info.call_site);
  out["count"] = row.total.count;
  add_total(out, row.total);
  out["share"] =
      row.total.is_known() && all_ns > 0 ? Json(share(row.total.total_ns() / all_ns)) : Json();
  add_quantiles(out, "", row.duration);
  out["min_us"] = us_or_null(static_cast<double>(row.duration.min_ns()), row.duration.count() > 0);
  out["max_us"] = us_or_null(static_cast<double>(row.duration.max_ns()), row.duration.count() > 0);
  out["gap_count"] = row.gap.count();
  out["gap_total_us"] = us(static_cast<double>(row.gap.total_ns()));
  add_quantiles(out, "gap_", row.gap);
  out["held_count"] = row.held;
  out["held_us"] = us(static_cast<double>(row.held_ns));
  out["bytes"] = row.bytes;
  return out;
}

Json info_json(const Report& report) {
  const FileInfo& info = report.info;
  Json out;
  out["format_version"] = info.format_version;
  out["created_unix_ns"] = info.created_unix_ns;
  out["lull_version"] = info.lull_version;
  out["host"] = info.host;
  out["source"] = info.source;
  out["command"] = info.command;
  out["slow_motion"] = info.slow_motion;
  out["sharing"] = info.sharing;
  return out;
}

}  // namespace

std::vector<const KernelRow*> sorted_kernels(const Report& report, SortBy by) {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : report.kernels) rows.push_back(&row);
  const auto by_key = [&](auto key) {
    std::stable_sort(rows.begin(), rows.end(),
                     [&](const KernelRow* a, const KernelRow* b) { return key(*a) > key(*b); });
  };
  if (by == SortBy::kCount) by_key([](const KernelRow& row) { return row.total.count; });
  if (by == SortBy::kGap) by_key([](const KernelRow& row) { return row.gap.total_ns(); });
  return rows;
}

Json report_json(const Report& report, SortBy by, CallSites& sites) {
  const auto since_start = [&](int64_t ns) {
    return us(static_cast<double>(ns - report.info.created_at.ns));
  };
  Json out;
  out["file"] = report.file;
  out["simulated"] = report.info.simulated;
  out["problem"] = report.problem.empty() ? Json() : Json(report.problem);
  out["info"] = info_json(report);
  out["launches"] = report.launches;
  out["timed"] = report.timings;
  out["lost"] = report.lost;
  out["cancelled"] = report.cancelled;
  out["first_us"] = since_start(report.first_ns);
  out["last_us"] = since_start(report.last_ns);
  double all_ns = 0;
  for (const KernelRow& row : report.kernels) all_ns += std::max(0.0, row.total.total_ns());

  Json& devices = out["devices"] = Json::array();
  for (const DeviceRow& row : report.devices) {
    Json one;
    one["device"] = row.info.device.value;
    one["uuid"] = row.info.uuid;
    one["name"] = row.info.name;
    one["total_bytes"] = row.info.total_bytes;
    one["count"] = row.total.count;
    add_total(one, row.total);
    one["span_us"] = us(static_cast<double>(row.span_ns()));
    one["busy_us"] = us(static_cast<double>(row.busy.busy_ns()));
    one["busy_share"] = share(row.busy_share());
    one["busy_is_partial"] = row.is_partial();
    one["without_start"] = row.without_start;
    one["idle_count"] = row.busy.idle().count();
    add_quantiles(one, "idle_", row.busy.idle());
    one["idle_max_us"] = us(static_cast<double>(row.busy.idle().max_ns()));
    devices.push_back(std::move(one));
  }
  Json& kernels = out["kernels"] = Json::array();
  for (const KernelRow* row : sorted_kernels(report, by)) {
    kernels.push_back(kernel_json(report, *row, all_ns, sites));
  }
  Json& kinds = out["kinds"] = Json::array();
  for (const KindRow& row : kind_rows(report)) {
    kinds.push_back({{"kind", row.kind},
                     {"count", row.count},
                     {"total_us", us(row.total_ns)},
                     {"estimated", row.estimated},
                     {"share", all_ns > 0 ? Json(share(row.total_ns / all_ns)) : Json()}});
  }
  Json& tasks = out["tasks"] = Json::array();
  for (const ClientRow& row : report.clients) {
    Json one;
    one["client"] = row.started.client.value;
    one["task"] = row.started.task;
    one["job"] = row.started.job;
    one["program"] = row.started.program;
    one["pid"] = row.started.pid;
    one["priority"] = row.priority.level;
    one["started_us"] = since_start(row.started.at.ns);
    one["ended_us"] = row.has_ended ? Json(since_start(row.ended.at.ns)) : Json();
    one["launches"] = row.exact_launches();
    one["copies"] = row.has_ended ? row.ended.copies : row.copies;
    one["memsets"] = row.has_ended ? row.ended.memsets : row.memsets;
    one["count"] = row.total.count;
    one["dropped"] = row.dropped();
    add_total(one, row.total);
    one["held_count"] = row.held;
    one["held_us"] = us(static_cast<double>(row.held_ns));
    one["waited_us"] = us(static_cast<double>(row.waited_ns));
    one["peak_bytes"] = row.peak_bytes;
    tasks.push_back(std::move(one));
  }
  Json& streams = out["streams"] = Json::array();
  for (const StreamRow& row : report.streams) {
    Json one;
    one["client"] = row.client.value;
    one["task"] = report.task_name(row.client);
    one["device"] = row.device.value;
    one["stream"] = row.stream.value;
    one["count"] = row.total.count;
    add_total(one, row.total);
    one["syncs"] = row.syncs;
    streams.push_back(std::move(one));
  }
  Json& held = out["held"] = Json::array();
  for (const HeldRow& row : report.held) {
    Json one;
    one["client"] = row.client.value;
    one["task"] = report.task_name(row.client);
    one["by_client"] = row.by.value;
    one["by"] = report.task_name(row.by);
    one["count"] = row.held.count();
    one["total_us"] = us(static_cast<double>(row.held.total_ns()));
    add_quantiles(one, "", row.held);
    one["max_us"] = us(static_cast<double>(row.held.max_ns()));
    held.push_back(std::move(one));
  }
  Json& idle = out["idle"] = Json::array();
  for (const IdleRow& row : report.idle) {
    Json one;
    one["client"] = row.client.value;
    one["task"] = report.task_name(row.client);
    one["device"] = row.device.value;
    one["cause"] = idle_cause_name(row.cause);
    const bool names = row.cause == IdleCause::kHeld || row.cause == IdleCause::kOthers;
    one["by_client"] = names ? Json(row.by.value) : Json();
    one["by"] = names ? Json(report.task_name(row.by)) : Json();
    one["count"] = row.lengths.count();
    one["total_us"] = us(static_cast<double>(row.lengths.total_ns()));
    one["others_us"] = us(static_cast<double>(row.others_ns));
    add_quantiles(one, "", row.lengths);
    one["max_us"] = us(static_cast<double>(row.lengths.max_ns()));
    idle.push_back(std::move(one));
  }
  Json& ranges = out["ranges"] = Json::array();
  for (const RangeRow& row : report.ranges) {
    static constexpr const char* kKinds[] = {"nested", "free", "mark"};
    static const RangeInfo kUnknown;
    const RangeInfo& info =
        row.range < report.range_infos.size() ? report.range_infos[row.range] : kUnknown;
    Json one;
    one["client"] = row.client.value;
    one["task"] = report.task_name(row.client);
    one["domain"] = info.domain;
    one["name"] = info.name;
    one["kind"] = kKinds[static_cast<int>(row.kind)];
    one["count"] = row.lengths.count();
    one["total_us"] = us(static_cast<double>(row.lengths.total_ns()));
    add_quantiles(one, "", row.lengths);
    one["max_us"] = us(static_cast<double>(row.lengths.max_ns()));
    ranges.push_back(std::move(one));
  }
  Json& iterations = out["iterations"] = Json::array();
  for (const IterationRow& row : report.iterations) {
    Json one;
    one["client"] = row.client.value;
    one["task"] = report.task_name(row.client);
    one["iterations"] = row.iterations;
    one["launches_each"] = row.launches_each;
    one["confidence"] = share(row.confidence);
    add_quantiles(one, "", row.length);
    one["lowest_memory_at"] = row.lowest_position;
    one["lowest_memory_bytes"] = row.lowest_bytes;
    const bool any = row.typical_from_ns >= 0;
    one["typical_from_us"] = any ? Json(since_start(row.typical_from_ns)) : Json();
    one["typical_until_us"] = any ? Json(since_start(row.typical_until_ns)) : Json();
    one["starts_every"] = row.starts_every;
    Json& starts = one["starts_us"] = Json::array();
    for (const int64_t at_ns : row.starts_ns) starts.push_back(since_start(at_ns));
    iterations.push_back(std::move(one));
  }
  Json& policies = out["policies"] = Json::array();
  for (const PolicySpan& span : report.policies) {
    policies.push_back({{"at_us", since_start(span.at.ns)}, {"policy", span.policy}});
  }
  return out;
}

namespace {

std::string csv_cell(const Json& value) {
  std::string text;
  if (value.is_null()) return text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_array()) {
    for (const Json& part : value) {
      if (!text.empty()) text += part.is_string() ? "; " : "x";
      text += part.is_string() ? part.get<std::string>() : part.dump();
    }
  } else {
    text = value.dump();
  }
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::expected<std::string, std::string> report_csv(const Json& report, const std::string& table) {
  const auto found = report.find(table);
  if (found == report.end() || !found->is_array()) {
    return std::unexpected(fmt::format(
        "'{}' is no table: use one of kernels, kinds, tasks, streams, devices, held, idle, ranges, iterations",
        table));
  }
  std::string out;
  for (const Json& row : *found) {
    std::string heading, line;
    for (const auto& [key, value] : row.items()) {
      heading += (heading.empty() ? "" : ",") + key;
      line += (&value == &row.front() ? "" : ",") + csv_cell(value);
    }
    if (out.empty()) out = heading + "\n";
    out += line + "\n";
  }
  return out;
}

}  // namespace lull::trace
