#include "tools/lull/trace/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/lull/trace/kernel_display.h"
#include "tools/lull/trace/report_text.h"
#include "tools/measure/text_table.h"

namespace lull::trace {
namespace {

using command::TextTable;
using Json = nlohmann::ordered_json;

// Rows of one kernel on several devices: the sums, and the figures of the busiest device.
void add(KernelSide& side, const KernelRow& row) {
  if (row.total.count > side.total.count) {
    side.duration = row.duration;
    side.gap = row.gap;
  }
  side.total.count += row.total.count;
  side.total.timed += row.total.timed;
  side.total.measured_ns = add_ns(side.total.measured_ns, row.total.measured_ns);
}

std::string looks_of(const KernelInfo& kernel) {
  return fmt::format("{}|{}|{}|{}|{}", display_name(kernel.name), static_cast<int>(kernel.kind),
                     shape_text(kernel), kernel.shared_bytes, kernel.graph_kernels);
}

double known_ns(const Total& total) { return std::max(0.0, total.total_ns()); }

double all_ns(const Report& report) {
  double sum = 0;
  for (const KernelRow& row : report.kernels) sum += known_ns(row.total);
  return sum;
}

std::string signed_time(double ns) {
  return ns == 0 ? "0" : (ns < 0 ? "-" : "+") + time_text(std::abs(ns));
}
std::string percent_change(double from, double to) {
  if (from <= 0) return to <= 0 ? "-" : "new";
  return fmt::format("{:+.1f} %", (to / from - 1) * 100);
}
std::string from_to(const LogHistogram& a, const LogHistogram& b) {
  return fmt::format("{} > {}", time_text(a.quantile_ns(0.5), a.count() > 0),
                     time_text(b.quantile_ns(0.5), b.count() > 0));
}

// A sentence: how much more or less, and which kernel that is most.
std::string comparison_verdict(const Report& a, const Report& b,
                               const std::vector<KernelChange>& changes) {
  const double from = all_ns(a), to = all_ns(b), more = to - from;
  if (from <= 0 || to <= 0) {
    return fmt::format("{} has no timed launch: record with --timing full to compare times.",
                       from > 0 ? "B"
                       : to > 0 ? "A"
                                : "Neither");
  }
  const bool estimated = std::ranges::any_of(changes, [](const KernelChange& change) {
    return change.a.total.is_estimate() || change.b.total.is_estimate();
  });
  std::string out = a.info.simulated && b.info.simulated ? "Simulated: "
                    : a.info.simulated != b.info.simulated
                        ? fmt::format("{} is simulated, {} is not: ", a.info.simulated ? "A" : "B",
                                      a.info.simulated ? "B" : "A")
                        : "";
  constexpr double kSame = 0.0005;  // is shown as 0.0 %
  if (std::abs(more) < kSame * from) {
    out += "B takes as much device time as A";
  } else {
    out += fmt::format("B takes {}{} {} device time than A ({})", estimated ? "about " : "",
                       time_text(std::abs(more)), more > 0 ? "more" : "less",
                       percent_change(from, to));
  }
  if (changes.empty() || std::abs(changes.front().change_ns()) < kSame * from) return out + ".";
  const KernelChange& most = changes.front();
  return out + fmt::format("; most changes {}, {}{}.",
                           shorten_name(display_name(most.kernel.name), 40),
                           signed_time(most.change_ns()),
                           !most.in_a   ? " and new"
                           : !most.in_b ? " and gone"
                                        : "");
}

}  // namespace

double KernelChange::change_ns() const { return known_ns(b.total) - known_ns(a.total); }

std::vector<KernelChange> compare(const Report& a, const Report& b) {
  std::vector<KernelChange> changes;
  std::map<uint64_t, size_t> by_id;
  std::map<std::string, std::vector<size_t>> by_looks;
  for (const KernelRow& row : a.kernels) {
    if (row.kernel >= a.kernel_infos.size()) continue;
    const KernelInfo& info = a.kernel_infos[row.kernel];
    const auto [found, added] = by_id.try_emplace(info.id.value, changes.size());
    if (added) {
      changes.push_back({info, true, false, {}, {}});
      by_looks[looks_of(info)].push_back(found->second);
    }
    add(changes[found->second].a, row);
  }
  std::map<uint64_t, size_t> chosen;  // id in b -> its row
  for (const KernelRow& row : b.kernels) {
    if (row.kernel >= b.kernel_infos.size()) continue;
    const KernelInfo& info = b.kernel_infos[row.kernel];
    if (const auto same = by_id.find(info.id.value); same != by_id.end()) {
      chosen[info.id.value] = same->second;
      changes[same->second].in_b = true;
    }
  }
  for (const KernelRow& row : b.kernels) {
    if (row.kernel >= b.kernel_infos.size()) continue;
    const KernelInfo& info = b.kernel_infos[row.kernel];
    auto found = chosen.find(info.id.value);
    if (found == chosen.end()) {
      size_t at = changes.size();
      for (const size_t candidate : by_looks[looks_of(info)]) {
        if (!changes[candidate].in_b) {
          at = candidate;
          break;
        }
      }
      if (at == changes.size()) changes.push_back({info, false, true, {}, {}});
      changes[at].in_b = true;
      found = chosen.emplace(info.id.value, at).first;
    }
    add(changes[found->second].b, row);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const auto& one, const auto& other) {
    return std::abs(one.change_ns()) > std::abs(other.change_ns());
  });
  return changes;
}

std::string comparison_text(const Report& a, const Report& b,
                            const std::vector<KernelChange>& changes, size_t top, size_t width) {
  const auto line = [&](const std::string& text) {
    return command::wrapped(text, width, 3) + '\n';
  };
  std::string out = line("A  " + heading_line(a)) + line("B  " + heading_line(b));
  out += line(fmt::format("device work {} > {} ({}), launches {} > {}", time_text(all_ns(a)),
                          time_text(all_ns(b)), percent_change(all_ns(a), all_ns(b)), a.launches,
                          b.launches));
  const size_t shown = std::min(top, changes.size());
  out += fmt::format("\nKERNELS by change of total time, {} of {}\n", shown, changes.size());
  TextTable table({{"CHANGE"},
                   {""},
                   {"TOTAL"},
                   {"COUNT"},
                   {"P50"},
                   {"GAP P50"},
                   TextTable::name_column("KERNEL", shorten_name)});
  const auto cells = [](const KernelChange& change, std::string name) {
    const double from = known_ns(change.a.total), to = known_ns(change.b.total);
    return std::vector<std::string>{
        signed_time(change.change_ns()),
        !change.in_b ? "gone" : percent_change(from, to),
        fmt::format("{} > {}", time_text(from, change.in_a), time_text(to, change.in_b)),
        change.a.total.count == change.b.total.count
            ? fmt::format("{}", change.a.total.count)
            : fmt::format("{} > {}", change.a.total.count, change.b.total.count),
        from_to(change.a.duration, change.b.duration),
        from_to(change.a.gap, change.b.gap),
        std::move(name)};
  };
  for (size_t i = 0; i < shown; ++i) {
    table.add(cells(changes[i], display_name(changes[i].kernel.name)));
  }
  return out + table.text(width) + '\n' +
         command::wrapped(comparison_verdict(a, b, changes), width) + '\n';
}

Json comparison_json(const Report& a, const Report& b, const std::vector<KernelChange>& changes) {
  const auto us = [](double ns) { return std::round(ns) / 1e3; };
  const auto side = [&](const KernelSide& one, bool there) {
    if (!there) return Json();
    Json out;
    out["count"] = one.total.count;
    out["total_us"] = one.total.is_known() ? Json(us(one.total.total_ns())) : Json();
    out["estimated"] = one.total.is_estimate();
    out["p50_us"] = one.duration.count() > 0 ? Json(us(one.duration.quantile_ns(0.5))) : Json();
    out["p99_us"] = one.duration.count() > 0 ? Json(us(one.duration.quantile_ns(0.99))) : Json();
    out["gap_p50_us"] = one.gap.count() > 0 ? Json(us(one.gap.quantile_ns(0.5))) : Json();
    return out;
  };
  Json out;
  out["a"] = {{"file", a.file},
              {"simulated", a.info.simulated},
              {"launches", a.launches},
              {"total_us", us(all_ns(a))}};
  out["b"] = {{"file", b.file},
              {"simulated", b.info.simulated},
              {"launches", b.launches},
              {"total_us", us(all_ns(b))}};
  out["verdict"] = comparison_verdict(a, b, changes);
  Json& kernels = out["kernels"] = Json::array();
  for (const KernelChange& change : changes) {
    Json one;
    one["name"] = display_name(change.kernel.name);
    one["mangled"] = change.kernel.name;
    one["kind"] = kind_name(change.kernel.kind);
    one["grid"] = change.kernel.grid;
    one["block"] = change.kernel.block;
    one["change_us"] = us(change.change_ns());
    one["a"] = side(change.a, change.in_a);
    one["b"] = side(change.b, change.in_b);
    kernels.push_back(std::move(one));
  }
  return out;
}

}  // namespace lull::trace
