// Are totals from samples within their stated error? Takes fully timed traces, PyTorch profiler
// recordings or workloads, thins their timings by the shim's own rule (timing_windows.h), and
// compares the estimates with what was thinned away. Deterministic; measures nothing.
//
//   lull-sampled-totals [--least SHARE] FILE...
//
// Prints a line a file and period. Exit 1 where fewer of all intervals than SHARE hold the truth
// (default 0.92: they are stated as 95 % ones, and kernels of one program are not independent), or
// where a file has no estimate to check.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/channel/timing_windows.h"
#include "coordinator/command_line/command_line.h"
#include "coordinator/trace/reader.h"
#include "tools/lull/trace/analysis.h"
#include "tools/lull/trace/kernel_display.h"
#include "tools/lull/trace/kineto_events.h"
#include "tools/play/kineto.h"
#include "tools/play/workload.h"

namespace {

using namespace lull;
using namespace lull::trace;

constexpr uint32_t kIterations = 200;  // of a workload

struct Recording {
  FileInfo info;
  std::vector<Event> events;
};

// A workload's launches, as if each had been timed.
Recording iterated(const play::Workload& workload) {
  Recording out;
  ClientStarted started;
  started.client = {1};
  out.events.emplace_back(started);
  for (size_t i = 0; i < workload.kernels.size(); ++i) {
    KernelInfo info;
    info.index = static_cast<KernelIndex>(i);
    info.id = {i + 1};
    info.name = workload.kernels[i].name;
    out.events.emplace_back(info);
  }
  std::map<uint32_t, uint64_t> sequences;
  Instant at;
  for (uint32_t round = 0; round < kIterations; ++round) {
    for (const play::Op& op : workload.ops) {
      if (op.kind != play::OpKind::Launch) continue;
      Launch launch;
      launch.client = {1};
      launch.stream = {op.stream};
      launch.kernel = op.kernel;
      launch.sequence = ++sequences[op.stream];
      launch.at = at;
      out.events.emplace_back(launch);
      Timing timing;
      timing.client = {1};
      timing.stream = {op.stream};
      timing.sequence = launch.sequence;
      timing.kernel = op.kernel;
      timing.start = at;
      timing.duration = {static_cast<int64_t>(op.duration_ns)};
      out.events.emplace_back(timing);
      at = at + timing.duration;
    }
  }
  return out;
}

std::expected<Recording, std::string> read(const std::string& path) {
  Recording out;
  if (path.ends_with(".json") || path.ends_with(".json.gz")) {
    const auto kineto = play::read_kineto_file(path, [](double) {});
    if (!kineto) {
      const auto workload = play::load_workload(path);
      if (!workload) return std::unexpected(workload.error());
      return iterated(*workload);
    }
    out.info = kineto_file_info(*kineto, path, "");
    kineto_events(*kineto, "t", [&](const Event& event) { out.events.push_back(event); });
    return out;
  }
  auto reader = Reader::open(path);
  if (!reader) return std::unexpected(reader.error());
  out.info = reader->info();
  while (const Event* event = reader->next()) out.events.push_back(*event);
  if (!reader->problem().empty()) return std::unexpected(reader->problem());
  return out;
}

// Which launches of a recording the shim times at this period.
class Sampler {
 public:
  explicit Sampler(uint32_t period) : period_(period) {}
  bool wants(const Launch& launch) {
    Kernel& kernel = kernels_[{launch.client.value, launch.kernel}];
    channel::ThreadWindow& thread = threads_[{launch.client.value, launch.thread.value}];
    if (!channel::is_timed(kernel.left, thread)) return false;
    channel::move_window(period_, kernel.had, kernel.left, thread);
    ++kernel.had;
    return true;
  }

 private:
  struct Kernel {
    uint32_t left = 0, had = 0;
  };
  uint32_t period_;
  std::map<std::pair<uint32_t, KernelIndex>, Kernel> kernels_;
  std::map<std::pair<uint32_t, uint32_t>, channel::ThreadWindow> threads_;
};

struct Found {
  uint64_t intervals = 0, inside = 0;
  double full_ns = 0, estimate_ns = 0, error_ns = 0;
};

Found compare(const Recording& recording, uint32_t period, bool list) {
  Analysis full(recording.info), sampled(recording.info);
  Sampler sampler(period);
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, bool> timed;
  for (const Event& event : recording.events) {
    full.feed(event);
    if (const auto* launch = std::get_if<Launch>(&event)) {
      timed[{launch->client.value, launch->stream.value, launch->sequence}] =
          sampler.wants(*launch);
    }
    if (const auto* timing = std::get_if<Timing>(&event)) {
      if (!timed[{timing->client.value, timing->stream.value, timing->sequence}]) continue;
    }
    sampled.feed(event);
  }
  const Report truth = full.finish(), report = sampled.finish();
  Found found;
  const auto check = [&](const Total& estimate, const Total& all) {
    const double off = estimate.total_ns() - all.total_ns();
    // What is stored has whole ns; half of one each is rounding.
    const bool inside = std::abs(off) <= estimate.error_ns + 0.5 * static_cast<double>(all.count);
    found.intervals += 1;
    found.inside += inside;
    return inside;
  };
  for (const KernelRow& row : report.kernels) {
    if (!row.total.is_estimate()) continue;
    for (const KernelRow& other : truth.kernels) {
      if (other.kernel != row.kernel || other.device != row.device) continue;
      if (!check(row.total, other.total) && list) {
        fmt::print("  outside: {:.0f} ± {:.0f}, is {:.0f} ns; {} of {} timed: {}\n",
                   row.total.total_ns(), row.total.error_ns, other.total.total_ns(),
                   row.total.timed, row.total.count,
                   shorten_name(display_name(report.kernel_infos[row.kernel].name), 60));
      }
    }
  }
  for (size_t i = 0; i < report.devices.size(); ++i) {
    const Total& total = report.devices[i].total;
    if (!total.is_estimate()) continue;
    check(total, truth.devices[i].total);
    found.full_ns += truth.devices[i].total.total_ns();
    found.estimate_ns += total.total_ns();
    found.error_ns += total.error_ns;
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  double least = 0.92;
  bool list = false;
  std::vector<std::string> files;
  CommandLine line(
      "Whether totals from sampled timings are within their stated error. FILE: a fully timed "
      "trace, a PyTorch profiler recording or a workload.",
      "lull-sampled-totals");
  line.option("--least", least, "share of the intervals that must hold the truth (default 0.92)")
      .range(0.0, 1.0);
  line.flag("--list", list, "print each interval that does not");
  line.option("FILE", files).required();
  line.version("lull-sampled-totals " LULL_VERSION);
  if (const auto stop = line.parse({argv + 1, argv + argc})) {
    if (!stop->wrong) {
      fmt::print("{}", stop->text);
      return 0;
    }
    fmt::print(stderr, "lull-sampled-totals: {}: see lull-sampled-totals --help\n", stop->text);
    return 2;
  }
  uint64_t intervals = 0, inside = 0;
  bool empty = false;
  for (const std::string& file : files) {
    const auto recording = read(file);
    if (!recording) {
      fmt::print(stderr, "lull-sampled-totals: {}: {}\n", file, recording.error());
      return 1;
    }
    uint64_t here = 0;
    for (const uint32_t period : {2, 4, 16, 64}) {
      const Found found = compare(*recording, period, list);
      fmt::print(
          "{} one in {}: {} of {} intervals hold the truth; device {:.4g} ms ± {:.2g}, is "
          "{:.4g} ms\n",
          file.substr(file.find_last_of('/') + 1), period, found.inside, found.intervals,
          found.estimate_ns / 1e6, found.error_ns / 1e6, found.full_ns / 1e6);
      here += found.intervals;
      inside += found.inside;
    }
    empty |= here == 0;
    intervals += here;
  }
  const double share =
      intervals > 0 ? static_cast<double>(inside) / static_cast<double>(intervals) : 0;
  fmt::print("all: {} of {} ({:.1f} %), stated 95 %\n", inside, intervals, share * 100);
  if (empty) fmt::print(stderr, "lull-sampled-totals: a file had nothing to estimate\n");
  return share >= least && !empty ? 0 : 1;
}
