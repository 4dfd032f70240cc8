#include <string.h>

#include <catch2/catch.hpp>
#include <random>

#include "tests/daemon/fake_client.h"
#include "tests/seed.h"

namespace lull::daemon {
namespace {

using nlohmann::json;

struct Node {
  Node() {
    DaemonSettings settings = quiet_settings(dir);
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
    client = std::make_unique<FakeClient>(socket, FakeClient::hello("liar", 7));
    REQUIRE(client->join(*daemon));
    client->add_device(7);
    client->add_kernel(1, "kernel");
  }
  json status() { return ask(*daemon, socket, json{{"op", "status"}}); }
  bool drained() {
    return turn_until(*daemon, [&] {
      const channel::lull_thread& thread = *client->region().thread(0);
      return thread.head == thread.tail;
    });
  }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<FakeClient> client;
};

TEST_CASE("records that name what does not exist are counted and dropped") {
  Node node;
  const auto bad = [&](auto&& spoil) {
    channel::lull_record record = node.client->record(channel::kRecordLaunch, 0, 1);
    spoil(record);
    node.client->push(record);
  };
  bad([](auto& r) { r.kind = 77; });
  bad([](auto& r) { r.kind = 0; });
  bad([](auto& r) { r.kernel = 1; });
  bad([](auto& r) { r.kernel = UINT32_MAX; });
  bad([](auto& r) { r.device = 1; });
  bad([](auto& r) { r.device = UINT32_MAX; });
  bad([](auto& r) { r.stream = channel::kMaxStreams; });
  bad([](auto& r) { r.stream = UINT32_MAX; });
  bad([](auto& r) { r.sequence = 0; });
  bad([](auto& r) {
    r.kind = channel::kRecordTiming;
    r.value0 = UINT64_MAX;
  });
  bad([](auto& r) {
    r.kind = channel::kRecordCancel;
    r.stream = 1000;
  });
  bad([](auto& r) {
    r.kind = channel::kRecordSynced;
    r.stream = 1000;
  });
  bad([](auto& r) {
    r.kind = channel::kRecordHeld;
    r.ticket = 0;
  });
  bad([](auto& r) {
    r.kind = channel::kRecordHeld;
    r.ticket = 4;
    r.device = 3;
  });
  REQUIRE(node.drained());
  const json row = node.status()["clients"][0];
  CHECK(row["lies"] == 14);
  CHECK(row["held"].empty());
  CHECK(row["devices"][0]["in_flight_ns"] == 0);
}

TEST_CASE("times from the future and from long ago are brought into range") {
  Node node;
  for (const uint64_t ticks : {uint64_t{0}, UINT64_MAX, UINT64_MAX / 2, uint64_t{1} << 62}) {
    channel::lull_record record = node.client->record(channel::kRecordLaunch, 0, 1);
    record.tsc = ticks;
    node.client->push(record);
  }
  REQUIRE(node.drained());
  CHECK(node.status()["clients"][0]["lies"] == 0);
}

TEST_CASE("a head far from the tail is a lie, and a client that keeps lying is dropped") {
  Node node;
  channel::lull_thread& thread = *node.client->region().thread(0);
  bool open_at_the_end = false;
  REQUIRE(turn_until(*node.daemon, [&] {
    channel::atomic64(thread.head).fetch_add(100'000, std::memory_order_release);
    node.client->ring_if_asked();
    open_at_the_end = node.client->state() == channel::GateState::kOpen;
    return node.daemon->client_count() == 0;
  }));
  CHECK(open_at_the_end);
  CHECK_FALSE(node.client->is_connected());
  CHECK(node.status()["records_lied"] >= kMaxLies);
}

TEST_CASE("names that point outside the name area or never end are cut") {
  Node node;
  const channel::Region region = node.client->region();
  region.kernel(0)->name_offset = channel::kNameBytes - 3;
  memset(region.names() + channel::kNameBytes - 3, 'x', 3);
  memset(region.client()->device[0].name, 'y', sizeof region.client()->device[0].name);
  node.client->hold(0, 1);
  REQUIRE(node.drained());
  json row = node.status();
  CHECK(row["ok"] == true);
  region.kernel(0)->name_offset = UINT32_MAX;
  CHECK(node.status()["ok"] == true);
}

TEST_CASE("text that is no UTF-8 does not break the reply") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));
  channel::lull_hello hello = FakeClient::hello("x");
  memset(hello.name, 0xff, sizeof hello.name);
  memset(hello.job, '\n', sizeof hello.job);
  memset(hello.program, 'p', sizeof hello.program);
  FakeClient client(socket, hello);
  REQUIRE(client.join(*daemon));
  CHECK(ask(*daemon, socket, json{{"op", "status"}})["clients"].size() == 1);
}

TEST_CASE("claims of progress count only up to what was launched") {
  Node node;
  node.client->launch(0, 1);
  REQUIRE(node.drained());
  node.client->complete(UINT64_MAX);
  REQUIRE(turn_until(*node.daemon, [&] { return node.client->doorbell_armed(); }));
  node.client->launch(0, 2);
  CHECK(node.drained());
  CHECK(node.status()["clients"][0]["devices"][0]["in_flight_ns"] == 0);
}

TEST_CASE("a request nested without end is refused") {
  Node node;
  const std::string deep(20000, '[');
  const json reply = ask(*node.daemon, node.socket, "{\"op\":" + deep + std::string(20000, ']') + "}");
  CHECK(reply["ok"] == false);
  CHECK(std::string(reply["error"]).find("nested") != std::string::npos);
}

TEST_CASE("random regions never harm the daemon") {
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));
  for (int round = 0; round < 10; ++round) {
    FakeClient client(socket, FakeClient::hello("fuzz", static_cast<int>(random() % 10)));
    REQUIRE(client.join(*daemon));
    for (int turn = 0; turn < 20; ++turn) {
      for (int n = 0; n < 3000; ++n) {
        const size_t offset = random() % (channel::kRegionBytes / 8) * 8;
        // All but what the daemon itself writes there.
        if (offset >= channel::kControlOffset && offset < channel::kClientOffset) continue;
        const uint64_t value = random() % 2 == 0 ? random() : random() % 70;
        channel::atomic64(*reinterpret_cast<uint64_t*>(client.region().base + offset))
            .store(value, std::memory_order_relaxed);
      }
      client.ring_if_asked();
      daemon->turn(0);
    }
    CHECK(ask(*daemon, socket, json{{"op", "status"}})["ok"] == true);
  }
}

}  // namespace
}  // namespace lull::daemon
