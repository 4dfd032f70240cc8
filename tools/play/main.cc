// lull-play: replays a workload file or a PyTorch profiler trace as a real CUDA program.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "coordinator/command_line/command_line.h"
#include "tools/play/player.h"
#include "tools/play/workload.h"

namespace {

using namespace lull::play;
using Json = nlohmann::ordered_json;

constexpr uint64_t kDefaultIterations = 10;
constexpr size_t kMaxKeptTimes = 1'000'000;
constexpr int kFailed = 1, kUsage = 2;

std::atomic<bool> stop_requested{false};
void on_signal(int) { stop_requested.store(true, std::memory_order_relaxed); }

// One JSON object a line, written at once, so that a reader who follows the file sees it.
class Report {
 public:
  ~Report() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool open(const std::string& path) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0644);
    return fd_ >= 0;
  }
  bool is_open() const { return fd_ >= 0; }
  void write(const Json& event) {
    if (fd_ < 0) return;
    const std::string line = event.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t count = ::write(fd_, line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      done += static_cast<size_t>(count);
    }
  }

 private:
  int fd_ = -1;
};

struct Arguments {
  std::string workload, report, start_file, pause_file;
  uint64_t iterations = 0, warmup = 0, jitter_us = 0;
  double seconds = 0;
  bool until_signal = false, describe = false;
  PlayOptions play;
};

int fail(Report& report, const std::string& line) {
  std::fprintf(stderr, "lull: %s\n", line.c_str());
  report.write(Json{{"event", "error"}, {"what", line}});
  return kFailed;
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

int describe(const Workload& workload) {
  const WorkloadTotals sum = totals(workload);
  std::string line = fmt::format(
      "{} ({}): {} launches of {} kernels, {:.3f} ms of device time; {} copies, {} memsets, "
      "{} synchronisations, {} streams; host {:.3f} ms\n",
      workload.name, workload.kind, sum.launches, workload.kernels.size(), ms(sum.kernel_ns),
      sum.copies, sum.memsets, sum.syncs, workload.streams, ms(sum.host_ns));
  if (!workload.description.empty()) line += "  " + workload.description + "\n";
  std::fputs(line.c_str(), stdout);
  return 0;
}

// Until the file is there, or is not any more, or a signal comes.
void wait_while_file(const std::string& path, bool there) {
  while ((::access(path.c_str(), F_OK) == 0) == there && !stop_requested) {
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
}

uint64_t quantile(std::vector<uint64_t> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<long>(at), values.end());
  return values[at];
}

void print_summary(const Workload& workload, const Player& player, const std::vector<uint64_t>& jct,
                   uint64_t iterations, uint64_t launches) {
  uint64_t sum = 0;
  for (const uint64_t one : jct) sum += one;
  const std::string how =
      player.simulated() ? fmt::format(" (simulated, slow motion {:g})", player.slow_motion()) : "";
  std::string line = fmt::format("{} on {}{}: {} iterations, {} launches\n", workload.name,
                                 player.device_name(), how, iterations, launches);
  if (!jct.empty()) {
    line += fmt::format(
        "iteration: mean {:.3f} ms, p50 {:.3f} ms, p99 {:.3f} ms; calls late: p99 {:.1f} us, "
        "most {:.1f} us\n",
        ms(sum) / static_cast<double>(jct.size()), ms(quantile(jct, 0.5)), ms(quantile(jct, 0.99)),
        static_cast<double>(player.late_p99_ns()) / 1e3,
        static_cast<double>(player.late_max_ns()) / 1e3);
  }
  std::fputs(line.c_str(), stdout);
}

int play(const Arguments& arguments) {
  Report report;
  if (!arguments.report.empty() && !report.open(arguments.report)) {
    return fail(report, fmt::format("cannot write {}: {}: name a file in a folder you may write to",
                                    arguments.report, std::strerror(errno)));
  }
  const auto workload = load_workload(workload_file(arguments.workload));
  if (!workload) return fail(report, workload.error());
  if (arguments.describe) return describe(*workload);

  auto created = Player::create(*workload, arguments.play);
  if (!created) {
    return fail(report, fmt::format("cannot play {}: {}", arguments.workload, created.error()));
  }
  Player& player = **created;
  if (!player.note().empty()) std::fprintf(stderr, "lull: note: %s\n", player.note().c_str());
  report.write(Json{{"event", "ready"},
                    {"model_ns", player.now_ns()},
                    {"slow_motion", player.slow_motion()},
                    {"simulated", player.simulated()},
                    {"device", player.device_name()},
                    {"workload", workload->name}});
  if (!arguments.start_file.empty()) wait_while_file(arguments.start_file, /*there=*/false);

  const bool endless = arguments.until_signal;
  const uint64_t wanted = arguments.iterations > 0 ? arguments.iterations
                          : arguments.seconds > 0  ? UINT64_MAX
                                                   : kDefaultIterations;
  uint64_t iterations = 0, launches = 0, partial_kernel_ns = 0;
  std::vector<uint64_t> jct;
  for (uint64_t i = 0; i < arguments.warmup && !stop_requested; ++i) {
    const auto result = player.play_iteration(stop_requested);
    if (!result)
      return fail(report, fmt::format("cannot play {}: {}", arguments.workload, result.error()));
    launches += result->launches;
    report.write(Json{
        {"event", "warmup"}, {"i", i}, {"start_ns", result->start_ns}, {"end_ns", result->end_ns}});
  }
  player.forget_lateness();
  const uint64_t begun_ns = player.now_ns();
  const auto until_ns = arguments.seconds > 0 && !endless
                            ? begun_ns + static_cast<uint64_t>(arguments.seconds * 1e9)
                            : UINT64_MAX;
  while ((endless || iterations < wanted) && !stop_requested && player.now_ns() < until_ns) {
    const auto result = player.play_iteration(stop_requested);
    if (!result)
      return fail(report, fmt::format("cannot play {}: {}", arguments.workload, result.error()));
    launches += result->launches;
    if (!result->complete) {
      partial_kernel_ns = result->kernel_ns;
      break;
    }
    report.write(Json{{"event", "iteration"},
                      {"i", iterations},
                      {"start_ns", result->start_ns},
                      {"end_ns", result->end_ns},
                      {"kernel_ns", result->kernel_ns},
                      {"launches", result->launches},
                      {"late_p99_ns", result->late_p99_ns}});
    ++iterations;
    if (!arguments.pause_file.empty()) wait_while_file(arguments.pause_file, /*there=*/true);
    if (jct.size() < kMaxKeptTimes) jct.push_back(result->end_ns - result->start_ns);
  }
  report.write(Json{{"event", "done"},
                    {"iterations", iterations},
                    {"launches", launches},
                    {"start_ns", begun_ns},
                    {"end_ns", player.now_ns()},
                    {"partial_kernel_ns", partial_kernel_ns},
                    {"late_p99_ns", player.late_p99_ns()},
                    {"late_max_ns", player.late_max_ns()}});
  if (!report.is_open()) print_summary(*workload, player, jct, iterations, launches);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  lull::CommandLine line(
      "Replays a workload, or a PyTorch profiler trace, as a CUDA program: the same "
      "launches, streams, host pauses and synchronisations.",
      "lull-play");
  line.option(
          "WORKLOAD", arguments.workload,
          "a workload file, a PyTorch profiler trace (.json, .json.gz), or a shipped workload's "
          "name, as chatty_inference")
      .required();
  const lull::Option iterations =
      line.option("--iterations", arguments.iterations, "play N iterations (default 10)")
          .range(1ULL, 1ULL << 40);
  const lull::Option seconds =
      line.option("--seconds", arguments.seconds, "play for S seconds of device time")
          .range(1e-6, 1e6);
  const lull::Option endless =
      line.flag("--until-signal", arguments.until_signal, "play until SIGTERM or SIGINT");
  iterations.excludes(seconds).excludes(endless);
  seconds.excludes(endless);
  line.option("--warmup", arguments.warmup, "iterations played first and not counted")
      .range(0ULL, 1ULL << 40);
  line.flag("--greedy", arguments.play.greedy, "leave out the host pauses");
  line.option("--seed", arguments.play.seed, "seed of the jitter");
  line.option("--jitter-us", arguments.jitter_us,
              "lengthen each host pause by 0 to J us at random (default 0)")
      .range(0ULL, 1000000ULL);
  line.option("--report", arguments.report, "write events as JSON lines to FILE")
      .value_name("FILE");
  line.option("--start-file", arguments.start_file,
              "once ready, wait until FILE exists before playing")
      .value_name("FILE");
  line.option("--pause-file", arguments.pause_file,
              "while FILE exists, wait between two iterations")
      .value_name("FILE");
  line.option("--device", arguments.play.device, "device number (default 0)");
  line.flag("--describe", arguments.describe, "say what is in WORKLOAD and play nothing");
  line.version("lull-play " LULL_VERSION);
  if (const auto stop = line.parse({argv + 1, argv + argc})) {
    if (!stop->wrong) {
      std::fputs(stop->text.c_str(), stdout);
      return 0;
    }
    std::fprintf(stderr, "lull: cannot play: %s: see lull-play --help\n", stop->text.c_str());
    return kUsage;
  }
  arguments.play.jitter_ns = arguments.jitter_us * 1000;

  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART: a sleeping player wakes
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return play(arguments);
}
