// How far a less important client launches ahead while the important one is attached and idle, and
// what the bound on that costs. Serial device.
#include <catch2/catch.hpp>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/node.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

struct Seen {
  double most_ahead_ns = 0;  // of the low client's kernels, launched and not complete
  double busy = 0;           // share of the time in which it had the device
};

// A low client launches kernels of this length as fast as it can, and waits after 5,000. It is
// looked at each 10 ms for five seconds, from when it knows its kernels on.
Seen see(const std::string& policy, uint64_t low_ns, uint8_t high_level = 2) {
  NodeOptions options = free_markers();
  options.coordinator.policy = policy;
  Node node(options);
  std::vector<play::Op> calls(5'000, launch(2, low_ns, 0, 2'000));
  calls.push_back(sync_stream());
  const Script low = make_script(workload("low", calls), options.profile);
  const Script high = make_script(
      workload("high", {launch(0, 2'000, /*pause_ns=*/1'000'000'000'000), sync_stream()}),
      options.profile);
  node.start({.script = &high, .task = "high", .priority = Priority{high_level}, .iterations = 1});
  const Program& other = node.start({.script = &low, .task = "low", .priority = Priority{7}});
  // A full queue of kernels that nobody had measured, and one more.
  const Instant known{static_cast<int64_t>(2'100 * low_ns)};
  node.run([] { return false; }, known);
  const double before = node.device_time_ns(other);
  Seen seen;
  for (int n = 0; n < 500; ++n) {
    node.run([] { return false; }, node.now() + Duration{10'000'000});
    const auto ahead = static_cast<double>(other.launches() - other.completions());
    seen.most_ahead_ns = std::max(seen.most_ahead_ns, ahead * static_cast<double>(low_ns));
  }
  seen.busy = (node.device_time_ns(other) - before) / static_cast<double>((node.now() - known).ns);
  return seen;
}

}  // namespace

TEST_CASE("who may be preceded has 200 ms of work in flight at most, and loses nothing") {
  for (const std::string policy : {"priority", "fikit", "guarded", "time_slice"}) {
    for (const uint64_t low_ns : {20'000, 500'000, 4'000'000}) {
      const Seen seen = see(policy, low_ns);
      INFO(policy << ", kernels of " << low_ns << " ns: " << seen.most_ahead_ns
                  << " ns ahead, busy " << seen.busy);
      CHECK(seen.most_ahead_ns <= 210e6);
      CHECK(seen.busy > 0.99);
    }
  }
}

TEST_CASE(
    "under a policy that holds nobody, and beside a client that does not come first, nothing is "
    "bounded") {
  CHECK(see("share", 4'000'000).most_ahead_ns > 2e9);
  CHECK(see("priority", 4'000'000, /*high_level=*/7).most_ahead_ns > 2e9);
}
