// `lull trace export F`: a trace as a Perfetto trace, an HTML report, CSV, or a workload for lull-play.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include <fmt/chrono.h>

#include "tools/lull/trace/commands.h"
#include "tools/lull/trace/csv_export.h"
#include "tools/lull/trace/html_export.h"
#include "tools/lull/trace/perfetto_export.h"
#include "tools/lull/trace/report_text.h"
#include "tools/lull/trace/trace_source.h"
#include "tools/lull/trace/workload_export.h"

namespace lull::command {
namespace {

struct Wishes {
  std::string file, output, format;
  std::string from, to, task, name, kind = "other", model, batch, driver;
  size_t max_ops = 20'000;
};

int failed(const std::string& why) {
  complain("trace export: " + why);
  return kFailed;
}

int ended(const Wishes& wishes, const std::string& what, const std::string& problem) {
  fmt::print("{}: {}\n", wishes.output, what);
  if (problem.empty()) return kDone;
  std::fflush(stdout);
  return failed(problem);
}

// Reads the trace into an `Export` that writes as it reads. `what`: half a line for the end.
template <typename Export>
int export_events(const Wishes& wishes, const char* what) {
  auto reader = trace::Reader::open(wishes.file);
  if (!reader) return failed(reader.error());
  const bool to_stdout = wishes.output == "-";
  const std::string half = wishes.output + ".part";
  std::FILE* out = to_stdout ? stdout : std::fopen(half.c_str(), "wbe");
  if (out == nullptr) {
    return failed(
        fmt::format("cannot write {}: {}: choose another --output", half, std::strerror(errno)));
  }
  uint64_t launches = 0;
  Export writer(reader->info(), out);
  while (const trace::Event* event = reader->next()) {
    launches += std::holds_alternative<trace::Launch>(*event) ? 1 : 0;
    writer.feed(*event);
  }
  auto done = writer.finish();
  if (!to_stdout) {
    if (std::fclose(out) != 0 && done) done = std::unexpected(std::strerror(errno));
    if (done && std::rename(half.c_str(), wishes.output.c_str()) != 0) {
      done = std::unexpected(std::strerror(errno));
    }
    if (!done) std::remove(half.c_str());
  }
  if (!done) {
    return failed(
        fmt::format("cannot write {}: {}: choose another --output", wishes.output, done.error()));
  }
  if constexpr (requires { writer.lost_times(); }) {
    if (writer.lost_times() > 0) {
      complain(fmt::format("trace export: {} times came too late for their launch's row",
                           writer.lost_times()));
    }
  }
  if (to_stdout) return reader->problem().empty() ? kDone : failed(reader->problem());
  return ended(wishes, fmt::format("{} launches{}", launches, what), reader->problem());
}

int export_html(const Wishes& wishes) {
  trace::HtmlExport html;
  const auto report = trace::analyse(
      wishes.file, [&](const trace::Event& event) { html.feed(event); },
      [&](DeviceId device, ClientId client, const trace::IdlePart& part) {
        html.feed_idle(device, client, part);
      });
  if (!report) return failed(report.error());
  trace::CallSites sites;
  const std::string page = html.finish(*report, sites);
  if (const auto done = trace::write_file(wishes.output, page); !done) {
    return failed(
        fmt::format("cannot write {}: {}: choose another --output", wishes.output, done.error()));
  }
  return ended(wishes, fmt::format("{} launches, open it in a browser", report->launches),
               report->problem);
}

// The client that is meant: by number or task name, else the one with the most launches.
const trace::ClientRow* choose_client(const trace::Report& report, const std::string& task) {
  const trace::ClientRow* best = nullptr;
  for (const trace::ClientRow& row : report.clients) {
    const bool named =
        row.started.task == task || fmt::format("{}", row.started.client.value) == task;
    if (!task.empty() && !named) continue;
    if (best == nullptr || row.total.count > best->total.count) best = &row;
  }
  return best;
}

int export_workload(const Wishes& wishes, int64_t from_ns, int64_t until_ns) {
  const auto report = trace::analyse(wishes.file);
  if (!report) return failed(report.error());
  const trace::ClientRow* client = choose_client(*report, wishes.task);
  if (client == nullptr || client->total.count == 0) {
    if (!report->problem.empty()) return failed(report->problem);
    return failed(
        wishes.task.empty()
            ? fmt::format("{} holds no launch: record a program that uses a GPU", wishes.file)
            : fmt::format("{} holds no launch of task '{}': lull trace show lists them",
                          wishes.file, wishes.task));
  }
  const int64_t origin_ns = report->info.created_at.ns;
  trace::WorkloadChoice choice;
  choice.client = client->started.client;
  choice.max_ops = wishes.max_ops;
  choice.from_ns = from_ns != INT64_MIN ? origin_ns + from_ns : client->first_ns;
  choice.until_ns = until_ns != INT64_MAX ? origin_ns + until_ns : INT64_MAX;
  std::string stretch = "all launches";
  if (from_ns != INT64_MIN || until_ns != INT64_MAX) {
    stretch = "the stretch asked for";
  } else {
    for (const trace::IterationRow& row : report->iterations) {
      if (row.client != choice.client || row.typical_from_ns < 0) continue;
      choice.from_ns = row.typical_from_ns;
      choice.until_ns = row.typical_until_ns;
      stretch = fmt::format("one of {} iterations", row.iterations);
    }
  }
  trace::WorkloadExport builder(*report, choice);
  const auto read =
      trace::for_each_event(wishes.file, [&](const trace::Event& event) { builder.feed(event); });
  if (!read) return failed(read.error());
  auto made = builder.finish();
  if (!made) return failed(fmt::format("{}: {}", wishes.file, made.error()));

  play::Workload& work = made->workload;
  work.name = (wishes.name.empty() ? client->started.task : wishes.name).substr(0, 200);
  for (char& c : work.name) {
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  }
  if (work.name.empty()) work.name = "recorded";
  work.kind = wishes.kind;
  work.description = stretch + (report->info.simulated ? ", recorded on a simulated GPU" : "");
  if (made->without_length > 0) {
    work.description += fmt::format(
        "; {} launches without a measured length have their kernel's median", made->without_length);
  }
  if (work.streams > 1) work.description += "; waits between streams are not recorded";
  if (!report->devices.empty()) work.recorded.gpu = report->devices.front().info.name;
  work.recorded.driver = wishes.driver;
  work.recorded.model = wishes.model;
  work.recorded.batch = wishes.batch;
  work.recorded.source = (report->info.source + " " + report->info.lull_version).substr(0, 400);
  if (report->info.created_unix_ns > 0) {
    const auto seconds = static_cast<std::time_t>(report->info.created_unix_ns / 1'000'000'000);
    work.recorded.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(seconds));
  }
  const std::string text = play::write_workload(work, made->repeats);
  if (const auto again = play::parse_workload(text, wishes.output); !again) {
    return failed(fmt::format("the workload would not be readable: {}", again.error()));
  }
  if (const auto done = trace::write_file(wishes.output, text); !done) {
    return failed(
        fmt::format("cannot write {}: {}: choose another --output", wishes.output, done.error()));
  }
  size_t written = work.ops.size();
  for (const play::Repeat& repeat : made->repeats) written -= repeat.length * (repeat.times - 1);
  return ended(wishes,
               fmt::format("{}: {} operations{}, for lull-play", stretch, work.ops.size(),
                           written < work.ops.size() ? fmt::format(" ({} written)", written) : ""),
               *read);
}

}  // namespace

int trace_export_main(const Words& words) {
  Wishes wishes;
  CommandLine line("Turns a trace into a Perfetto trace, an HTML report, CSV with a row a launch, or a workload.",
                   "lull trace export");
  line.option("FILE", wishes.file, "a trace").required();
  line.option("--format", wishes.format, "perfetto, html, csv or workload")
      .required()
      .one_of({"perfetto", "html", "csv", "workload"});
  line.option("-o,--output", wishes.output,
              "the file to write (default: FILE with .perfetto-trace, .html, .csv or .json); csv: - is "
              "standard output");
  line.option("--from", wishes.from,
              "workload: begin here, as in 1.5ms (default: an iteration, else everything)");
  line.option("--to", wishes.to, "workload: end here");
  line.option("--task", wishes.task, "workload: of this task (default: the busiest)");
  line.option("--name", wishes.name, "workload: its name (default: the task's)");
  line.option("--kind", wishes.kind, "workload: inference, training, batch or other")
      .one_of({"inference", "training", "batch", "other"});
  line.option("--model", wishes.model, "workload: what was run, for the record");
  line.option("--batch", wishes.batch, "workload: with which batch size, for the record");
  line.option("--driver", wishes.driver, "workload: on which driver, for the record");
  line.option("--max-ops", wishes.max_ops,
              "workload: beyond this many operations, repeating runs are averaged");
  if (const auto code = parse_words(line, words)) return *code;
  int64_t from_ns = INT64_MIN, until_ns = INT64_MAX;
  for (const auto& [text, value, name] :
       {std::tuple{&wishes.from, &from_ns, "--from"}, {&wishes.to, &until_ns, "--to"}}) {
    if (text->empty()) continue;
    const auto time = trace::parse_time(*text);
    if (!time) {
      complain(fmt::format("trace export: {}: {}", name, time.error()));
      return kUsage;
    }
    *value = *time;
  }
  if (from_ns >= until_ns) {
    complain("trace export: --to is not after --from: give a later end");
    return kUsage;
  }
  if (wishes.output.empty()) {
    wishes.output = wishes.file + (wishes.format == "perfetto" ? ".perfetto-trace"
                                   : wishes.format == "html"   ? ".html"
                                   : wishes.format == "csv"    ? ".csv"
                                                               : ".json");
  }
  std::error_code none;
  if (std::filesystem::equivalent(wishes.output, wishes.file, none)) {
    complain("trace export: --output is the trace itself: give another file");
    return kUsage;
  }
  if (wishes.output == "-" && wishes.format != "csv") {
    complain("trace export: --output -: only csv goes to standard output: give a file");
    return kUsage;
  }
  if (wishes.format == "perfetto") {
    return export_events<trace::PerfettoExport>(wishes, ", for https://ui.perfetto.dev");
  }
  if (wishes.format == "csv") return export_events<trace::CsvExport>(wishes, "");
  if (wishes.format == "html") return export_html(wishes);
  return export_workload(wishes, from_ns, until_ns);
}

}  // namespace lull::command
