// `lull trace diff A B`: which kernels take more or less time in B than in A.
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/trace/commands.h"
#include "tools/lull/trace/comparison.h"
#include "tools/lull/trace/trace_source.h"

namespace lull::command {

int trace_diff_main(const Words& words) {
  std::string a_file, b_file;
  JsonOutput as_json;
  size_t top = 20, width = output_width();
  CommandLine line("Shows what changed from one recorded run to another, kernel by kernel.",
                   "lull trace diff");
  line.option("A", a_file, "a trace").required();
  line.option("B", b_file, "another").required();
  line.option("--top", top, "how many kernels (0: all)");
  line.option("--width", width, "columns, instead of the terminal's").range(40, 10000);
  as_json.add_to(line);
  if (const auto code = parse_words(line, words)) return *code;
  if (top == 0) top = SIZE_MAX;
  const auto a = trace::analyse(a_file);
  const auto b = trace::analyse(b_file);
  for (const auto* report : {&a, &b}) {
    if (*report) continue;
    complain("trace diff: " + report->error());
    return kFailed;
  }
  const auto changes = trace::compare(*a, *b);
  if (!as_json.replaces_text()) {
    fmt::print("{}", trace::comparison_text(*a, *b, changes, top, width));
  }
  if (as_json.asked() && !as_json.write("trace diff", trace::comparison_json(*a, *b, changes))) {
    return kFailed;
  }
  std::fflush(stdout);
  bool whole = true;
  for (const auto* report : {&*a, &*b}) {
    if (report->problem.empty()) continue;
    complain("trace diff: " + report->problem);
    whole = false;
  }
  return whole ? kDone : kFailed;
}

}  // namespace lull::command
