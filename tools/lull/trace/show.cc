// `lull trace show F`: which kernels, how long, how long the pauses after them, who held whom.
#include <map>

#include "tools/lull/trace/commands.h"
#include "tools/lull/trace/report_text.h"
#include "tools/lull/trace/trace_source.h"

namespace lull::command {

namespace {
constexpr size_t kUsualWidth = 140;
}

int trace_show_main(const Words& words) {
  std::string file, table = "kernels";
  bool as_csv = false, as_json = false;
  trace::TextOptions options;
  options.width = trace::terminal_width(kUsualWidth);
  const std::map<std::string, trace::SortBy> orders = {{"time", trace::SortBy::kTime},
                                                       {"count", trace::SortBy::kCount},
                                                       {"gap", trace::SortBy::kGap}};
  CLI::App app("Shows where the time of a recorded run went.", "lull trace show");
  app.add_option("FILE", file, "a trace")->required();
  app.add_option("--top", options.top, "how many kernels (0: all)");
  app.add_option("--by", options.by, "order of the kernels: time, count or gap (the time after)")
      ->transform(CLI::CheckedTransformer(orders).description(""));
  app.add_option("--width", options.width, "columns, instead of the terminal's")
      ->check(CLI::Range(40, 10000));
  auto* csv = app.add_flag("--csv", as_csv, "print one table as CSV");
  app.add_option("--table", table,
                 "which one: kernels (default), tasks, streams, devices, held, iterations")
      ->needs(csv);
  app.add_flag("--json", as_json, "print everything as JSON")->excludes(csv);
  if (const auto code = parse_words(app, words)) return *code;
  if (options.top == 0) options.top = SIZE_MAX;

  const auto report = trace::analyse(file);
  if (!report) {
    complain("trace show: " + report.error());
    return kFailed;
  }
  trace::CallSites sites;
  if (as_json) {
    fmt::print("{}\n", trace::report_json(*report, options.by, sites)
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (as_csv) {
    const auto text = trace::report_csv(trace::report_json(*report, options.by, sites), table);
    if (!text) {
      complain("trace show: --table: " + text.error());
      return kUsage;
    }
    fmt::print("{}", *text);
  } else {
    fmt::print("{}", trace::report_text(*report, options, sites));
  }
  if (report->problem.empty()) return kDone;
  std::fflush(stdout);
  complain("trace show: " + report->problem);
  return kFailed;
}

}  // namespace lull::command
