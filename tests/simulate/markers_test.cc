// What progress markers cost a program beside one that does nothing, on a device whose markers take what was
// measured of real ones.
#include <catch2/catch.hpp>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/node.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

struct Calls {
  uint64_t kernel_ns, call_ns;
};

// Ns a request of 400 launches and a wait, in the mean of a hundred, once it has been alone for three seconds.
double request_ns(const std::string& policy, uint8_t level, Calls calls) {
  NodeOptions options;
  REQUIRE(options.profile.marker_ns > 1'000);
  options.coordinator.policy = policy;
  Node node(options);
  std::vector<play::Op> ops(400, launch(0, calls.kernel_ns, 0, calls.call_ns));
  ops.push_back(sync_stream());
  const Script busy = make_script(workload("busy", ops), options.profile);
  const Script idle = make_script(
      workload("idle", {launch(0, 2'000), sync_stream(), launch(1, 2'000, /*pause_ns=*/1'000'000'000'000)}),
      options.profile);
  node.start({.script = &idle, .task = "idle", .priority = Priority{static_cast<uint8_t>(9 - level)}});
  const Program& program = node.start({.script = &busy, .task = "busy", .priority = Priority{level}});
  node.run([] { return false; }, Instant{3'000'000'000});
  const size_t before = program.services().size();
  REQUIRE(node.run([&] { return program.services().size() == before + 101; }));
  const auto& services = program.services();
  return static_cast<double>((services[before + 100].ended - services[before].ended).ns) / 100;
}

}  // namespace

// With a guarded neighbour that rests, the less important one has a credit all the same.
TEST_CASE("markers take at most a hundredth of a program beside an idle one, whoever is the more important") {
  // The device is the slower by far, a little, and the host is.
  for (const Calls calls : {Calls{500'000, 2'000}, {100'000, 2'000}, {20'000, 2'000}, {5'000, 12'000}}) {
    const double bare = request_ns("share", 2, calls);
    for (const std::string policy : {"priority", "fikit", "guarded", "time_slice"}) {
      for (const uint8_t level : {2, 7}) {
        if (policy == "guarded" && level == 7) continue;
        INFO(policy << ", level " << int{level} << ", kernels of " << calls.kernel_ns << " ns: "
                    << request_ns(policy, level, calls) / bare);
        CHECK(request_ns(policy, level, calls) <= 1.01 * bare);
      }
    }
  }
}
