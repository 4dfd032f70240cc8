#include "tools/measure/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/measure/values.h"

namespace lull::command {
namespace {

constexpr SlowdownBound kUsualBound{30, 50};  // what guarded keeps where nothing is said
constexpr size_t kLegendWidth = 100;          // sentences are read more easily in lines

std::string show(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "-";
}

nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

// Work gained per ns of device time, over the finished iterations.
double exchange_rate(const TaskRecord& record) {
  if (record.iterations.empty()) return kUnknown;
  const Window all{record.iterations.front().start_ns, record.iterations.back().end_ns};
  const double device_ns = record.device_time.at(all.end_ns) - record.device_time.at(all.start_ns);
  const double work = record.work.at(all.end_ns) - record.work.at(all.start_ns);
  return device_ns > 0 ? work / device_ns : kUnknown;
}

}  // namespace

void Curve::add(double at_ns, double value) {
  if (!points_.empty() && (at_ns < points_.back().at_ns || value < points_.back().value)) return;
  points_.push_back({at_ns, value});
}

std::pair<Curve::Point, Curve::Point> Curve::around(double at_ns) const {
  if (points_.empty()) return {};
  const auto after = std::upper_bound(points_.begin(), points_.end(), at_ns,
                                      [](double t, const Point& point) { return t < point.at_ns; });
  if (after == points_.begin()) return {*after, *after};
  if (after == points_.end()) return {points_.back(), points_.back()};
  return {*(after - 1), *after};
}

double Curve::at(double at_ns) const {
  const auto [before, after] = around(at_ns);
  const double span = after.at_ns - before.at_ns;
  if (span <= 0) return before.value;
  return before.value + (after.value - before.value) * (at_ns - before.at_ns) / span;
}

Spread spread(std::vector<double> values) {
  if (values.empty()) return {kUnknown, kUnknown, kUnknown};
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    const double rank = q * static_cast<double>(values.size() - 1);
    const size_t low = static_cast<size_t>(rank);
    const size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (rank - static_cast<double>(low));
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()), quantile(0.5), quantile(0.99)};
}

std::vector<double> measured_lengths_ns(const TaskRecord& record, size_t warmup) {
  std::vector<double> lengths;
  for (size_t n = warmup; n < record.iterations.size(); ++n) {
    lengths.push_back(record.iterations[n].end_ns - record.iterations[n].start_ns);
  }
  return lengths;
}

Window measured_window(const TaskRecord& record, size_t warmup) {
  if (record.iterations.size() <= warmup) return {};
  return {record.iterations[warmup].start_ns, record.iterations.back().end_ns};
}

double work_rate(const TaskRecord& record, const Window& window, const TaskRecord& reference) {
  if (window.length_ns() <= 0) return kUnknown;
  double beyond = exchange_rate(record);
  if (!std::isfinite(beyond)) beyond = exchange_rate(reference);
  const auto device_ns = [&](double from_ns, double to_ns) {
    return record.device_time.at(to_ns) - record.device_time.at(from_ns);
  };
  const auto work_at = [&](double at_ns) {
    if (at_ns > record.work.last_at_ns()) {
      const double from_ns = record.work.empty() ? window.start_ns : record.work.last_at_ns();
      const double more = beyond * device_ns(from_ns, at_ns);
      return record.work.last_value() + (std::isfinite(more) ? more : 0);
    }
    const auto [before, after] = record.work.around(at_ns);
    const double whole = device_ns(before.at_ns, after.at_ns);
    if (whole <= 0) return record.work.at(at_ns);
    return before.value + (after.value - before.value) * device_ns(before.at_ns, at_ns) / whole;
  };
  return (work_at(window.end_ns) - work_at(window.start_ns)) / window.length_ns();
}

double growth_share(const Curve& curve, const Window& window) {
  if (window.length_ns() <= 0 || curve.empty()) return kUnknown;
  return std::clamp((curve.at(window.end_ns) - curve.at(window.start_ns)) / window.length_ns(), 0.0,
                    1.0);
}

std::vector<Row> make_rows(const std::string& policy, const PhaseRecord& phase, const Side& high,
                           const Side& low, const PhaseRecord& alone_high,
                           const PhaseRecord& alone_low) {
  // Together, everything is measured while the high task ran; alone, while the task itself did.
  const Window window = phase.high ? measured_window(*phase.high, high.warmup)
                                   : measured_window(*phase.low, low.warmup);
  std::string reason = phase.stopped_because;
  if (phase.high && reason.empty()) {
    const size_t done = measured_lengths_ns(*phase.high, high.warmup).size();
    const double alone_ns = spread(measured_lengths_ns(*alone_high.high, high.warmup)).mean;
    if (done < high.iterations_min) {
      reason = fmt::format("the high task finished {} iterations, {} are needed", done,
                           high.iterations_min);
    } else if (!(phase.high->late_p99_ns <= kLateShareMax * alone_ns)) {
      reason = fmt::format(
          "the player was {} late, more than {:.0f} % of the JCT alone: use a quieter "
          "machine or a larger --slow-motion",
          show_ns(phase.high->late_p99_ns), 100 * kLateShareMax);
    }
  }
  std::vector<Row> rows;
  const auto add = [&](const TaskRecord& record, const TaskRecord& alone, const Side& side,
                       const char* role) {
    std::vector<double> lengths;
    if (&record == (phase.high ? &*phase.high : nullptr) || !phase.high) {
      lengths = measured_lengths_ns(record, side.warmup);
    } else {
      for (const Iteration& one : record.iterations) {
        if (one.start_ns >= window.start_ns && one.end_ns <= window.end_ns) {
          lengths.push_back(one.end_ns - one.start_ns);
        }
      }
    }
    const Spread now = spread(lengths);
    const Spread before = spread(measured_lengths_ns(alone, side.warmup));
    const double alone_rate = work_rate(alone, measured_window(alone, side.warmup), alone);
    Row row;
    row.policy = policy;
    row.task = side.task;
    row.role = role;
    row.completed = lengths.size();
    row.jct_ms_mean = now.mean / 1e6;
    row.p50_ms = now.p50 / 1e6;
    row.p99_ms = now.p99 / 1e6;
    row.slowdown_p50 = now.p50 / before.p50;
    row.slowdown_p99 = now.p99 / before.p99;
    row.throughput_ratio = work_rate(record, window, alone) / alone_rate;
    row.device_share = growth_share(record.device_time, window);
    row.gpu_busy = growth_share(phase.device_busy, window);
    row.reason = reason;
    if (row.reason.empty() && !phase.high && row.completed < side.iterations_min) {
      row.reason =
          fmt::format("finished {} iterations, {} are needed", row.completed, side.iterations_min);
    }
    row.valid = row.reason.empty();
    rows.push_back(std::move(row));
  };
  if (phase.high) add(*phase.high, *alone_high.high, high, "high");
  if (phase.low) add(*phase.low, *alone_low.low, low, "low");
  return rows;
}

std::string show_table(const Heading& heading, const std::vector<Row>& rows, size_t width) {
  const bool says_so = heading.device.starts_with("simulated");
  std::string about =
      fmt::format("{}{}; sharing {}", heading.simulated && !says_so ? "simulated: " : "",
                  heading.device, heading.sharing);
  if (heading.simulated) {
    about += fmt::format("; slow motion {:g}; control latency {:g} us", heading.slow_motion,
                         heading.control_latency_us);
  }
  if (!heading.oracle.empty()) about += "; oracle: " + heading.oracle;
  if (!heading.arrivals.empty()) about += "; " + heading.arrivals;
  if (heading.bound.is_set()) about += "; high task may lose " + describe_slowdown(heading.bound);
  about += fmt::format("; player late p99 {:.3g} us{}", heading.player_late_p99_us,
                       heading.low_greedy ? "; low task greedy (without its host pauses)" : "");
  std::vector<TextTable::Column> columns = {TextTable::name_column("policy"),
                                            TextTable::name_column("task"),
                                            TextTable::word_column("role"),
                                            {"done"},
                                            {"JCT ms mean"},
                                            {"p50"},
                                            {"p99"},
                                            {"slowdown p50"},
                                            {"slowdown p99"},
                                            {"throughput"},
                                            {"device share"},
                                            {"GPU busy"}};
  // Columns that not every comparison has.
  struct More {
    double Row::*value;
    const char* name;
    const char* format;
  };
  constexpr More kMore[] = {{&Row::slowdown_mean, "slowdown mean", "{:.4f}x"},
                            {&Row::response_ms_mean, "response mean", "{:.3f}"},
                            {&Row::response_p50_ms, "resp p50", "{:.3f}"},
                            {&Row::response_p99_ms, "resp p99", "{:.3f}"},
                            {&Row::oracle_share, "oracle share", "{:.3f}"},
                            {&Row::oracle_found_share, "of found", "{:.3f}"},
                            {&Row::oracle0_share, "oracle0 share", "{:.3f}"}};
  std::vector<More> more;
  for (const More& one : kMore) {
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const Row& row) { return std::isfinite(row.*one.value); })) {
      more.push_back(one);
      columns.push_back({one.name});
    }
  }
  TextTable table(std::move(columns), /*indent=*/0);
  std::string last_reason;
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.policy,
                                      row.task,
                                      row.role,
                                      fmt::format("{}", row.completed),
                                      show(row.jct_ms_mean, "{:.3f}"),
                                      show(row.p50_ms, "{:.3f}"),
                                      show(row.p99_ms, "{:.3f}"),
                                      show(row.slowdown_p50, "{:.2f}x"),
                                      show(row.slowdown_p99, "{:.2f}x"),
                                      show(row.throughput_ratio, "{:.2f}x"),
                                      show_share(row.device_share),
                                      show_share(row.gpu_busy)};
    for (const More& one : more) cells.push_back(show(row.*one.value, one.format));
    table.add(std::move(cells));
    if (!row.valid) {
      table.note(fmt::format("INVALID: {}", row.reason == last_reason ? "as above" : row.reason));
    }
    last_reason = row.reason;
  }
  std::string legend =
      "JCT: length of an iteration. Slowdown and throughput: against the same task alone. Device "
      "share: the part of the time in which the task's kernels ran on the device.";
  if (heading.simulated) legend += " Times are simulated, unstretched.";
  return wrapped(about, width) + "\n\n" + table.text(width) + "\n" +
         wrapped(legend, std::min(width, kLegendWidth)) + "\n\n" +
         wrapped(verdict(heading, rows), std::min(width, kLegendWidth)) + "\n";
}

std::string verdict(const Heading& heading, const std::vector<Row>& rows) {
  // Of one policy: what the high task loses, and the others' work in the mean.
  struct Outcome {
    std::string policy;
    const Row* high = nullptr;
    double loss_mean = kUnknown, loss_p99 = kUnknown;
    double others = 0;
    size_t other_count = 0;
    const Row* other = nullptr;
    bool valid = true;
  };
  double alone_ms = kUnknown;
  std::vector<Outcome> outcomes;
  for (const Row& row : rows) {
    if (row.policy == "alone") {
      if (row.role == "high") alone_ms = row.jct_ms_mean;
      continue;
    }
    if (outcomes.empty() || outcomes.back().policy != row.policy) outcomes.push_back({row.policy});
    Outcome& one = outcomes.back();
    one.valid = one.valid && row.valid;
    if (row.role == "high") {
      one.high = &row;
      one.loss_mean =
          (std::isfinite(row.slowdown_mean) ? row.slowdown_mean : row.jct_ms_mean / alone_ms) - 1;
      one.loss_p99 = row.slowdown_p99 - 1;
    } else {
      one.other = &row;
      one.others += row.throughput_ratio;
      ++one.other_count;
    }
  }
  const auto counts = [](const Outcome& one) {
    return one.valid && one.high != nullptr && one.other_count > 0 &&
           std::isfinite(one.loss_mean) && std::isfinite(one.loss_p99) && std::isfinite(one.others);
  };
  const SlowdownBound bound = heading.bound.is_set() ? heading.bound : kUsualBound;
  const auto within = [&](const Outcome& one) {
    return one.loss_mean <= bound.mean_per_mille / 1000.0 &&
           one.loss_p99 <= bound.p99_per_mille / 1000.0;
  };
  // Within the bound the one that lets the others do most, else the one that costs least.
  const auto better = [&](const Outcome& a, const Outcome& b) {
    if (within(a) != within(b)) return within(a);
    return within(a) ? a.others > b.others : a.loss_mean < b.loss_mean;
  };
  const Outcome* best = nullptr;
  const Outcome* share = nullptr;
  for (const Outcome& one : outcomes) {
    if (!counts(one)) continue;
    if (best == nullptr || better(one, *best)) best = &one;
    if (one.policy == "share") share = &one;
  }
  const std::string simulated = heading.simulated ? "Simulated: " : "";
  if (best == nullptr)
    return simulated + "no row of two programs together is valid: nothing can be said.";
  const auto loss = [](const Outcome& one) {
    return fmt::format("{:.1f} % in the mean and {:.1f} % at p99", 100 * one.loss_mean,
                       100 * one.loss_p99);
  };
  const auto work = [](const Outcome& one) {
    const double part = one.others / static_cast<double>(one.other_count);
    return fmt::format(
        "{} does {:.0f} % of what it does alone",
        one.other_count == 1 ? one.other->task : fmt::format("each of {} others", one.other_count),
        100 * part);
  };
  std::string text = fmt::format(
      "{}{} {} under {}: it loses {} (may: {}) in {} iterations, and {}", simulated,
      best->high->task,
      within(*best) ? "is kept within its bound" : "is over its bound everywhere, least",
      best->policy, loss(*best), describe_slowdown(bound), best->high->completed, work(*best));
  if (share != nullptr && share != best) {
    text += fmt::format("; under share it loses {}, and {}", loss(*share), work(*share));
  }
  const auto invalid = std::count_if(outcomes.begin(), outcomes.end(),
                                     [&](const Outcome& one) { return !counts(one); });
  if (invalid > 0)
    text += fmt::format("; {} of {} policies cannot be judged", invalid, outcomes.size());
  return text + ".";
}

nlohmann::json to_json(const Heading& heading, const std::vector<Row>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const Row& row : rows) {
    list.push_back({{"policy", row.policy},
                    {"task", row.task},
                    {"role", row.role},
                    {"completed", row.completed},
                    {"jct_ms_mean", number(row.jct_ms_mean)},
                    {"p50_ms", number(row.p50_ms)},
                    {"p99_ms", number(row.p99_ms)},
                    {"slowdown_p50", number(row.slowdown_p50)},
                    {"slowdown_p99", number(row.slowdown_p99)},
                    {"throughput_ratio", number(row.throughput_ratio)},
                    {"device_share", number(row.device_share)},
                    {"gpu_busy", number(row.gpu_busy)},
                    {"valid", row.valid},
                    {"reason", row.reason}});
    for (const auto& [name, value] : {std::pair{"slowdown_mean", row.slowdown_mean},
                                      {"response_ms_mean", row.response_ms_mean},
                                      {"response_p50_ms", row.response_p50_ms},
                                      {"response_p99_ms", row.response_p99_ms},
                                      {"oracle_share", row.oracle_share},
                                      {"oracle_found_share", row.oracle_found_share},
                                      {"oracle0_share", row.oracle0_share}}) {
      if (std::isfinite(value)) list.back()[name] = value;
    }
  }
  nlohmann::json table = {{"device", heading.device},
                          {"simulated", heading.simulated},
                          {"sharing", heading.sharing},
                          {"slow_motion", heading.slow_motion},
                          {"control_latency_us", heading.control_latency_us},
                          {"player_late_p99_us", number(heading.player_late_p99_us)},
                          {"low_greedy", heading.low_greedy},
                          {"rows", std::move(list)}};
  if (heading.bound.is_set()) {
    table["max_slowdown"] = {{"mean", heading.bound.mean_per_mille / 1000.0},
                             {"p99", heading.bound.p99_per_mille / 1000.0}};
  }
  if (!heading.oracle.empty()) table["oracle"] = heading.oracle;
  return table;
}

}  // namespace lull::command
