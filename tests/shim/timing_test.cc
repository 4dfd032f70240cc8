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
#include <set>
#include <string>
#include <vector>

#include "coordinator/channel/timing_windows.h"
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
};

// `heard`: the coordinator reads records while the program runs, else once it has ended. Where each launch is
// timed, the program ends once all timings were read but the last: that comes when its context goes.
Run run(const std::string& pattern, int count, uint64_t kernel_ns, uint32_t timing_period,
        int slow_motion, bool heard = true) {
  const std::string directory = private_directory();
  Coordinator coordinator(directory + "/s", timing_period);
  coordinator.slow_motion = slow_motion;
  const std::string log = directory + "/log";
  std::vector<std::string> environment = {"LD_LIBRARY_PATH=" LULL_SIM_FOLDER,
                                          "LULL_SOCKET=" + directory + "/s",
                                          "SIMGPU_DEVICE=" + directory + "/device",
                                          "SIMGPU_EVENT_LOG=" + log,
                                          "SIMGPU_SHARING=serial",
                                          "SIMGPU_SLOW_MOTION=" + std::to_string(slow_motion),
                                          "LD_PRELOAD=" LULL_SHIM_PATH};
  std::vector<std::string> arguments = {LULL_TIMED_PROGRAM, pattern, std::to_string(count),
                                        std::to_string(kernel_ns)};
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& text : strings) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  int input[2];
  REQUIRE(pipe2(input, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], 0);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, LULL_TIMED_PROGRAM, &actions, nullptr, pointers(arguments).data(),
                      pointers(environment).data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  Run result;
  const auto take = [&] {
    if (coordinator.clients() == 0) return;
    for (const auto& record : drain(coordinator.client())) {
      if (record.kind == channel::kRecordTiming) result.timings.push_back(record);
      if (record.kind == channel::kRecordLaunch) result.launches.push_back(record);
    }
  };
  const size_t timed = heard && timing_period == 1 ? static_cast<size_t>(count) : 0;
  bool open = true;
  int status = 0;
  REQUIRE(eventually([&] {
    if (heard) take();
    if (open && result.timings.size() >= timed) {
      close(input[1]);
      open = false;
    }
    return waitpid(child, &status, WNOHANG) == child;
  }));
  take();
  REQUIRE(status == 0);
  result.totals = totals(coordinator.client());
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
  unlink((directory + "/device").c_str());
  unlink(log.c_str());
  rmdir(directory.c_str());
  return result;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

bool near(uint64_t got_ns, uint64_t wanted_ns) {
  return got_ns <= wanted_ns + 2 && got_ns + 2 >= wanted_ns;
}

// Stream slots in order of first use, as the log counts streams.
std::map<uint32_t, size_t> slots_of(const Run& run) {
  std::map<uint32_t, size_t> slots;
  for (const auto& record : run.launches) slots.try_emplace(record.stream, slots.size());
  return slots;
}

// How near the nearest quarter of the measurements comes, ns. A host that loses its processor
// between two calls may spoil many, however the shim counts; tools/bench/agreement prints the usual
// errors.
struct Errors {
  double duration = 1e18, gap = 1e18;
};
Errors best_quarter(const Run& run) {
  const auto slots = slots_of(run);
  std::vector<double> durations, gaps;
  const auto distance = [](uint64_t a, uint64_t b) {
    return std::abs(static_cast<double>(a) - static_cast<double>(b));
  };
  for (const auto& record : run.timings) {
    const auto& stream = run.streams.at(slots.at(record.stream));
    const Truth& real = stream.at(record.sequence - 1);
    durations.push_back(distance(record.value0, real.end_ns - real.start_ns));
    if (record.value1 == channel::kGapUnknown || record.sequence >= stream.size()) continue;
    gaps.push_back(distance(record.value1, stream[record.sequence].start_ns - real.end_ns));
  }
  const auto quarter = [](std::vector<double>& of) {
    REQUIRE(!of.empty());
    std::sort(of.begin(), of.end());
    return of[of.size() / 4];
  };
  return {quarter(durations), quarter(gaps)};
}

// How far starts lie from what they have in common with the device's, ns: within each base the
// worst.
double worst_start(const Run& run, uint64_t last) {
  const auto slots = slots_of(run);
  std::map<uint64_t, std::vector<double>> offsets;  // by base
  for (const auto& record : run.timings) {
    if (record.device_start == 0 || record.sequence > last) continue;
    const uint64_t since = record.device_start & ((uint64_t{1} << channel::kStartBits) - 1);
    offsets[record.device_start >> channel::kStartBits].push_back(
        static_cast<double>(since) -
        static_cast<double>(
            run.streams.at(slots.at(record.stream)).at(record.sequence - 1).start_ns));
  }
  REQUIRE(!offsets.empty());
  double worst = 0;
  for (const auto& [number, all] : offsets) {
    const double common = median(all);
    for (const double offset : all) worst = std::max(worst, std::abs(offset - common));
  }
  return worst;
}

}  // namespace

TEST_CASE("full timing times every launch of a deep queue exactly as the device itself logs it") {
  constexpr uint64_t kKernelNs = 50'000;
  const Run full = run("queued", 2000, kKernelNs, /*timing_period=*/1, /*slow_motion=*/1);
  REQUIRE(full.streams.size() == 1);
  REQUIRE(full.streams[0].size() == 2001);
  CHECK(full.totals.launches == 2001);
  CHECK(full.totals.untimed == 0);
  // A ring may overflow when this test gets no processor; what is lost is counted. Timings wait for room.
  CHECK(full.launches.size() + full.totals.dropped >= 2001);
  REQUIRE(full.timings.size() == 2001);
  // Events say milliseconds as floats: to the nanosecond for a kernel.
  uint64_t gaps = 0;
  for (const auto& record : full.timings) {
    if (record.sequence > 2000) continue;  // the last launch, on an idle stream
    const Truth& real = full.streams[0].at(record.sequence - 1);
    REQUIRE(real.end_ns - real.start_ns == kKernelNs);
    CHECK(near(record.value0, kKernelNs));
    // None to the next within a batch; the device's own to the next batch.
    if (record.value1 == channel::kGapUnknown || record.sequence % 100 == 0) continue;
    ++gaps;
    CHECK(near(record.value1, 0));
  }
  CHECK(gaps >= 1900);
  CHECK(worst_start(full, 2000) < 500);  // what a float of ms up to four seconds can tell
}

TEST_CASE("a kernel on an idle stream is measured without the host's time before it") {
  constexpr uint64_t kKernelNs = 50'000;
  const Run idle = run("idle", 300, kKernelNs, 1, 1);
  CHECK(idle.timings.size() == 301);
  CHECK(best_quarter(idle).duration < 0.01 * kKernelNs);
  CHECK(best_quarter(idle).gap < 500);
}

TEST_CASE("in slow motion the correction is on the device's clock") {
  const Run slow = run("idle", 100, 20'000, 1, /*slow_motion=*/20);
  CHECK(best_quarter(slow).duration < 0.01 * 20'000);
}

TEST_CASE(
    "groups on two streams keep their durations and starts, and sampling takes some of them") {
  const Run full = run("groups", 600, 30'000, 1, 1);
  CHECK(best_quarter(full).duration < 0.01 * 30'000);
  CHECK(full.timings.size() == 601);
  const Run sampled = run("groups", 600, 30'000, /*timing_period=*/4, 1);
  CHECK(sampled.timings.size() < 300);
  CHECK(sampled.timings.size() + sampled.totals.dropped > 50);
  const Run off = run("groups", 60, 30'000, 0, 1);
  CHECK(off.timings.empty());
}

TEST_CASE("a timing that finds no room when its context goes is counted") {
  const Run full = run("groups", 6'000, 3'000, 1, 1, /*heard=*/false);
  CHECK(full.totals.launches == 6'001);
  CHECK(full.totals.dropped > 0);
  const uint64_t heard = full.timings.size() + full.launches.size();
  CHECK(heard + full.totals.untimed + full.totals.dropped >= 2 * 6'001);
}

TEST_CASE("sampling times every place of a program that repeats itself") {
  constexpr uint64_t kPlaces = 33;  // a window and the launches to the next
  const Run sampled = run("queued", 3300, 5'000, /*timing_period=*/2, 1);
  std::set<uint64_t> places;
  for (const auto& record : sampled.timings) {
    if (record.sequence > channel::kWarmUpSamples) places.insert(record.sequence % kPlaces);
  }
  CHECK(places.size() == kPlaces);
}
