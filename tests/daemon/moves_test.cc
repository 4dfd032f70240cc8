// Jobs that move, over a real socket: requests of tools, orders to clients that a test plays, and
// what their reports bring about, truths and lies.
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "coordinator/daemon/daemon.h"
#include "coordinator/daemon/return_locks.h"
#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

using channel::GateState;
using nlohmann::json;

constexpr uint64_t kGiB = 1ULL << 30;
constexpr uint32_t kAll = channel::kCanSwap | channel::kCanGiveUp | channel::kCanMigrate;

struct Node {
  explicit Node(const std::string& policy = "share") {
    settings = quiet_settings(dir);
    settings.policy = policy;
    settings.config.context_bytes = kGiB;
    settings.config.host_memory_bytes = 64 * kGiB;
    restart();
  }
  void restart() {
    daemon.reset();
    daemon = start_daemon(settings);
  }
  std::unique_ptr<FakeClient> client(channel::lull_hello hello, uint64_t bytes, uint8_t uuid = 7) {
    auto client = std::make_unique<FakeClient>(settings.socket_path, hello);
    REQUIRE(client->join(*daemon));
    client->add_device(uuid);
    client->add_kernel(100, "kernel");
    client->say_can(kAll);
    client->hold_memory(0, bytes);
    return client;
  }
  std::unique_ptr<FakeClient> client(const std::string& name, uint64_t bytes, uint8_t uuid = 7) {
    return client(FakeClient::movable(name, channel::kMovesSwap | channel::kMovesMigrate), bytes,
                  uuid);
  }
  json ask_for(const json& request) { return ask(*daemon, settings.socket_path, request); }
  json job(const std::string& name) { return ask_for({{"op", "job"}, {"job", name}})["job"]; }
  std::string state(const std::string& name) { return job(name)["state"]; }
  bool comes_to(const std::string& name, const std::string& wanted) {
    return turn_until(*daemon, [&] { return state(name) == wanted; });
  }
  // The next order after this one, as the client sees it.
  bool is_ordered(const FakeClient& client, uint32_t target, uint32_t after = 0) {
    return turn_until(
        *daemon, [&] { return client.order().number > after && client.order().target == target; });
  }
  void suspend(const std::string& name, FakeClient& client, const std::string& level = "auto") {
    const uint32_t last = client.order().number;
    const json answer =
        ask_for({{"op", "suspend"}, {"job", name}, {"level", level}, {"at", "now"}});
    INFO(answer.dump());
    REQUIRE(answer["ok"] == true);
    REQUIRE(is_ordered(client, level == "given_up" ? channel::kTargetGivenUp : channel::kTargetOut,
                       last));
    client.obey();
    REQUIRE(comes_to(name, "suspended"));
  }

  TempDir dir;
  DaemonSettings settings;
  std::unique_ptr<Daemon> daemon;
};

}  // namespace

TEST_CASE("a job is suspended and resumed: its gate closes, its client is ordered out, and back") {
  Node node;
  auto client = node.client("train", 3 * kGiB);
  client->launch(0, 1, /*tracked=*/false);
  json answer = node.ask_for({{"op", "suspend"}, {"job", "train"}});
  INFO(answer.dump());
  REQUIRE(answer["ok"] == true);
  CHECK(answer["job"]["state"] == "stopping");
  REQUIRE(node.is_ordered(*client, channel::kTargetOut));
  CHECK(client->state() == GateState::kClosed);
  CHECK(client->order().drain_ms == 10'000);
  CHECK(node.state("train") == "leaving");
  client->say_state(channel::kLeaving);
  client->obey();
  REQUIRE(node.comes_to("train", "suspended"));
  answer = node.job("train");
  CHECK(answer["level"] == "out");
  CHECK(answer["target"] == "out");
  CHECK(answer["clients"] == json::array({client->welcome().client_id}));
  CHECK(client->state() == GateState::kClosed);

  answer = node.ask_for({{"op", "resume"}, {"job", std::to_string(::getpid())}});
  REQUIRE(answer["ok"] == true);
  REQUIRE(node.is_ordered(*client, channel::kTargetResident));
  CHECK(client->order().pair_count == 0);
  CHECK(client->state() == GateState::kClosed);
  client->obey();
  REQUIRE(node.comes_to("train", "running"));
  REQUIRE(turn_until(*node.daemon, [&] { return client->state() == GateState::kOpen; }));
}

TEST_CASE("a migrated client is known on its new GPU, and its gate is that one's") {
  Node node("exclusive");
  auto client = node.client("train", 3 * kGiB);
  const json answer =
      node.ask_for({{"op", "migrate"}, {"job", "train"}, {"to", json::array({1})}, {"at", "now"}});
  INFO(answer.dump());
  REQUIRE(answer["ok"] == true);
  REQUIRE(node.is_ordered(*client, channel::kTargetGivenUp));
  client->obey();
  REQUIRE(node.is_ordered(*client, channel::kTargetResident));
  CHECK(client->order().pair_count == 2);
  client->obey();
  REQUIRE(node.comes_to("train", "running"));
  const json status = node.ask_for({{"op", "status"}});
  CHECK(status["devices"][0]["client_count"] == 0);
  CHECK(status["devices"][1]["client_count"] == 1);
  CHECK(status["clients"][0]["devices"].size() == 1);
  CHECK(status["clients"][0]["devices"][0]["uuid"] == status["devices"][1]["uuid"]);
  REQUIRE(turn_until(*node.daemon, [&] { return client->state() == GateState::kOpen; }));
  // Its launches count there: under exclusive one that comes to the same GPU waits for it.
  auto other = node.client("other", kGiB, 8);
  client->launch(0, 1);
  REQUIRE(turn_until(*node.daemon, [&] { return other->state() == GateState::kClosed; }));
}

}  // namespace lull::daemon
