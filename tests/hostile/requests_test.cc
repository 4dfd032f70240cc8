// Tools ask so much that nobody else is served. Work is counted by turn of the loop.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "coordinator/daemon/request_queue.h"
#include "coordinator/engine/json_depth.h"
#include "tests/daemon/fake_client.h"
#include "tests/hostile/hostile_client.h"

namespace lull::tests {
namespace {

using namespace lull::daemon;
using channel::GateState;
using nlohmann::json;

struct Node {
  Node() {
    DaemonSettings settings = quiet_settings(dir);
    settings.policy = "priority max_hold_ms=0";
    know_long_kernel(settings, dir, "high", 102);
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
  }
  std::unique_ptr<FakeClient> client(const std::string& name, int priority) {
    auto client = std::make_unique<FakeClient>(socket, FakeClient::hello(name, priority));
    REQUIRE(client->join(*daemon));
    client->add_device(7);
    client->add_kernel(100 + static_cast<uint64_t>(priority), name + "_kernel");
    client->push(client->record(channel::kRecordMemory));
    return client;
  }
  // As many kernels as there can be, with the longest names that fit.
  std::unique_ptr<HostileClient> client_of_many_kernels() {
    auto client = std::make_unique<HostileClient>(socket);
    REQUIRE(client->attach([&](const auto& done) { return turn_until(*daemon, done); }));
    for (uint32_t n = 0; n < channel::kMaxKernels; ++n) {
      client->name_kernel(n + 1000, std::string(250, n % 2 == 0 ? '"' : '\x01'));
    }
    client->name_device(7);
    return client;
  }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
};

TEST_CASE("sixty-four requests that nobody reads cost a turn one page, and a held client nothing") {
  Node node;
  const auto high = node.client("high", 2);
  const auto low = node.client("low", 7);
  const auto many = node.client_of_many_kernels();
  REQUIRE(settle(*node.daemon, {high.get(), low.get()}));
  high->launch(0, 1);
  REQUIRE(turn_until(*node.daemon, [&] { return low->state() != GateState::kOpen; }));

  std::vector<Question> questions;
  const std::string kernels = json{{"op", "kernels"}, {"client", many->welcome().client_id}}.dump();
  for (int n = 0; n < 64; ++n) {
    questions.emplace_back(node.socket, n % 2 == 0 ? kernels : R"({"op":"status"})");
  }
  uint64_t answered = node.daemon->requests().answered;
  uint64_t bytes = node.daemon->requests().reply_bytes;
  uint64_t turns_until_open = 0;
  bool asked_in_between = false;
  REQUIRE(turn_until(*node.daemon, [&] {
    const RequestFigures& now = node.daemon->requests();
    CHECK(now.answered - answered <= 1);
    CHECK(now.reply_bytes - bytes <= kLongestPageBytes);
    answered = now.answered;
    bytes = now.reply_bytes;
    // The high task's work is complete while most questions are still open.
    if (answered == 8) high->complete(1);
    if (answered >= 8 && low->state() != GateState::kOpen && !asked_in_between) ++turns_until_open;
    asked_in_between =
        asked_in_between || low->state() == GateState::kOpen || channel::gate_ns(low->gate()) > 0;
    return answered >= 64 || now.most_unread_bytes > 2 * kUnreadBytesOfUser;
  }));
  CHECK(asked_in_between);
  CHECK(turns_until_open < 40);
  CHECK(node.daemon->requests().most_pages_a_turn == 1);
  CHECK(node.daemon->requests().most_unread_bytes <= kUnreadBytesOfUser + kLongestPageBytes);
  for (Question& question : questions) {
    CHECK(turn_until(*node.daemon, [&] { return question.look(); }));
    CHECK(json::parse(question.answer())["ok"] == true);
    CHECK(question.answer().size() <= kLongestPageBytes);
  }
}

TEST_CASE("those who attach at once become clients few a turn, and all of them do") {
  Node node;
  std::vector<Question> programs;
  const channel::lull_hello hello = HostileClient::polite_hello();
  const std::string packet(reinterpret_cast<const char*>(&hello), sizeof hello);
  for (int n = 0; n < 48; ++n) programs.emplace_back(node.socket, packet);
  size_t most = 0;
  size_t before = 0;
  REQUIRE(turn_until(*node.daemon, [&] {
    most = std::max(most, node.daemon->client_count() - before);
    before = node.daemon->client_count();
    return before == programs.size();
  }));
  CHECK(most <= 4);
}

// Says nothing, as another user: needs root.
FileDescriptor silent(const std::string& socket, uid_t user) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  FileDescriptor connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  REQUIRE(::seteuid(user) == 0);
  const int failed =
      ::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  REQUIRE(::seteuid(0) == 0);
  REQUIRE(failed == 0);
  return connection;
}

TEST_CASE("where each user has one connection, the oldest makes room, whoever's it is") {
  if (::geteuid() != 0) return;
  Node node;
  REQUIRE(::chmod(node.dir.path("").c_str(), 0755) == 0);
  constexpr uid_t kSubordinate = 100'000;  // a user can have thousands
  std::vector<FileDescriptor> others;
  for (uid_t n = 0; n < kMaxToolConnections; ++n) {
    others.push_back(silent(node.socket, kSubordinate + n));
    if (n % 16 == 15) node.daemon->turn(0);
  }
  Question root(node.socket, R"({"op":"ping"})");
  others.push_back(silent(node.socket, kSubordinate + kMaxToolConnections));
  REQUIRE(turn_until(*node.daemon, [&] { return root.look(); }));
  CHECK(root.answer().find("true") != std::string::npos);
}

TEST_CASE("all kernels of a client come in pages that follow each other") {
  Node node;
  const auto many = node.client_of_many_kernels();
  const std::string request = json{{"op", "kernels"}, {"client", many->welcome().client_id}}.dump();
  const json first = ask_for_page(*node.daemon, node.socket, request);
  CHECK(first["kernels"].size() < channel::kMaxKernels / 8);
  CHECK(first["next"] == first["kernels"].size());
  CHECK(ask(*node.daemon, node.socket, request)["kernels"].size() == channel::kMaxKernels);
}

TEST_CASE("all clients come in pages, in order, each once") {
  Node node;
  std::vector<std::unique_ptr<FakeClient>> clients;
  for (int n = 0; n < 50; ++n) clients.push_back(node.client("task", 5));
  const std::string request = R"({"op":"status"})";
  CHECK(ask_for_page(*node.daemon, node.socket, request)["clients"].size() <= kClientsAPage);
  const json whole = ask(*node.daemon, node.socket, request);
  REQUIRE(whole["clients"].size() == clients.size());
  for (size_t n = 0; n < clients.size(); ++n) {
    CHECK(whole["clients"][n]["id"] == clients[n]->welcome().client_id);
  }
  const json beyond = ask(*node.daemon, node.socket, json{{"op", "status"}, {"from", 1000000}});
  CHECK(beyond["clients"].empty());
  CHECK(beyond.contains("next") == false);
}

TEST_CASE("a client with all its threads held is shown with some of them, and their number") {
  Node node;
  const auto high = node.client("high", 2);
  const auto low = node.client("low", 7);
  REQUIRE(settle(*node.daemon, {high.get(), low.get()}));
  high->launch(0, 1);
  REQUIRE(turn_until(*node.daemon, [&] { return low->state() != GateState::kOpen; }));
  low->launch(0, 1);
  for (uint32_t thread = 0; thread < 40; ++thread) low->hold(0, thread + 1, thread);
  json row;
  REQUIRE(turn_until(*node.daemon, [&] {
    row = ask(*node.daemon, node.socket, json{{"op", "status"}})["clients"][1];
    return row["held_threads"] == 40;
  }));
  CHECK(row["held"].size() == engine::kMostShown);
}

TEST_CASE("profiles are read on the disk's thread, and come in pages") {
  Node node;
  engine::TaskRecord record{.task = "1000/big", .gpu = "GPU"};
  policies::KernelProfile profile;
  profile.add_duration(Duration{5000}, /*disturbed=*/false);
  for (uint64_t n = 1; n <= 700; ++n) {
    record.kernels.push_back({KernelId{n}, std::string(100, 'k'), profile.saved()});
  }
  REQUIRE(ProfileStore(node.dir.path("profiles")).save(record));
  const std::string request = R"({"op":"profile","show":"1000/big"})";
  const json first = ask_for_page(*node.daemon, node.socket, request);
  REQUIRE(first["ok"] == true);
  REQUIRE(first["records"].size() == 1);
  CHECK(first["records"][0]["kernels"].size() < 700);
  const json whole = ask(*node.daemon, node.socket, request);
  size_t kernels = 0;
  for (const json& part : whole["records"]) {
    CHECK(part["task"] == "1000/big");
    CHECK(part.value("continues", false) == (kernels > 0));
    kernels += part["kernels"].size();
  }
  CHECK(kernels == 700);
  const json list = ask(*node.daemon, node.socket, json{{"op", "profile"}});
  CHECK(list["profiles"].size() == 2);  // and the long kernel's
}

// Processor time of this thread until it is answered, the least of three: a ratio of two of them
// says how the work grows, on a machine of any speed.
uint64_t cost_of(Daemon& daemon, const std::string& socket, const std::string& request) {
  uint64_t least = UINT64_MAX;
  for (int n = 0; n < 3; ++n) {
    timespec before, after;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    REQUIRE(ask_for_page(daemon, socket, request)["ok"] == true);
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    least = std::min(least, static_cast<uint64_t>((after.tv_sec - before.tv_sec) * 1'000'000'000 +
                                                  after.tv_nsec - before.tv_nsec));
  }
  return least;
}

TEST_CASE("a request of twenty thousand objects costs about as much as one of as many lists") {
  Node node;
  const auto request = [](const char* item) {
    std::string text = R"({"op":"ping","much":[)" + std::string(item);
    while (text.size() < 65'000) text += std::string(",") + item;
    return text + "]}";
  };
  const uint64_t lists = cost_of(*node.daemon, node.socket, request("[]"));
  CHECK(cost_of(*node.daemon, node.socket, request("{}")) < 10 * lists);
}

TEST_CASE("how deep JSON nests is known before it is parsed, whatever its strings hold") {
  CHECK_FALSE(engine::nests_deeper(R"({"a":[1,[2]],"b":[]})", 3));
  CHECK(engine::nests_deeper(R"({"a":[1,[2]],"b":[]})", 2));
  CHECK_FALSE(engine::nests_deeper(R"(["[[[","\"[[[","\\"])", 1));
  CHECK(engine::nests_deeper(R"(["\\",[1]])", 1));
}

TEST_CASE("users take turns, whatever each of them asks, and who does not read waits") {
  RequestQueue queue;
  const auto everybody = [](uid_t) { return true; };
  for (uint32_t n = 0; n < 100; ++n) queue.push(1000, n);
  queue.push(1001, 500);
  queue.push(0, 600);
  CHECK(queue.pop(everybody) == 0U);  // after user 0, in a circle
  CHECK(queue.pop(everybody) == 500U);
  CHECK(queue.pop(everybody) == 600U);
  CHECK(queue.pop(everybody) == 1U);
  const auto others = [](uid_t user) { return user != 1000; };
  CHECK_FALSE(queue.can_pop(others));
  CHECK_FALSE(queue.pop(others));
  queue.push(1001, 501);
  CHECK(queue.pop(others) == 501U);
  uint32_t left = 0;
  while (queue.pop(everybody)) ++left;
  CHECK(left == 98);
  CHECK(queue.empty());
}

}  // namespace
}  // namespace lull::tests
