#include "tools/simulate/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lull::simulate {
namespace {

constexpr double kWidth = 1000, kLeft = 150, kRight = 12, kHead = 62, kFoot = 34;
constexpr double kLane = 24, kBetween = 8, kRequests = 20, kPanelGap = 22;
// Kernels of the important program are few: each is to be seen.
constexpr double kLeastWidth[] = {0.9, 0.3};
constexpr double kLabelRoom = 44;  // of a request's length, in its bracket

constexpr const char* kStyle = R"(<style>
  svg { --paper: #ffffff; --ink: #1f2328; --faint: #d0d7de; --high: #0072b2; --low: #d55e00; --lane: #f3f5f7; }
  @media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #e6edf3; --faint: #3d444d; --high: #56b4e9; --low: #ff9b5e; --lane: #161b22; } }
  text { font: 12px sans-serif; fill: var(--ink); }
  .title { font-size: 15px; font-weight: bold; } .name { font-weight: bold; } .small { font-size: 11px; }
  .high { fill: var(--high); } .low { fill: var(--low); } .lane { fill: var(--lane); }
  .request { fill: none; stroke: var(--high); } .axis { stroke: var(--faint); fill: none; }
</style>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text(double x, double y, std::string_view classes, std::string_view what,
                 std::string_view anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n",
                     x, y, classes, anchor, escaped(what));
}

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// What one policy's panel is drawn from.
class Panel {
 public:
  Panel(const ExperimentPlan& plan, const PolicyResult& one, double top)
      : plan_(plan), one_(one), top_(top), from_(one.services.front().began) {}

  static double height(const ExperimentPlan& plan) {
    return kRequests + static_cast<double>(plan.lows.size() + 1) * (kLane + kBetween) + kPanelGap;
  }

  std::string draw() const {
    std::string out = text(0, top_ + 12, "name", one_.policy);
    out += requests();
    for (size_t task = 0; task <= plan_.lows.size(); ++task) out += lane(task);
    return out;
  }

 private:
  double x(Instant at) const {
    const double part =
        static_cast<double>((at - from_).ns) / static_cast<double>(plan_.timeline.ns);
    return kLeft + (kWidth - kLeft - kRight) * std::clamp(part, 0.0, 1.0);
  }
  double lane_top(size_t task) const {
    return top_ + kRequests + static_cast<double>(task) * (kLane + kBetween);
  }

  // A bracket over each request, with its length.
  std::string requests() const {
    std::string out;
    const double y = top_ + kRequests - 4;
    for (const Service& service : one_.services) {
      if (service.began >= from_ + plan_.timeline) break;
      const double from = x(service.began), until = x(service.ended);
      const bool whole = service.ended <= from_ + plan_.timeline;
      out += fmt::format("<path class=\"request\" d=\"M{:.1f} {:.1f}v-5H{:.1f}{}\"/>\n", from + 1,
                         y, until - 1, whole ? "v5" : "");
      if (whole && until - from >= kLabelRoom) {
        out += text((from + until) / 2, y - 9, "small",
                    fmt::format("{:.2f} ms", ms((service.ended - service.began).ns)), "middle");
      }
    }
    return out;
  }

  std::string lane(size_t task) const {
    const double y = lane_top(task);
    const command::Row& row = one_.rows[task];
    const std::string figure = task == 0 ? fmt::format("request {:.2f}x", row.slowdown_p50)
                                         : fmt::format("work {:.2f}x", row.throughput_ratio);
    std::string out = text(0, y + 16, "small", figure + " of alone");
    out += fmt::format("<rect class=\"lane\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>\n",
                       kLeft, y, kWidth - kLeft - kRight, kLane);
    std::string path;
    for (const KernelSpan& span : one_.kernels) {
      if (span.task != task) continue;
      const double from = x(span.began), width = std::max(kLeastWidth[task > 0], x(span.ended) - from);
      path += fmt::format("M{:.2f} {:.1f}h{:.2f}v{}h-{:.2f}z", from, y, width, kLane, width);
    }
    return out + fmt::format("<path class=\"{}\" d=\"{}\"/>\n", task == 0 ? "high" : "low", path);
  }

  const ExperimentPlan& plan_;
  const PolicyResult& one_;
  double top_;
  Instant from_;
};

std::string axis(const ExperimentPlan& plan, double y) {
  std::string out =
      fmt::format("<path class=\"axis\" d=\"M{} {:.1f}H{}\"/>\n", kLeft, y, kWidth - kRight);
  const double length = ms(plan.timeline.ns);
  const double step = length <= 12 ? 1 : length <= 60 ? 5 : length <= 120 ? 10 : length / 10;
  for (int n = 0; n * step <= length; ++n) {
    const double at = kLeft + (kWidth - kLeft - kRight) * n * step / length;
    out += text(at, y + 14, "small", n == 0 ? "0 ms" : fmt::format("{:g}", n * step), "middle");
  }
  return out;
}

}  // namespace

std::string timeline_svg(const ExperimentPlan& plan, const ExperimentResult& result) {
  std::string body;
  double y = kHead;
  for (const PolicyResult& one : result.policies) {
    if (one.services.empty()) continue;
    body += Panel(plan, one, y).draw();
    y += Panel::height(plan);
  }
  std::string others;
  for (const TaskSpec& low : plan.lows) others += (others.empty() ? "" : ", ") + low.task;
  const std::string title =
      fmt::format("{} (important) beside {} on one GPU, simulated", plan.high.task, others);
  const double height = y + kFoot - kPanelGap;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-12 0 {} {:.0f}\" width=\"{}\" "
      "height=\"{:.0f}\" role=\"img\">\n"
      "<title>{}</title>\n",
      kWidth + 12, height, kWidth + 12, height, escaped(title));
  out += kStyle;
  out +=
      fmt::format("<rect x=\"-12\" width=\"{}\" height=\"{:.0f}\" style=\"fill: var(--paper)\"/>\n",
                  kWidth + 12, height);
  out += text(0, 22, "title", title);
  out += fmt::format("<rect class=\"high\" x=\"0\" y=\"34\" width=\"12\" height=\"10\"/>\n");
  out += text(18, 43, "small",
              fmt::format("kernels of {}, a bracket over each request", plan.high.task));
  out += fmt::format("<rect class=\"low\" x=\"420\" y=\"34\" width=\"12\" height=\"10\"/>\n");
  out += text(438, 43, "small", "kernels of " + others);
  return out + body + axis(plan, y - kPanelGap + 4) + "</svg>\n";
}

}  // namespace lull::simulate
