// What the shim measures, held against the simulated device's own event log.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/shim/coordinator.h"
#include "tests/shim/probe_process.h"

extern char** environ;

using namespace lull::test;
namespace channel = lull::channel;

namespace {

struct Truth {
  uint64_t start_ns;
  uint64_t end_ns;
};

struct Run {
  std::vector<channel::lull_record> timings;
  std::vector<channel::lull_record> launches;
  std::vector<std::vector<Truth>> streams;  // kernels in their order, by stream in order of use
  channel::ThreadTotals totals;
  std::string printed;
};

std::string slurp(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Run run(const std::string& pattern, int count, uint64_t kernel_ns, uint32_t timing_period,
        int slow_motion, bool preload = true) {
  const std::string directory = private_directory();
  Coordinator coordinator(directory + "/s", timing_period);
  coordinator.slow_motion = slow_motion;
  const std::string log = directory + "/log";
  const std::string out = directory + "/out";
  std::vector<std::string> environment = {
      "LD_LIBRARY_PATH=" LULL_SIM_FOLDER, "LULL_SOCKET=" + directory + "/s",
      "SIMGPU_DEVICE=" + directory + "/device", "SIMGPU_EVENT_LOG=" + log,
      "SIMGPU_SHARING=serial", "SIMGPU_SLOW_MOTION=" + std::to_string(slow_motion)};
  if (preload) environment.push_back("LD_PRELOAD=" LULL_SHIM_PATH);
  std::vector<std::string> arguments = {LULL_TIMED_PROGRAM, pattern, std::to_string(count),
                                        std::to_string(kernel_ns)};
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& text : strings) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, LULL_TIMED_PROGRAM, &files, nullptr, pointers(arguments).data(),
                      pointers(environment).data()) == 0);
  posix_spawn_file_actions_destroy(&files);
  Run result;
  const auto take = [&] {
    if (coordinator.clients() == 0) return;
    for (const auto& record : drain(coordinator.client())) {
      if (record.kind == channel::kRecordTiming) result.timings.push_back(record);
      if (record.kind == channel::kRecordLaunch) result.launches.push_back(record);
    }
  };
  int status = 0;
  REQUIRE(eventually([&] {
    take();
    return waitpid(child, &status, WNOHANG) == child;
  }));
  take();
  REQUIRE(status == 0);
  if (preload) result.totals = totals(coordinator.client());
  std::map<uint64_t, size_t> known;
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    REQUIRE(json.at("kind") == "kernel");
    const auto [at, fresh] = known.try_emplace(json.at("stream"), known.size());
    if (fresh) result.streams.emplace_back();
    REQUIRE(json.at("order") == result.streams[at->second].size() + 1);
    result.streams[at->second].push_back({json.at("start_ns"), json.at("end_ns")});
  }
  result.printed = slurp(out);
  unlink((directory + "/device").c_str());
  unlink(log.c_str());
  unlink(out.c_str());
  rmdir(directory.c_str());
  return result;
}

double median(std::vector<double> values) {
  REQUIRE(!values.empty());
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Stream slots in order of first use, as the log counts streams.
std::map<uint32_t, size_t> slots_of(const Run& run) {
  std::map<uint32_t, size_t> slots;
  for (const auto& record : run.launches) slots.try_emplace(record.stream, slots.size());
  return slots;
}

struct Errors {
  double duration_p50 = 0, true_p50 = 0;
  double start = 0;  // of starts within one base, from their common offset: median
  size_t started = 0;
};
Errors compare(const Run& run) {
  std::vector<double> measured, truth, starts;
  auto slots = slots_of(run);
  std::map<uint64_t, std::vector<double>> offsets;  // by base
  for (const auto& record : run.timings) {
    const Truth& real = run.streams.at(slots.at(record.stream)).at(record.sequence - 1);
    measured.push_back(static_cast<double>(record.value0));
    truth.push_back(static_cast<double>(real.end_ns - real.start_ns));
    if (record.device_start == 0) continue;
    const uint64_t since = record.device_start & ((uint64_t{1} << channel::kStartBits) - 1);
    offsets[record.device_start >> channel::kStartBits].push_back(
        static_cast<double>(since) - static_cast<double>(real.start_ns));
  }
  for (const auto& [number, all] : offsets) {
    const double common = median(all);
    for (const double offset : all) starts.push_back(std::abs(offset - common));
  }
  return {median(measured), median(truth), starts.empty() ? -1 : median(starts), starts.size()};
}

}  // namespace

TEST_CASE("full timing times every launch of a deep queue as the device itself logs it") {
  const Run full = run("queued", 2000, 50'000, /*timing_period=*/1, /*slow_motion=*/1);
  REQUIRE(full.streams.size() == 1);
  REQUIRE(full.streams[0].size() == 2001);
  CHECK(full.totals.launches == 2001);
  CHECK(full.totals.untimed == 0);
  // A ring may overflow when this test gets no processor; what is lost is counted.
  CHECK(full.launches.size() + full.totals.dropped >= 2001);
  CHECK(full.timings.size() + full.totals.dropped >= 2001);
  const Errors errors = compare(full);
  CHECK(errors.duration_p50 == Approx(errors.true_p50).epsilon(0.01));
  CHECK(errors.started + 20 > full.timings.size());
  CHECK(errors.start < 500);
  // The gap behind each but the last; there is none in a queue.
  std::vector<double> gaps;
  for (const auto& record : full.timings) {
    if (record.value1 != channel::kGapUnknown) gaps.push_back(static_cast<double>(record.value1));
  }
  CHECK(gaps.size() + full.totals.dropped >= 1979);
  CHECK(median(gaps) < 500);
}

TEST_CASE("a kernel on an idle stream is measured without the host's time before it") {
  constexpr uint64_t kKernelNs = 50'000;
  const Run naive = run("naive", 300, kKernelNs, 0, 1, /*preload=*/false);
  const Run corrected = run("idle", 300, kKernelNs, 1, 1);
  const double without = std::stod(naive.printed) - kKernelNs;
  const Errors errors = compare(corrected);
  const double with = errors.duration_p50 - errors.true_p50;
  WARN("simulated, idle stream, 50 us kernel: median error " << without << " ns with two events, "
                                                             << with << " ns corrected; start "
                                                             << errors.start << " ns");
  CHECK(corrected.timings.size() >= 300);
  CHECK(std::abs(with) < std::abs(without) / 2);
  CHECK(std::abs(with) < 0.01 * kKernelNs);
  // The gaps before the kernels carry what the durations do not.
  std::vector<double> gap_errors;
  for (const auto& record : corrected.timings) {
    const auto& real = corrected.streams[0];
    if (record.value1 == channel::kGapUnknown || record.sequence >= real.size()) continue;
    const double gap =
        static_cast<double>(real[record.sequence].start_ns - real[record.sequence - 1].end_ns);
    gap_errors.push_back(std::abs(static_cast<double>(record.value1) - gap) / gap);
  }
  CHECK(gap_errors.size() >= 299);
  CHECK(median(gap_errors) < 0.05);
}

TEST_CASE("in slow motion the correction is on the device's clock") {
  const Run slow = run("idle", 100, 20'000, 1, /*slow_motion=*/20);
  const Errors errors = compare(slow);
  CHECK(errors.duration_p50 == Approx(errors.true_p50).epsilon(0.01));
}

TEST_CASE("groups on two streams keep their durations and starts, and sampling takes some of them") {
  const Run full = run("groups", 600, 30'000, 1, 1);
  const Errors errors = compare(full);
  CHECK(errors.duration_p50 == Approx(errors.true_p50).epsilon(0.01));
  CHECK(errors.start < 500);
  CHECK(full.timings.size() + full.totals.untimed == 601);
  const Run sampled = run("groups", 600, 30'000, /*timing_period=*/4, 1);
  CHECK(sampled.timings.size() < 300);
  CHECK(sampled.timings.size() > 50);
  CHECK(sampled.totals.untimed == 0);
  const Run off = run("groups", 60, 30'000, 0, 1);
  CHECK(off.timings.empty());
}
