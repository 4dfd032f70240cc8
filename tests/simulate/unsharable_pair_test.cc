// A pair that cannot share a device is told apart from one that can, under guarded. Serial device.
#include <catch2/catch.hpp>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/node.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

// What the status says of the low client after 25 s beside requests of ten kernels.
engine::ClientStatus low_beside_requests(uint64_t low_ns) {
  NodeOptions options = free_markers();
  options.coordinator.policy = "guarded";
  Node node(options);
  std::vector<play::Op> request(10, launch(0, 15'000, 0, 2'000));
  request.push_back(sync_stream());
  const Script high = make_script(workload("high", request, 15'000), options.profile);
  const Script low = make_script(workload("low", {launch(2, low_ns, 0, 2'000)}), options.profile);
  node.start({.script = &high, .task = "high", .priority = Priority{2}});
  node.start({.script = &low, .task = "low", .priority = Priority{7}});
  node.run([] { return false; }, Instant{25'000'000'000});
  const engine::EngineStatus status = node.coordinator().status();
  REQUIRE(status.clients.size() == 2);
  CHECK(status.clients[0].cannot_share.empty());
  return status.clients[1];
}

}  // namespace

TEST_CASE(
    "kernels longer than the important program can ever wait: the pair cannot share, by two "
    "figures") {
  const engine::ClientStatus low = low_beside_requests(6'000'000);
  REQUIRE(low.cannot_share.size() == 1);
  const engine::UnsharableStatus& pair = low.cannot_share.front();
  CHECK(pair.with == ClientId{1});
  // Each of them begins with its launch, so its end is seen a few us late, and that is taken off.
  CHECK(pair.figures.longest >= Duration{5'990'000});
  CHECK(pair.figures.longest < Duration{7'000'000});
  CHECK(pair.figures.slack < Duration{200'000});  // a request takes 165 us
}

TEST_CASE("kernels that fit between two requests: nothing is said") {
  CHECK(low_beside_requests(5'000).cannot_share.empty());
}
