// `lull trace timeline F`: streams and gates over time, drawn in the terminal.
#include <langinfo.h>
#include <clocale>
#include <cstdlib>
#include <cstring>

#include "tools/lull/output_width.h"
#include "tools/lull/trace/commands.h"
#include "tools/lull/trace/lanes.h"
#include "tools/lull/trace/report_text.h"
#include "tools/lull/trace/timeline_text.h"
#include "tools/lull/trace/trace_source.h"

namespace lull::command {
namespace {

constexpr size_t kUsualWidth = 120;
constexpr size_t kMaxSpans = 200'000;

}  // namespace

int trace_timeline_main(const Words& words) {
  std::string file, from_text, to_text;
  bool ascii = false;
  trace::TimelineOptions options;
  options.width = output_width(kUsualWidth);
  CommandLine line("Draws the streams of a trace, and when their launches were held, over time.",
                   "lull trace timeline");
  line.option("FILE", file, "a trace").required();
  line.option("--from", from_text, "begin here, as in 1.5ms (from the trace's beginning)");
  line.option("--to", to_text, "end here");
  line.option("--width", options.width, "columns, instead of the terminal's").range(40, 10000);
  line.flag("--ascii", ascii, "draw with plain characters");
  if (const auto code = parse_words(line, words)) return *code;
  int64_t from_ns = INT64_MIN, until_ns = INT64_MAX;
  for (const auto& [text, value, name] :
       {std::tuple{&from_text, &from_ns, "--from"}, {&to_text, &until_ns, "--to"}}) {
    if (text->empty()) continue;
    const auto time = trace::parse_time(*text);
    if (!time) {
      complain(fmt::format("trace timeline: {}: {}", name, time.error()));
      return kUsage;
    }
    *value = *time;
  }
  if (from_ns >= until_ns) {
    complain("trace timeline: --to is not after --from: give a later end");
    return kUsage;
  }
  std::setlocale(LC_CTYPE, "");
  options.ascii = ascii || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0;

  trace::Lanes lanes(kMaxSpans);
  auto reader = trace::Reader::open(file);
  if (!reader) {
    complain("trace timeline: " + reader.error());
    return kFailed;
  }
  const int64_t origin_ns = trace::sane_origin(reader->info()).ns;
  trace::Analysis analysis(reader->info());
  const auto inside = [&](int64_t start_ns, int64_t end_ns) {
    return end_ns - origin_ns >= from_ns && start_ns - origin_ns <= until_ns;
  };
  while (const trace::Event* event = reader->next()) {
    analysis.feed(*event);
    lanes.feed(*event, inside);
  }
  lanes.finish();
  trace::Report report = analysis.finish(reader->problem());
  report.file = file.substr(file.find_last_of('/') + 1);
  options.origin_ns = origin_ns;
  options.from_ns = from_ns != INT64_MIN ? origin_ns + from_ns : lanes.first_ns();
  options.until_ns = until_ns != INT64_MAX ? origin_ns + until_ns : lanes.last_ns();
  fmt::print("{}\n", wrapped(trace::heading_line(report), options.width, 2));
  if (lanes.empty()) {
    fmt::print("nothing to draw: no launch is recorded here\n");
  } else {
    fmt::print("{}", trace::timeline_text(lanes, report, options));
  }
  if (report.problem.empty()) return kDone;
  std::fflush(stdout);
  complain("trace timeline: " + report.problem);
  return kFailed;
}

}  // namespace lull::command
