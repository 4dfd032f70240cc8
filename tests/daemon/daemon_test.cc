#include "coordinator/daemon/event_cost.h"
#include "coordinator/daemon/daemon.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

using channel::GateState;
using nlohmann::json;

struct Node {
  explicit Node(const std::string& policy = "") {
    DaemonSettings settings = quiet_settings(dir);
    settings.policy = policy;
    know_long_kernel(settings, dir, "serve", 102);
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
  }
  std::unique_ptr<FakeClient> client(const std::string& name, int priority) {
    auto client = std::make_unique<FakeClient>(socket, FakeClient::hello(name, priority));
    REQUIRE(client->join(*daemon));
    client->add_device(7);
    client->add_kernel(100 + static_cast<uint64_t>(priority), name + "_kernel");
    return client;
  }
  json ask_for(const json& request) { return ask(*daemon, socket, request); }
  json shown(const FakeClient& client) {
    const json status = ask_for({{"op", "status"}});
    for (const json& row : status["clients"]) {
      if (row["id"] == client.welcome().client_id) return row;
    }
    return nullptr;
  }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
};

// Of "serve", at priority 2: ten seconds by what is known of the kernel, so that nobody takes it
// for stuck while a test runs.
void launch_long_work(FakeClient& client) { client.launch(0, 1); }

TEST_CASE("a client is welcomed with a sealed region of its own") {
  Node node;
  FakeClient client(node.socket, FakeClient::hello("serve", 2));
  REQUIRE(client.join(*node.daemon));
  CHECK(client.welcome().status == channel::kWelcomeOk);
  CHECK(client.welcome().priority == 2);
  CHECK(client.welcome().region_bytes == channel::kRegionBytes);
  CHECK(std::string(client.welcome().message).empty());
  const channel::lull_header& header = *client.region().header();
  CHECK(header.magic == channel::kMagic);
  CHECK(header.version == channel::kVersion);
  CHECK(header.client_id == client.welcome().client_id);
  CHECK(client.region().control()->timing_period == 64);
  CHECK(client.region().control()->wants_launch_records == channel::kRecordUntimed);
  CHECK(client.region().control()->memory_allowance[0] == UINT64_MAX);
  CHECK(client.state() == GateState::kOpen);

  CHECK(::ftruncate(client.memory_fd(), 4096) != 0);
  CHECK(::ftruncate(client.memory_fd(), 2 * static_cast<off_t>(channel::kRegionBytes)) != 0);
  CHECK((::fcntl(client.memory_fd(), F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
        (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

TEST_CASE("what a task may lose is shown as it counts, whatever it says") {
  struct Case {
    int32_t mean, p99;
    json shown;
  };
  const auto bound = [](int mean, int p99) {
    return json{{"mean", mean / 1000.0}, {"p99", p99 / 1000.0}};
  };
  for (const Case& said :
       {Case{30, 50, bound(30, 50)}, Case{0, 0, bound(0, 0)},
        Case{channel::kSlowdownUnset, channel::kSlowdownUnset, nullptr},
        Case{INT32_MIN, 50, nullptr}, Case{30, 20, bound(30, 30)},
        Case{30, INT32_MIN, bound(30, 30)}, Case{INT32_MAX, INT32_MAX, bound(10'000, 10'000)}}) {
    Node node;
    channel::lull_hello hello = FakeClient::hello("serve", 2);
    hello.slowdown_mean = said.mean;
    hello.slowdown_p99 = said.p99;
    FakeClient client(node.socket, hello);
    REQUIRE(client.join(*node.daemon));
    INFO(said.mean << ", " << said.p99);
    CHECK(node.shown(client)["max_slowdown"] == said.shown);
  }
}

TEST_CASE("a client of another channel version is told so and gets no region") {
  Node node;
  channel::lull_hello hello = FakeClient::hello("old");
  hello.version = channel::kVersion + 1;
  FakeClient client(node.socket, hello);
  CHECK_FALSE(client.join(*node.daemon));
  CHECK(client.welcome().status == channel::kWelcomeVersion);
  CHECK(std::string(client.welcome().message) ==
        fmt::format("this lulld speaks channel version {}, the program's liblull.so version {}: "
                    "install the same lull for both",
                    channel::kVersion, channel::kVersion + 1));
  CHECK_FALSE(client.is_connected());
  CHECK(node.daemon->client_count() == 0);
}

TEST_CASE("a shorter hello of another version is answered too") {
  Node node;
  const uint32_t packet[] = {channel::kMagic, channel::kVersion + 1};
  FakeClient client(node.socket, packet, sizeof packet);
  CHECK_FALSE(client.join(*node.daemon));
  CHECK(client.welcome().status == channel::kWelcomeVersion);
}

TEST_CASE("a connection that speaks neither protocol is closed") {
  Node node;
  FakeClient client(node.socket, "GET / HTTP/1.0", 14);
  CHECK(turn_until(*node.daemon, [&] { return !client.is_connected(); }));
}

TEST_CASE("a priority outside the levels is refused with the levels") {
  Node node;
  FakeClient client(node.socket, FakeClient::hello("serve", 10));
  CHECK_FALSE(client.join(*node.daemon));
  CHECK(client.welcome().status == channel::kWelcomeRefused);
  CHECK(std::string(client.welcome().message) ==
        "priority 10 is no level: 0 to 9 or realtime, high, normal, low, idle is expected");
}

TEST_CASE("a priority that the rules do not allow is lowered, and the message says to what") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.config.priorities =
      std::vector<PriorityRule>{{.who = {.any = true}, .highest = {5}, .normal = {7}}};
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));

  FakeClient asks(socket, FakeClient::hello("asks", 0));
  REQUIRE(asks.join(*daemon));
  CHECK(asks.welcome().status == channel::kWelcomeClamped);
  CHECK(asks.welcome().priority == 5);
  CHECK(asks.region().control()->priority == 5);
  const std::string message = asks.welcome().message;
  CHECK(message.find("priority realtime is not allowed for uid") == 0);
  CHECK(message.find("running at normal: allowed are normal, low, idle (5 to 9)") !=
        std::string::npos);

  FakeClient silent(socket, FakeClient::hello("silent"));
  REQUIRE(silent.join(*daemon));
  CHECK(silent.welcome().status == channel::kWelcomeOk);
  CHECK(silent.welcome().priority == 7);

  const json may = ask(*daemon, socket, json{{"op", "may"}, {"priority", 2}});
  CHECK(may["ok"] == false);
  CHECK(may["error"].get<std::string>().find("allowed are normal, low, idle (5 to 9)") !=
        std::string::npos);
  CHECK(ask(*daemon, socket, json{{"op", "may"}, {"priority", "low"}})["ok"] == true);
}

TEST_CASE("no more clients than configured are served") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.config.max_clients = 1;
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));
  FakeClient first(socket, FakeClient::hello("first"));
  REQUIRE(first.join(*daemon));
  FakeClient second(socket, FakeClient::hello("second"));
  CHECK_FALSE(second.join(*daemon));
  CHECK(second.welcome().status == channel::kWelcomeFull);
  CHECK(std::string(second.welcome().message).find("raise max_clients") != std::string::npos);
  first.hang_up();
  REQUIRE(turn_until(*daemon, [&] { return daemon->client_count() == 0; }));
  FakeClient third(socket, FakeClient::hello("third"));
  CHECK(third.join(*daemon));
}

TEST_CASE("status has every field that tools read") {
  Node node;
  const auto client = node.client("serve", 2);
  client->launch(0, 1);
  client->launch(0, 2);
  REQUIRE(settle(*node.daemon, {client.get()}));
  const json status = node.ask_for({{"op", "status"}});
  CHECK(status["ok"] == true);
  CHECK(status["pid"] == ::getpid());
  CHECK(status["simulated"] == false);
  CHECK(status["slow_motion"] == 1.0);
  CHECK(status["control_latency_us"] == 0.0);
  CHECK(status["policy"].get<std::string>().starts_with("guarded mean_per_mille=30"));
  for (const char* key : {"version", "sharing", "uptime_s", "now_ns", "notices"}) {
    CHECK(status.contains(key));
  }
  REQUIRE(status["devices"].size() == 2);
  CHECK(status["devices"][0]["uuid"] == "GPU-07070707-0707-0707-0707-070707070707");
  CHECK(status["devices"][0]["name"] == "simulated GPU");
  CHECK(status["devices"][0]["total_bytes"] == 80ULL << 30);
  CHECK(status["devices"][0]["clients"] == json::array({client->welcome().client_id}));
  REQUIRE(status["clients"].size() == 1);
  const json& row = status["clients"][0];
  CHECK(row["pid"] == ::getpid());
  CHECK(row["namespace_pid"] == ::getpid());
  CHECK(row["uid"] == ::getuid());
  CHECK(row["task"] == "serve");
  CHECK(row["job"] == "");
  CHECK(row["program"] == "program");
  CHECK(row["priority"] == 2);
  CHECK(row["launches"] == 2);
  CHECK(row["kernels"] == 1);
  CHECK(row["held"] == json::array());
  for (const char* key : {"graph_kernels", "copies", "memsets", "dropped", "held_ns"}) {
    CHECK(row[key] == 0);
  }
  REQUIRE(row["devices"].size() == 1);
  CHECK(row["devices"][0]["gate"] == "open");
  CHECK(row["devices"][0]["memory_allowance_bytes"].is_null());  // no limit
  for (const char* key :
       {"uuid", "memory_bytes", "memory_allowance_bytes", "in_flight_ns", "device_time_ns"}) {
    CHECK(row["devices"][0].contains(key));
  }
}

TEST_CASE("a status longer than a packet arrives whole") {
  Node node;
  std::vector<std::unique_ptr<FakeClient>> clients;
  for (int n = 0; n < 100; ++n) clients.push_back(node.client(std::string(60, 'n'), 5));
  const json status = node.ask_for({{"op", "status"}});
  CHECK(status["clients"].size() == 100);
  CHECK(status.dump().size() > channel::kReplyChunkBytes);
}

TEST_CASE(
    "the low client's gate closes while the high one works and its held launch is explained") {
  Node node("priority max_hold_ms=0");
  const auto high = node.client("serve", 2);
  const auto low = node.client("train", 7);
  REQUIRE(settle(*node.daemon, {high.get(), low.get()}));
  launch_long_work(*high);
  REQUIRE(turn_until(*node.daemon, [&] { return low->state() != GateState::kOpen; }));
  // What is in flight already takes the whole of the low client's bound.
  low->launch(0, 1);
  low->hold(0, 1);
  REQUIRE(turn_until(*node.daemon, [&] { return !node.shown(*low)["held"].empty(); }));
  const json held = node.shown(*low)["held"][0];
  CHECK(held["thread"] == 1000);
  CHECK(held["kernel"] == "train_kernel");
  CHECK(held["by"] == json::array({high->welcome().client_id}));
  CHECK_FALSE(held["why"].get<std::string>().empty());

  SECTION("completion of the high work lets it go") {
    high->complete(1);
    CHECK(turn_until(*node.daemon, [&] {
      return low->state() == GateState::kOpen ||
             (low->state() == GateState::kCredit && channel::gate_ns(low->gate()) > 0) ||
             low->region().thread(0)->released_ticket == 1;
    }));
    CHECK(channel::atomic32(low->region().control()->wake_sequence).load() > 0);
  }
  SECTION("a change to share lets it go at once") {
    const json changed = node.ask_for({{"op", "policy"}, {"policy", "share"}});
    CHECK(changed["ok"] == true);
    CHECK(changed["policy"] == "share");
    CHECK(turn_until(*node.daemon, [&] { return low->state() == GateState::kOpen; }));
    low->let_go(0, 2, 1);
    CHECK(turn_until(*node.daemon, [&] { return node.shown(*low)["held"].empty(); }));
  }
  SECTION("the high client's death lets it go") {
    high->hang_up();
    CHECK(turn_until(*node.daemon, [&] { return low->state() == GateState::kOpen; }));
    CHECK(node.daemon->client_count() == 1);
  }
  SECTION("raising its priority lets it go") {
    const json changed = node.ask_for({{"op", "priority"}, {"task", "train"}, {"level", 0}});
    CHECK(changed["ok"] == true);
    CHECK(changed["changed"] == json::array({low->welcome().client_id}));
    CHECK(turn_until(*node.daemon, [&] { return low->state() == GateState::kOpen; }));
    CHECK(low->region().control()->priority == 0);
    CHECK(node.shown(*low)["priority"] == 0);
  }
  SECTION("the end of the daemon opens every gate and closes the sockets") {
    node.daemon->stop();
    CHECK(low->state() == GateState::kOpen);
    CHECK_FALSE(low->is_connected());
  }
  SECTION("a launch whose record was lost is not held for ever") {
    channel::atomic32(low->region().thread(0)->held_ticket).store(0, std::memory_order_release);
    CHECK(turn_until(*node.daemon, [&] { return node.shown(*low)["held"].empty(); }));
  }
}

TEST_CASE("a held launch whose record was lost is seen in the thread's slot") {
  Node node("priority max_hold_ms=0");
  const auto high = node.client("serve", 2);
  const auto low = node.client("train", 7);
  REQUIRE(settle(*node.daemon, {high.get(), low.get()}));
  launch_long_work(*high);
  REQUIRE(turn_until(*node.daemon, [&] { return low->state() != GateState::kOpen; }));
  low->launch(0, 1);
  channel::lull_thread& slot = *low->region().thread(0);
  channel::atomic32(slot.tid).store(55, std::memory_order_relaxed);
  channel::atomic32(slot.held_ticket).store(9, std::memory_order_release);
  low->ring_if_asked();
  CHECK(turn_until(*node.daemon, [&] { return node.shown(*low)["held"].size() == 1; }));
}

TEST_CASE("predictions reach every slot of the kernel") {
  Node node;
  const auto client = node.client("serve", 2);
  const uint32_t twin = client->add_kernel(102, "serve_kernel");
  for (int n = 0; n < 8; ++n) {
    channel::lull_record timing = client->record(channel::kRecordTiming, 0);
    timing.value0 = 123'000 + static_cast<uint64_t>(kEventCost.ns);
    timing.value1 = channel::kGapUnknown;
    client->push(timing);
  }
  client->launch(0, 1, /*tracked=*/false);
  REQUIRE(turn_until(*node.daemon, [&] {
    return channel::atomic32(client->region().kernel(0)->predicted_ns).load() == 123'000;
  }));
  CHECK(client->region().kernel(twin)->predicted_ns == 123'000);
}

TEST_CASE("a quiet client gets its doorbell armed, and rings it") {
  Node node;
  const auto client = node.client("serve", 2);
  client->launch(0, 1);
  client->complete(1);
  REQUIRE(settle(*node.daemon, {client.get()}));
  // Asleep: without the byte nobody looks.
  REQUIRE(turn_until(*node.daemon, [&, quiet = 0]() mutable { return ++quiet > 5; }));
  const uint64_t tail = client->region().thread(0)->tail;
  channel::lull_thread& slot = *client->region().thread(0);
  CHECK(tail == slot.head);
  client->launch(0, 2);
  CHECK_FALSE(client->doorbell_armed());
  CHECK(turn_until(*node.daemon, [&] {
    return channel::atomic64(slot.tail).load(std::memory_order_acquire) == tail + 1;
  }));
}

TEST_CASE("an idle daemon does not wake by itself") {
  Node node;
  const auto first = node.client("serve", 2);
  const auto second = node.client("train", 7);
  first->launch(0, 1);
  first->complete(1);
  REQUIRE(settle(*node.daemon, {first.get(), second.get()}));
  for (int n = 0; n < 20; ++n) node.daemon->turn(1'000'000);
  // One turn sleeps for as long as it may.
  const uint64_t before = channel::monotonic_ns();
  node.daemon->turn(200'000'000);
  CHECK(channel::monotonic_ns() - before >= 190'000'000);
}

TEST_CASE("a client that lets go by itself is forgotten") {
  Node node;
  const auto client = node.client("serve", 2);
  REQUIRE(settle(*node.daemon, {client.get()}));
  client->region().client()->detached = 1;
  client->ring_if_asked();
  CHECK(turn_until(*node.daemon, [&] { return node.daemon->client_count() == 0; }));
}

TEST_CASE("every kernel of a client is listed with its launches") {
  Node node;
  const auto client = node.client("serve", 2);
  client->add_kernel(900, "never launched");
  for (uint64_t n = 1; n <= 3; ++n) client->launch(0, n);
  REQUIRE(settle(*node.daemon, {client.get()}));
  const json reply = node.ask_for({{"op", "kernels"}, {"client", client->welcome().client_id}});
  CHECK(reply["ok"] == true);
  REQUIRE(reply["kernels"].size() == 2);
  CHECK(reply["kernels"][0]["name"] == "serve_kernel");
  CHECK(reply["kernels"][0]["kind"] == "kernel");
  CHECK(reply["kernels"][0]["launches"] == 3);
  CHECK(reply["kernels"][1]["launches"] == 0);
  CHECK(node.ask_for({{"op", "kernels"}, {"client", 4711}})["error"] ==
        "cannot list kernels: no client 4711: see `lull status` for client ids");
}

TEST_CASE("priorities can be changed by name, pid and client id, and an unknown task is an error") {
  Node node;
  const auto client = node.client("serve", 5);
  const std::string pid = std::to_string(::getpid());
  const std::string id = std::to_string(client->welcome().client_id);
  for (const std::string& task : {std::string("serve"), pid, id}) {
    CHECK(node.ask_for({{"op", "priority"}, {"task", task}, {"level", "high"}})["ok"] == true);
  }
  const json failed = node.ask_for({{"op", "priority"}, {"task", "nobody"}, {"level", 2}});
  CHECK(failed["ok"] == false);
  CHECK(failed["error"] ==
        "cannot change a priority: no client is called \"nobody\": see `lull status` for names, "
        "pids and ids");
}

TEST_CASE("bad requests get one line that says what would be right") {
  Node node;
  const std::pair<std::string, std::string> cases[] = {
      {"{", "it is not JSON"},
      {"{}",
       "op is missing: ping, status, kernels, policy, job_policy, priority, may, trace, profile, job, suspend, resume, "
       "migrate, pin, resize or elastic is expected"},
      {R"({"op":"stats"})", "op is \"stats\""},
      {R"({"op":"policy","policy":"fikt"})",
       "one of share, exclusive, time_slice, priority, fikit, guarded"},
      {R"({"op":"policy","policy":3})", "a policy's name and options as text are expected"},
      {R"({"op":"priority","task":"x"})", "level is missing: 0 to 9 or realtime"},
      {R"({"op":"priority","level":3})", "task is missing"},
      {R"({"op":"may","priority":12})", "priority is 12: 0 to 9 or realtime"},
  };
  for (const auto& [request, part] : cases) {
    const json reply = ask(*node.daemon, node.socket, request);
    INFO(request << " -> " << reply.dump());
    CHECK(reply["ok"] == false);
    const std::string error = reply["error"];
    CHECK(error.find(part) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
  CHECK(node.ask_for({{"op", "ping"}})["ok"] == true);
}

TEST_CASE("a changed configuration is read again, and a bad one leaves the old one in use") {
  TempDir dir;
  const std::string path = dir.path("lulld.json");
  write_file(path, R"({"policy":"share","timing_period":8})");
  DaemonSettings settings = quiet_settings(dir);
  settings.config.policy = "priority";
  settings.config_path = path;
  const std::string socket = settings.socket_path;
  const auto daemon = start_daemon(std::move(settings));
  FakeClient client(socket, FakeClient::hello("serve"));
  REQUIRE(client.join(*daemon));
  daemon->reload();
  CHECK(ask(*daemon, socket, json{{"op", "policy"}})["policy"] == "share");
  CHECK(client.region().control()->timing_period == 8);
  write_file(path, R"({"policy":"exclusive","timing_period":"often"})");
  daemon->reload();
  CHECK(ask(*daemon, socket, json{{"op", "policy"}})["policy"] == "share");
}

TEST_CASE("clients of an ended daemon are taken by the next one") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  const std::string socket = settings.socket_path;
  auto daemon = start_daemon(settings);
  FakeClient before(socket, FakeClient::hello("serve", 2));
  REQUIRE(before.join(*daemon));
  daemon.reset();
  CHECK_FALSE(before.is_connected());
  daemon = start_daemon(settings);
  FakeClient after(socket, FakeClient::hello("serve", 2));
  CHECK(after.join(*daemon));
}

}  // namespace
}  // namespace lull::daemon
