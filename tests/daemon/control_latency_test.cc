#include <catch2/catch.hpp>

#include "coordinator/channel/ticks.h"
#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

using channel::GateState;

constexpr double kSlowMotion = 1000.0;
constexpr uint64_t kLatencyNs = 20'000;  // model; 20 ms real

struct SimNode {
  SimNode() {
    write_sim_device(dir.path("device"), kSlowMotion, kLatencyNs);
    DaemonSettings settings = quiet_settings(dir);
    settings.policy = "priority max_hold_ms=0";
    settings.simulated = true;
    settings.sim_device = dir.path("device");
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
    for (const int priority : {2, 7}) {
      clients.push_back(std::make_unique<FakeClient>(socket, FakeClient::hello("task", priority)));
      REQUIRE(clients.back()->join(*daemon));
      clients.back()->add_device(7);
      clients.back()->add_kernel(1, "kernel");
      // Both devices are known before anything is launched.
      clients.back()->push(clients.back()->record(channel::kRecordMemory));
    }
    REQUIRE(settle(*daemon, {clients[0].get(), clients[1].get()}));
  }
  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
  std::vector<std::unique_ptr<FakeClient>> clients;
};

TEST_CASE("in a simulation a gate changes no earlier than a control latency after its cause") {
  SimNode node;
  FakeClient& high = *node.clients[0];
  FakeClient& low = *node.clients[1];
  const Instant launched = node.daemon->clock().now();
  high.launch(0, 1);
  Instant seen;
  REQUIRE(turn_until(*node.daemon, [&] {
    // Read before the look at the gate: an upper bound would prove nothing.
    const bool closed = low.state() != GateState::kOpen;
    seen = node.daemon->clock().now();
    return closed;
  }));
  CHECK((seen - launched).ns >= static_cast<int64_t>(kLatencyNs));

  const uint64_t closed_gate = low.gate();
  const Instant completed = node.daemon->clock().now();
  high.complete(1);
  REQUIRE(turn_until(*node.daemon, [&] {
    const bool changed = low.gate() != closed_gate;
    seen = node.daemon->clock().now();
    return changed;
  }));
  CHECK((seen - completed).ns >= static_cast<int64_t>(kLatencyNs));
}

TEST_CASE("status says that the device is simulated and how") {
  SimNode node;
  const nlohmann::json status = ask(*node.daemon, node.socket, nlohmann::json{{"op", "status"}});
  CHECK(status["simulated"] == true);
  CHECK(status["sharing"] == "time_slice");
  CHECK(status["slow_motion"] == kSlowMotion);
  CHECK(status["control_latency_us"] == 20.0);
}

TEST_CASE("status gives the time held on the device's clock, as every other time") {
  SimNode node;
  channel::atomic64(node.clients[1]->region().thread(0)->held_ns).store(5'000'000);
  const nlohmann::json status = ask(*node.daemon, node.socket, nlohmann::json{{"op", "status"}});
  CHECK(status["clients"][1]["held_ns"] == 5'000);
}

TEST_CASE("a daemon started before its simulated device finds it when the first client comes") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.simulated = true;
  settings.sim_device = dir.path("device");
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));
  daemon->turn(0);
  CHECK(daemon->clock().now() == Instant{0});
  FakeClient early(socket, FakeClient::hello("early"));
  REQUIRE(early.join(*daemon));
  write_sim_device(dir.path("device"), 2.0, 0);
  early.add_device(7);
  early.add_kernel(1, "kernel");
  early.launch(0, 1);
  CHECK(turn_until(*daemon, [&] { return daemon->clock().now() > Instant{0}; }));
}

TEST_CASE("a new simulated device in the old place is noticed when no client is there") {
  TempDir dir;
  write_sim_device(dir.path("device"), 1000.0, 0);
  DaemonSettings settings = quiet_settings(dir);
  settings.simulated = true;
  settings.sim_device = dir.path("device");
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));
  {
    FakeClient client(socket, FakeClient::hello("first"));
    REQUIRE(client.join(*daemon));
  }
  REQUIRE(turn_until(*daemon, [&] { return daemon->client_count() == 0; }));
  write_sim_device(dir.path("device"), 3.0, 0);
  FakeClient client(socket, FakeClient::hello("second"));
  REQUIRE(client.join(*daemon));
  CHECK(daemon->clock().slow_motion() == 3.0);
}

}  // namespace
}  // namespace lull::daemon
