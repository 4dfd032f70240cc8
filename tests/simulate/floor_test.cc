// The operator's floor under `guarded`: every low task gets its share of the device over any ten
// seconds, whatever the important task does. Serial device, watchdog off.
#include <catch2/catch.hpp>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/node.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

constexpr Duration kSample{100'000'000};
constexpr size_t kWindow = 100;   // samples: 10 s
constexpr size_t kSamples = 200;

struct Shares {
  double least = 1, most = 0;
};
struct Pair {
  uint64_t low_ns;
  size_t high_launches;     // between two waits for the device
  bool low_waits = false;   // for each of its kernels
  uint64_t low_pause_ns = 0;
  Duration jitter = {};
};

// Two low tasks have the device for two seconds; then a high one comes that never pauses. What each
// low got of the device in the worst window of ten seconds from then on, and in the best.
std::vector<Shares> shares_of_lows(const Pair& pair, const std::string& policy) {
  NodeOptions options = free_markers();
  options.coordinator.policy = policy;
  options.jitter = pair.jitter;
  Node node(options);
  std::vector<play::Op> calls;
  for (int n = 0; n < 50; ++n) {
    calls.push_back(launch(2, pair.low_ns, pair.low_pause_ns, 2'000));
    if (pair.low_waits) calls.push_back(sync_stream());
  }
  const Script low = make_script(workload("low", calls), options.profile);
  // The device takes turns between kernels that are ready: beside longer ones of the high task, a low
  // one with short kernels in one stream could not have its floor even if nothing were held.
  const uint64_t high_ns = std::min<uint64_t>(200'000, 10 * pair.low_ns);
  std::vector<play::Op> dense(pair.high_launches, launch(0, high_ns, 0, 2'000));
  dense.push_back(sync_stream());
  const Script high = make_script(workload("high", dense), options.profile);
  ProgramPlan plan;
  plan.script = &low;
  plan.priority = Priority{7};
  std::vector<Program*> lows;
  for (const char* task : {"low a", "low b"}) {
    plan.task = task;
    lows.push_back(&node.start(plan));
  }
  node.run([] { return false; }, Instant{2'000'000'000});
  plan.script = &high;
  plan.task = "high";
  plan.priority = Priority{2};
  node.start(plan);
  std::vector<std::vector<double>> had(lows.size());
  for (size_t n = 0; n <= kSamples; ++n) {
    for (size_t i = 0; i < lows.size(); ++i) had[i].push_back(node.device_time_ns(*lows[i]));
    node.run([] { return false; }, node.now() + kSample);
  }
  std::vector<Shares> shares(lows.size());
  for (size_t i = 0; i < lows.size(); ++i) {
    for (size_t n = kWindow; n < had[i].size(); ++n) {
      const double share =
          (had[i][n] - had[i][n - kWindow]) / (kWindow * static_cast<double>(kSample.ns));
      shares[i].least = std::min(shares[i].least, share);
      shares[i].most = std::max(shares[i].most, share);
    }
  }
  return shares;
}

void check_floor(const Pair& pair) {
  for (const Shares& low : shares_of_lows(pair, "guarded floor_per_mille=50 max_hold_ms=0")) {
    INFO("low kernels of " << pair.low_ns << " ns, high waits after " << pair.high_launches << ": "
                           << low.least << " to " << low.most);
    CHECK(low.least >= 0.05);
    // The high task keeps the rest, but for what was in flight when it came.
    CHECK(low.most < 0.08);
  }
}

}  // namespace

TEST_CASE("every low task gets its floor of any ten seconds beside a high one that never pauses") {
  for (const uint64_t low_ns : {5'000, 20'000, 500'000, 6'000'000}) {
    for (const size_t high_launches : {20, 5'000}) check_floor({low_ns, high_launches});
  }
}

TEST_CASE("so does one that waits for each of its kernels, or pauses between them, or is woken late") {
  for (const uint64_t low_ns : {20'000, 6'000'000}) {
    check_floor({low_ns, 20, /*low_waits=*/true});
    check_floor({low_ns, 20, false, /*low_pause_ns=*/5 * low_ns});
    check_floor({low_ns, 20, false, 0, Duration{50'000}});
  }
}

TEST_CASE("without a floor a low task beside a high one that never pauses gets less") {
  for (const Shares& low : shares_of_lows({6'000'000, 20}, "guarded max_hold_ms=0")) {
    CHECK(low.least < 0.05);
  }
}
