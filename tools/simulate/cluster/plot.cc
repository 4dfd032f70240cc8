#include "tools/simulate/cluster/plot.h"

#include <fmt/format.h>

#include <algorithm>

namespace lull::simulate::cluster {
namespace {

constexpr double kWidth = 1100, kLeft = 60, kChart = 120, kRow = 7;
constexpr size_t kMostRows = 64;
constexpr size_t kMostBars = 20'000;

constexpr std::string_view kHead = R"(<!doctype html>
<meta charset="utf-8"><title>lull simulate cluster: simulated</title>
<style>
  :root { --paper: #ffffff; --ink: #1f2328; --faint: #d0d7de; --run: #0072b2; --wait: #d55e00; --busy: #009e73; }
  @media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --faint: #3d444d; --run: #56b4e9; --wait: #ff9b5e; --busy: #3fd6a4; } }
  body { background: var(--paper); color: var(--ink); font: 13px sans-serif; margin: 24px; }
  pre { font: 12px monospace; } text { font: 11px sans-serif; fill: var(--ink); }
  .axis { stroke: var(--faint); } polyline { fill: none; stroke-width: 1.4; }
  .run { stroke: var(--run); color: var(--run); } .wait { stroke: var(--wait); color: var(--wait); } .busy { stroke: var(--busy); color: var(--busy); }
</style>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else out += c;
  }
  return out;
}

// One line of a chart: `value` of each sample, of at most `most`.
template <typename Value>
std::string line_of(const Result& result, double end_s, double most, const char* name, Value value) {
  std::string points;
  for (const Sample& sample : result.samples) {
    const double x = kLeft + (kWidth - kLeft) * sample.at_s / end_s;
    const double y = kChart - (kChart - 10) * value(sample) / most;
    points += fmt::format("{:.1f},{:.1f} ", x, y);
  }
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", name, points);
}

}  // namespace

std::string runs_html(std::span<const Run> runs) {
  std::string out(kHead);
  out += "<h1>Simulated cluster</h1>\n<pre>" + escaped(show_runs(runs)) + "</pre>\n";
  double end_s = 1, most_jobs = 1;
  for (const Run& run : runs) {
    end_s = std::max(end_s, run.result.makespan_s);
    for (const Sample& sample : run.result.samples) {
      most_jobs = std::max({most_jobs, static_cast<double>(sample.running),
                            static_cast<double>(sample.waiting)});
    }
  }
  for (const Run& run : runs) {
    out += fmt::format(
        "<h2>{}, simulated</h2>\n<p>jobs that <span class=\"run\">run</span> and <span class=\"wait\">wait</span> "
        "(up to {:.0f}), <span class=\"busy\">GPUs busy</span> (up to 100 %), over {:.1f} h</p>\n",
        escaped(run.plan.policy.text), most_jobs, end_s / 3600);
    out += fmt::format("<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
                       "<line class=\"axis\" x1=\"{2}\" y1=\"{3}\" x2=\"{0}\" y2=\"{3}\"/>\n",
                       kWidth, kChart + 20, kLeft, kChart);
    for (int i = 0; i <= 4; ++i) {
      out += fmt::format("<text x=\"{:.0f}\" y=\"{}\" text-anchor=\"{}\">{:.0f} h</text>\n",
                         kLeft + (kWidth - kLeft) * i / 4, kChart + 15, i == 4 ? "end" : "middle",
                         end_s / 3600 * i / 4);
    }
    out += line_of(run.result, end_s, most_jobs, "wait", [](const Sample& s) { return s.waiting; });
    out += line_of(run.result, end_s, most_jobs, "run", [](const Sample& s) { return s.running; });
    out += line_of(run.result, end_s, 1, "busy", [](const Sample& s) { return s.busy; });
    out += "</svg>\n";
    const size_t rows = std::min(kMostRows, run.plan.cluster.gpus.size());
    out += fmt::format("<p>the first {0} GPUs: a colour a job; thinner where several share</p>\n"
                       "<svg width=\"{1}\" height=\"{2:.0f}\" viewBox=\"0 0 {1} {2:.0f}\" role=\"img\">\n",
                       rows, kWidth, kRow * static_cast<double>(rows) + 4);
    for (size_t row = 0; row < rows; row += 4) {
      out += fmt::format("<text x=\"0\" y=\"{:.0f}\">GPU {}</text>\n",
                         kRow * static_cast<double>(row) + 9, row);
    }
    size_t bars = 0;
    for (const Span& span : run.result.lanes) {
      if (span.device.value >= rows || bars >= kMostBars) continue;
      const double width = (kWidth - kLeft) * (span.end_s - span.begin_s) / end_s;
      if (width < 0.05) continue;
      ++bars;
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"hsl({} 60% 50%)\"/>\n",
          kLeft + (kWidth - kLeft) * span.begin_s / end_s, kRow * span.device.value + 1, width,
          span.jobs > 1 ? (kRow - 1) / 2 : kRow - 1, span.job * 137 % 360);
    }
    out += "</svg>\n";
  }
  return out;
}

}  // namespace lull::simulate::cluster
