// `lull trace show F`: which kernels, how long, how long the pauses after them, who held whom.
#include <map>

#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/trace/commands.h"
#include "tools/lull/trace/report_text.h"
#include "tools/lull/trace/trace_source.h"

namespace lull::command {

int trace_show_main(const Words& words) {
  std::string file, table = "kernels";
  bool as_csv = false;
  JsonOutput as_json;
  trace::TextOptions options;
  options.width = output_width();
  std::string by = "time";
  CommandLine line("Shows where the time of a recorded run went.", "lull trace show");
  line.option("FILE", file, "a trace").required();
  line.option("--top", options.top, "how many kernels (0: all)");
  line.option("--by", by, "order of the kernels: time, count or gap (the time after)")
      .one_of({"time", "count", "gap"});
  line.option("--width", options.width, "columns, instead of the terminal's").range(40, 10000);
  const Option csv = line.flag("--csv", as_csv, "print one table as CSV");
  line.option("--table", table,
              "which one: kernels (default), kinds, tasks, streams, devices, held, idle, ranges, iterations")
      .needs(csv);
  as_json.add_to(line).excludes(csv);
  if (const auto code = parse_words(line, words)) return *code;
  if (options.top == 0) options.top = SIZE_MAX;
  options.by = by == "count" ? trace::SortBy::kCount
               : by == "gap" ? trace::SortBy::kGap
                             : trace::SortBy::kTime;

  const auto report = trace::analyse(file);
  if (!report) {
    complain("trace show: " + report.error());
    return kFailed;
  }
  trace::CallSites sites;
  if (as_json.asked() &&
      !as_json.write("trace show", trace::report_json(*report, options.by, sites))) {
    return kFailed;
  }
  if (as_csv) {
    const auto text = trace::report_csv(trace::report_json(*report, options.by, sites), table);
    if (!text) {
      complain("trace show: --table: " + text.error());
      return kUsage;
    }
    fmt::print("{}", *text);
  } else if (!as_json.replaces_text()) {
    fmt::print("{}", trace::report_text(*report, options, sites));
  }
  if (report->problem.empty()) return kDone;
  std::fflush(stdout);
  complain("trace show: " + report->problem);
  return kFailed;
}

}  // namespace lull::command
