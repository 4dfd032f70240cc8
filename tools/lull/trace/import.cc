// `lull trace import KINETO.json.gz -o F`: a PyTorch profiler recording as a trace.
#include "coordinator/trace/writer.h"
#include "tools/lull/progress_line.h"
#include "tools/lull/trace/commands.h"
#include "tools/lull/trace/kineto_events.h"

namespace lull::command {
namespace {

std::string stem_of(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view ending : {".gz", ".json", ".pt.trace"}) {
    if (name.size() > ending.size() && name.ends_with(ending)) {
      name.resize(name.size() - ending.size());
    }
  }
  return name.substr(0, 200);
}

}  // namespace

int trace_import_main(const Words& words) {
  std::string file, output, task;
  CommandLine line(
      "Turns a PyTorch profiler recording (Chrome trace JSON, plain or .gz) into a trace.",
      "lull trace import");
  line.option("KINETO", file, "the recording").required();
  line.option("-o,--output", output, "the trace to write").required();
  line.option("--task", task, "what to call the program (default: the file's name)");
  if (const auto code = parse_words(line, words)) return *code;
  const std::string name = file.substr(file.find_last_of('/') + 1);
  ProgressLine progress;
  int told_percent = -1;
  const auto kineto = play::read_kineto_file(file, [&](double share) {
    const int percent = static_cast<int>(share * 100);
    if (percent == told_percent) return;
    told_percent = percent;
    progress.show(fmt::format("trace import: {}: {} % read", name, percent));
  });
  progress.clear();
  if (!kineto) {
    complain(fmt::format("trace import: cannot read {}: {}", file, kineto.error()));
    return kFailed;
  }
  auto writer = trace::Writer::create(output, trace::kineto_file_info(*kineto, name, LULL_VERSION),
                                      trace::Writer::WhenBehind::kWait);
  if (!writer) {
    complain("trace import: " + writer.error());
    return kFailed;
  }
  uint64_t launches = 0;
  trace::kineto_events(*kineto, task.empty() ? stem_of(file) : task,
                       [&](const trace::Event& event) {
                         launches += std::holds_alternative<trace::Launch>(event) ? 1 : 0;
                         writer->add(event);
                       });
  if (const auto done = writer->finish(); !done) {
    complain("trace import: " + done.error());
    return kFailed;
  }
  fmt::print("{}: {} launches from {}\n", output, launches, name);
  return kDone;
}

}  // namespace lull::command
