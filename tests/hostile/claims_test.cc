// A client at high priority says of its own work what cannot be, to keep a low one from the device.
#include <catch2/catch.hpp>

#include "tests/daemon/fake_client.h"
#include "tests/hostile/hostile_client.h"

namespace lull::tests {
namespace {

using namespace lull::daemon;
using channel::GateState;

constexpr uint64_t kHourNs = 3'600'000'000'000;

struct Node {
  Node() {
    DaemonSettings settings = quiet_settings(dir);
    settings.policy = "priority max_hold_ms=0";
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
    liar = std::make_unique<HostileClient>(socket);
    liar->hello.priority = 1;
    REQUIRE(liar->attach([&](const auto& done) { return turn_until(*daemon, done); }));
    liar->name_device(7);
    liar->name_kernel(1, "kernel");
    low = std::make_unique<FakeClient>(socket, FakeClient::hello("low", 8));
    REQUIRE(low->join(*daemon));
    low->add_device(7);
    low->add_kernel(2, "low_kernel");
    low->push(low->record(channel::kRecordMemory));
    REQUIRE(settle(*daemon, {low.get()}));
  }
  bool low_becomes(bool open) {
    return turn_until(*daemon, [&] { return (low->state() == GateState::kOpen) == open; });
  }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<HostileClient> liar;
  std::unique_ptr<FakeClient> low;
};

TEST_CASE("a timing of an hour and a launch that never completes hold nobody for long") {
  Node node;
  node.liar->launch(1);
  node.liar->time(kHourNs, 1);
  node.liar->time(kHourNs, 0);
  node.liar->complete(1);
  REQUIRE(turn_until(*node.daemon, [&] {
    return node.liar->region().thread(0)->tail == node.liar->region().thread(0)->head;
  }));
  node.liar->launch(2);
  REQUIRE(node.low_becomes(/*open=*/false));
  CHECK(node.low_becomes(/*open=*/true));
}

TEST_CASE("a stamp of long ago makes no measurement possible that was not") {
  Node node;
  channel::lull_record launched = HostileClient::record(channel::kRecordLaunch, 0, 1);
  launched.flags = channel::kFlagMarker;
  launched.tsc = 1;
  node.liar->write(launched);
  node.liar->time(9'000'000'000, 1);
  node.liar->complete(1);
  REQUIRE(turn_until(*node.daemon, [&] {
    return node.liar->region().thread(0)->tail == node.liar->region().thread(0)->head;
  }));
  for (int n = 0; n < 5; ++n) node.daemon->turn(1'000'000);
  CHECK(node.liar->region().kernel(0)->predicted_ns == 50'000);
}

TEST_CASE("a flood of untracked launches is over a second after its last") {
  Node node;
  node.liar->time(90'000'000, 0);
  for (int wave = 0; wave < 12; ++wave) {
    // As many as its ring holds.
    for (uint32_t n = 1; node.liar->launch(n, /*tracked=*/false, n % 60); ++n) {
    }
    REQUIRE(turn_until(*node.daemon, [&] {
      return node.liar->region().thread(0)->tail == node.liar->region().thread(0)->head;
    }));
  }
  REQUIRE(node.low_becomes(/*open=*/false));
  CHECK(node.low_becomes(/*open=*/true));
}

TEST_CASE("a thread that says it waits, and may go, holds nobody for long") {
  Node node;
  node.liar->pretend_to_wait(5);
  REQUIRE(node.low_becomes(/*open=*/false));
  REQUIRE(node.low_becomes(/*open=*/true));
  // It goes on saying so: it is told to the engine again every 40 ms.
  const uint64_t until_ns = channel::monotonic_ns() + 150'000'000;
  bool stays_open = true;
  while (channel::monotonic_ns() < until_ns) {
    node.liar->write(HostileClient::record(channel::kRecordMemory));  // so that lulld looks at it
    node.daemon->turn(1'000'000);
    stays_open = stays_open && node.low->state() == GateState::kOpen;
  }
  CHECK(stays_open);
}

}  // namespace
}  // namespace lull::tests
