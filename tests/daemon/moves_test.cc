// Jobs that move, over a real socket: requests of tools, orders to clients that a test plays, and
// what their reports bring about, truths and lies.
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

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

TEST_CASE("a client that refuses, whatever the reason, goes on, and the reason is kept") {
  const uint32_t result =
      GENERATE(channel::kMoveBusy, channel::kMoveNoHostMemory, channel::kMoveRefused);
  Node node;
  auto client = node.client("train", kGiB);
  REQUIRE(node.ask_for({{"op", "suspend"}, {"job", "train"}, {"at", "now"}})["ok"] == true);
  REQUIRE(node.is_ordered(*client, channel::kTargetOut));
  client->say_state(channel::kDraining);
  client->say_state(channel::kResident);
  client->end_order(result, "the reason");
  REQUIRE(node.is_ordered(*client, channel::kTargetResident));
  client->obey();
  REQUIRE(node.comes_to("train", "running"));
  CHECK(node.job("train")["reason"].get<std::string>().ends_with(": the reason"));
  REQUIRE(turn_until(*node.daemon, [&] { return client->state() == GateState::kOpen; }));
}

TEST_CASE("ranks leave all or none: one refuses, the other comes back") {
  Node node;
  channel::lull_hello hello = FakeClient::movable("r0", channel::kMovesSwap);
  strcpy(hello.job, "pair");
  auto r0 = node.client(hello, kGiB);
  strcpy(hello.name, "r1");
  auto r1 = node.client(hello, kGiB, 8);
  REQUIRE(node.ask_for({{"op", "suspend"}, {"job", "pair"}, {"at", "now"}})["ok"] == true);
  REQUIRE(node.is_ordered(*r0, channel::kTargetOut));
  REQUIRE(node.is_ordered(*r1, channel::kTargetOut));
  r0->obey();
  r1->end_order(channel::kMoveRefused, "no");
  REQUIRE(node.is_ordered(*r0, channel::kTargetResident));
  CHECK(r0->state() == GateState::kClosed);
  r0->obey();
  REQUIRE(node.is_ordered(*r1, channel::kTargetResident));
  r1->obey();
  REQUIRE(node.comes_to("pair", "running"));
  REQUIRE(turn_until(*node.daemon, [&] {
    return r0->state() == GateState::kOpen && r1->state() == GateState::kOpen;
  }));
}

TEST_CASE("a client that dies in any state leaves nothing behind") {
  const uint32_t state = GENERATE(channel::kResident, channel::kDraining, channel::kLeaving,
                                  channel::kOut, channel::kGivingUp, channel::kGivenUp,
                                  channel::kRestoring, channel::kReturning, channel::kLost);
  Node node;
  auto client = node.client("train", 79 * kGiB);
  auto other = node.client("other", kGiB / 2, 8);
  REQUIRE(node.ask_for({{"op", "suspend"}, {"job", "train"}, {"at", "now"}})["ok"] == true);
  REQUIRE(node.is_ordered(*client, channel::kTargetOut));
  if (state >= channel::kOut) {
    client->obey();
    REQUIRE(node.comes_to("train", "suspended"));
  }
  if (state >= channel::kRestoring) {
    REQUIRE(node.ask_for({{"op", "resume"}, {"job", "train"}})["ok"] == true);
    REQUIRE(node.is_ordered(*client, channel::kTargetResident));
  }
  client->say_state(state);
  REQUIRE(settle(*node.daemon, {other.get()}));
  client->hang_up();
  REQUIRE(turn_until(*node.daemon, [&] { return node.daemon->client_count() == 1; }));
  CHECK(node.ask_for({{"op", "job"}, {"job", "train"}})["ok"] == false);
  // All of its memory is free again: another one that large may come there.
  const json moved = node.ask_for({{"op", "migrate"}, {"job", "other"}, {"to", json::array({0})}});
  INFO(moved.dump());
  CHECK(moved["ok"] == true);
}

TEST_CASE("a fresh daemon brings back whatever its clients are in the midst of") {
  const uint32_t state =
      GENERATE(channel::kDraining, channel::kLeaving, channel::kOut, channel::kGivingUp,
               channel::kGivenUp, channel::kRestoring, channel::kReturning);
  Node node;
  {
    auto client = node.client("train", kGiB);
    REQUIRE(node.ask_for({{"op", "suspend"}, {"job", "train"}, {"at", "now"}})["ok"] == true);
    REQUIRE(node.is_ordered(*client, channel::kTargetOut));
    client->say_state(state);
    node.restart();
    REQUIRE_FALSE(client->is_connected());
  }
  // It attaches anew, as it is.
  auto hello = FakeClient::movable("train", channel::kMovesSwap | channel::kMovesMigrate);
  FakeClient client(node.settings.socket_path, hello);
  REQUIRE(client.join(*node.daemon));
  client.add_device(7);
  client.say_can(kAll);
  client.hold_memory(0, kGiB);
  client.say_state(state);
  REQUIRE(node.is_ordered(client, channel::kTargetResident));
  CHECK(node.job("train")["state"] == "returning");
  CHECK(node.job("train")["reason"].get<std::string>().find("suspended by an earlier lulld") !=
        std::string::npos);
  REQUIRE(turn_until(*node.daemon, [&] { return client.state() == GateState::kClosed; }));
  const bool itself = GENERATE(false, true);
  if (itself) client.say_state(channel::kResident);
  client.obey();
  REQUIRE(node.comes_to("train", "running"));
  REQUIRE(turn_until(*node.daemon, [&] { return client.state() == GateState::kOpen; }));
}

TEST_CASE("a lost process is shown as lost, and nobody moves it") {
  Node node;
  auto client = node.client("train", kGiB);
  node.suspend("train", *client, "given_up");
  REQUIRE(node.ask_for({{"op", "resume"}, {"job", "train"}})["ok"] == true);
  REQUIRE(node.is_ordered(*client, channel::kTargetResident));
  client->say_state(channel::kLost);
  client->end_order(channel::kMoveRefused, "the driver could not");
  REQUIRE(node.comes_to("train", "lost"));
  const json again = node.ask_for({{"op", "suspend"}, {"job", "train"}});
  CHECK(again["error"] == "cannot suspend train: a process of it is lost: end it");
}

TEST_CASE("two returns do not race for one byte, and who waits says for what") {
  Node node;
  auto one = node.client("one", 50 * kGiB);
  node.suspend("one", *one);
  auto two = node.client("two", 50 * kGiB);
  node.suspend("two", *two);
  REQUIRE(node.ask_for({{"op", "resume"}, {"job", "one"}})["ok"] == true);
  json answer = node.ask_for({{"op", "resume"}, {"job", "two"}});
  REQUIRE(answer["ok"] == true);
  CHECK(answer["job"]["state"] == "waiting");
  CHECK(answer["job"]["waits_for"] ==
        "GPU 0 has 28.0 GiB free, it needs 50.0 GiB: suspend or end a job there");
  REQUIRE(node.is_ordered(*one, channel::kTargetResident));
  one->obey();
  REQUIRE(node.comes_to("one", "running"));
  CHECK(two->order().target == channel::kTargetOut);
  one->hang_up();
  REQUIRE(node.is_ordered(*two, channel::kTargetResident));
}

TEST_CASE("a client that lies about where it is costs itself only") {
  Node node;
  auto liar = node.client("liar", kGiB);
  auto honest = node.client("honest", kGiB, 8);
  // States, results and abilities that there are not; bytes beyond any device; an order never
  // given.
  channel::lull_residence& words = liar->region().client()->residence;
  const int lie = GENERATE(0, 1, 2, 3, 4, 5);
  switch (lie) {
    case 0:
      words.state = 77;
      break;
    case 1:
      words.result = UINT32_MAX;
      break;
    case 2:
      words.abilities = UINT32_MAX;
      break;
    case 3:
      for (auto* sizes : {words.swappable_bytes, words.fixed_bytes}) {
        for (uint32_t n = 0; n < channel::kMaxDevices; ++n) sizes[n] = UINT64_MAX;
      }
      words.moving_bytes = 1;
      words.moved_bytes = UINT64_MAX;
      break;
    case 4:
      words.order = UINT32_MAX;
      break;
    default:
      memset(words.reason, '\x01', sizeof words.reason);
      break;
  }
  words.host_wanted_bytes = words.host_bytes = UINT64_MAX;
  liar->push(liar->record(channel::kRecordResidence));
  REQUIRE(settle(*node.daemon, {honest.get()}));
  const json answer = node.ask_for({{"op", "suspend"}, {"job", "liar"}, {"at", "now"}});
  CHECK(answer.contains("ok"));
  const json status = node.ask_for({{"op", "status"}});
  REQUIRE(status["ok"] == true);
  for (const json& client : status["clients"]) {
    if (client["task"] == "liar") CHECK((lie > 1 || client["lies"] > 0));
  }
  // The honest one goes out and back beside it.
  node.suspend("honest", *honest);
  REQUIRE(node.ask_for({{"op", "resume"}, {"job", "honest"}})["ok"] == true);
  REQUIRE(node.is_ordered(*honest, channel::kTargetResident));
  honest->obey();
  REQUIRE(node.comes_to("honest", "running"));
}

TEST_CASE("a client that names a GPU that is not there after a move keeps its old one") {
  Node node;
  auto client = node.client("train", kGiB);
  REQUIRE(settle(*node.daemon, {client.get()}));
  memset(client->region().client()->device[0].uuid, 0x55, 16);
  client->push(client->record(channel::kRecordResidence));
  REQUIRE(settle(*node.daemon, {client.get()}));
  const json status = node.ask_for({{"op", "status"}});
  CHECK(status["devices"][0]["client_count"] == 1);
}

TEST_CASE("an elastic job is resized, with and without a process") {
  Node node;
  CHECK(node.ask_for({{"op", "elastic"}, {"job", "train"}}).value("error", "").find("no elastic job") !=
        std::string::npos);
  CHECK(node.ask_for({{"op", "elastic"}, {"job", "train"}, {"min", 3}, {"max", 2}})
            .value("error", "")
            .find("max is 2") != std::string::npos);
  CHECK(node.ask_for({{"op", "elastic"}, {"job", "train"}, {"max", 2}}).value("error", "").find("min is missing") !=
        std::string::npos);
  const json declared = node.ask_for({{"op", "elastic"}, {"job", "train"}, {"min", 1}, {"max", 4}});
  REQUIRE(declared.value("ok", false));
  CHECK(declared["elastic"]["gpus"] == 4);
  json resized = node.ask_for({{"op", "resize"}, {"job", "train"}, {"gpus", 2}});
  REQUIRE(resized.value("ok", false));
  CHECK(resized["job"]["elastic"]["gpus"] == 2);
  // A task of that name is not the job.
  auto task = node.client("train", kGiB);
  resized = node.ask_for({{"op", "resize"}, {"job", "train"}, {"gpus", 3}});
  REQUIRE(resized.value("ok", false));
  CHECK(!resized["job"].contains("clients"));
  channel::lull_hello hello =
      FakeClient::movable("worker", channel::kMovesSwap | channel::kMovesMigrate);
  strcpy(hello.job, "train");
  auto worker = node.client(hello, kGiB);
  resized = node.ask_for({{"op", "resize"}, {"job", "train"}, {"gpus", 1}});
  REQUIRE(resized.value("ok", false));
  CHECK(resized["job"]["client_count"] == 1);
  CHECK(resized["job"]["elastic"]["gpus"] == 1);
  CHECK(node.ask_for({{"op", "resize"}, {"job", "train"}, {"gpus", 5}}).value("error", "").find("not within 1:4") !=
        std::string::npos);
  CHECK(node.ask_for({{"op", "elastic"}, {"job", "train"}})["elastic"]["gpus"] == 1);
}

TEST_CASE("what cannot be is refused with why, and what would help") {
  Node node;
  auto plain = node.client(FakeClient::hello("plain"), kGiB);
  auto train = node.client("train", kGiB);
  const auto error = [&](json request) { return node.ask_for(request).value("error", "done"); };
  CHECK(error({{"op", "suspend"}, {"job", "nobody"}}).find("is called \"nobody\"") !=
        std::string::npos);
  CHECK(error({{"op", "suspend"}, {"job", "plain"}, {"level", "out"}})
            .find("lull run --suspendable") != std::string::npos);
  CHECK(error({{"op", "migrate"}, {"job", "plain"}, {"to", {1}}}).find("lull run --migratable") !=
        std::string::npos);
  CHECK(error({{"op", "migrate"}, {"job", "train"}, {"to", {7}}}).find("no GPU is called \"7\"") !=
        std::string::npos);
  CHECK(error({{"op", "resize"}, {"job", "train"}, {"gpus", 2}}).find("it is not elastic") !=
        std::string::npos);
  CHECK(error({{"op", "resume"}, {"job", "train"}}) == "cannot resume train: it is running");
  CHECK(error({{"op", "suspend"}, {"job", "train"}, {"level", "away"}})
            .find("in_place, out or given_up") != std::string::npos);
  CHECK(error({{"op", "suspend"}, {"job", "train"}, {"at", 3}}).find("iteration or now") !=
        std::string::npos);
  CHECK(error({{"op", "migrate"}, {"job", "train"}}).find("a list of GPUs") != std::string::npos);
  CHECK(error({{"op", "pin"}, {"job", "train"}, {"pinned", 1}}).find("true or false") !=
        std::string::npos);
  CHECK(error({{"op", "resize"}, {"job", "train"}, {"gpus", 0}}).find("a number of GPUs") !=
        std::string::npos);
  CHECK(error({{"op", "suspend"}}).find("job is missing") != std::string::npos);
  REQUIRE(node.ask_for({{"op", "pin"}, {"job", "train"}, {"pinned", true}})["job"]["pinned"] ==
          true);
  CHECK(error({{"op", "suspend"}, {"job", "train"}}).find("lull pin JOB --off") !=
        std::string::npos);
  // What cannot be swapped is suspended where it is.
  const json answer = node.ask_for({{"op", "suspend"}, {"job", "plain"}, {"at", "now"}});
  CHECK(answer["job"]["target"] == "in_place");
  REQUIRE(node.comes_to("plain", "suspended"));
  CHECK(plain->state() == GateState::kClosed);
  // Two tasks of one name: a pid or an id tells.
  auto twin = node.client("train", kGiB);
  CHECK(error({{"op", "suspend"}, {"job", "train"}}).find("2 jobs are called") !=
        std::string::npos);
}

namespace {

// As another user: a thread has credentials of its own, and a socket those of who connects it.
template <typename Act>
void as_user(uid_t uid, Act act) {
  std::thread([&] {
    REQUIRE(::syscall(SYS_setresuid, uid, uid, uid) == 0);
    act();
  }).join();
}

std::string error_for(Node& node, uid_t uid, const json& request) {
  int fd = -1;
  as_user(uid, [&] {
    fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    node.settings.socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  });
  const std::string text = request.dump();
  REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) > 0);
  std::string reply;
  REQUIRE(turn_until(*node.daemon, [&] {
    char packet[channel::kReplyChunkBytes];
    for (;;) {
      const ssize_t got = ::recv(fd, packet, sizeof packet, MSG_DONTWAIT);
      if (got <= 0) return got == 0;
      reply.append(packet, static_cast<size_t>(got));
    }
  }));
  ::close(fd);
  return json::parse(reply).value("error", "");
}

}  // namespace

TEST_CASE("a job is moved by its own user and by operators, by nobody else") {
  if (::geteuid() != 0) return;  // nobody else can be played
  constexpr uid_t kAnn = 40001, kBob = 40002, kCarol = 40003;
  Node node;
  namespace fs = std::filesystem;
  fs::permissions(fs::path(node.settings.socket_path).parent_path(), fs::perms(0755));
  const auto client_of = [&](uid_t uid, const std::string& name) {
    std::unique_ptr<FakeClient> client;
    const auto hello = FakeClient::movable(name, channel::kMovesSwap | channel::kMovesMigrate);
    as_user(uid, [&] { client = std::make_unique<FakeClient>(node.settings.socket_path, hello); });
    REQUIRE(client->join(*node.daemon));
    client->add_device(7);
    client->say_can(kAll);
    client->hold_memory(0, kGiB);
    return client;
  };
  auto ann = client_of(kAnn, "train");
  auto bob = client_of(kBob, "train");
  auto other = client_of(kAnn, "other");
  const std::string refused = " other: it belongs to uid 40001: ask that user or an operator";
  const json orders[] = {{{"op", "suspend"}, {"at", "now"}},
                         {{"op", "resume"}},
                         {{"op", "migrate"}, {"to", {1}}},
                         {{"op", "pin"}, {"pinned", true}},
                         {{"op", "resize"}, {"gpus", 2}}};
  for (json order : orders) {
    order["job"] = "other";
    const std::string op = order["op"];
    CHECK(error_for(node, kBob, order) == "cannot " + op + refused);
    order["job"] = std::to_string(other->welcome().client_id);
    CHECK(error_for(node, kCarol, order).find("belongs to uid 40001") != std::string::npos);
  }
  CHECK(node.state("other") == "running");
  CHECK(node.job("other")["pinned"] == false);
  // One may look; of two jobs of a name one's own is meant; an operator may do all.
  CHECK(error_for(node, kCarol, {{"op", "job"}, {"job", "other"}}).empty());
  CHECK(error_for(node, kBob, {{"op", "suspend"}, {"job", "train"}, {"at", "now"}}).empty());
  REQUIRE(node.is_ordered(*bob, channel::kTargetOut));
  CHECK(ann->order().number == 0);
  bob->obey();
  node.suspend("other", *other);
  CHECK(error_for(node, kBob, {{"op", "resume"}, {"job", "other"}}) == "cannot resume" + refused);
  CHECK(error_for(node, kAnn, {{"op", "resume"}, {"job", "other"}}).empty());
  REQUIRE(node.is_ordered(*other, channel::kTargetResident));
}

TEST_CASE("the operator's rule says who can be moved") {
  Node node;
  const auto granted = [&](std::vector<MoveRule> rules, uint32_t wish) {
    Config config;
    config.moves = std::move(rules);
    return moves_for(config, Peer{.pid = 1, .uid = 1000}, wish);
  };
  const PeerMatch any{.uid = {}, .gid = {}, .any = true};
  const PeerMatch root{.uid = 0, .gid = {}};
  constexpr uint32_t kBoth = channel::kMovesSwap | channel::kMovesMigrate;
  CHECK(granted({}, 0) == 0);
  CHECK(granted({}, channel::kMovesMigrate) == kBoth);
  CHECK(granted({}, ~0U) == (kBoth | channel::kMovesOversubscribe));
  CHECK(granted({{any, false, {}, {}}}, kBoth) == 0);
  CHECK(granted({{any, true, {}, {}}}, 0) == channel::kMovesSwap);
  CHECK(granted({{any, {}, false, {}}}, kBoth) == channel::kMovesSwap);
  CHECK(granted({{any, {}, {}, true}}, 0) == (channel::kMovesSwap | channel::kMovesOversubscribe));
  CHECK(granted({{root, true, {}, {}}, {any, false, {}, {}}}, kBoth) == 0);
  node.settings.config.moves = {{any, true, {}, {}}};
  node.restart();
  FakeClient client(node.settings.socket_path, FakeClient::hello("train"));
  REQUIRE(client.join(*node.daemon));
  CHECK(client.welcome().moves == channel::kMovesSwap);
}

TEST_CASE("host memory is shared out by what arenas want, and no more than there is") {
  Node node;
  auto one = node.client("one", 40 * kGiB);
  auto two = node.client("two", 40 * kGiB);
  const auto want = [](FakeClient& client, uint64_t has, uint64_t wants) {
    client.region().client()->residence.host_bytes = has;
    client.region().client()->residence.host_wanted_bytes = wants;
    client.push(client.record(channel::kRecordResidence));
  };
  want(*one, 0, 40 * kGiB);
  const auto allowed = [](const FakeClient& client) {
    return client.region().control()->order.host_allowance_bytes;
  };
  REQUIRE(turn_until(*node.daemon, [&] { return allowed(*one) >= 40 * kGiB; }));
  want(*two, 0, UINT64_MAX);
  REQUIRE(turn_until(*node.daemon, [&] { return allowed(*two) == 32 * kGiB; }));
  CHECK(allowed(*one) == 32 * kGiB);
  const json status = node.ask_for({{"op", "status"}});
  CHECK(status["clients"][0]["residence"]["host_allowance_bytes"] == 32 * kGiB);
  CHECK(status["clients"][0]["residence"]["swappable_bytes"] == 40 * kGiB);
  two->hang_up();
  REQUIRE(turn_until(*node.daemon, [&] { return allowed(*one) == 64 * kGiB; }));
}

TEST_CASE("copies go by a pace only while a more important task with a bound is at work") {
  Node node("guarded mean_per_mille=30");
  auto train = node.client(FakeClient::movable("train", channel::kMovesSwap, 7), kGiB);
  auto serve = node.client(FakeClient::hello("serve", 2), kGiB, 8);
  REQUIRE(settle(*node.daemon, {serve.get(), train.get()}));
  uint64_t sequence = 0;
  const auto serve_one = [&] { serve->launch(0, ++sequence, /*tracked=*/false); };
  serve_one();
  REQUIRE(node.ask_for({{"op", "suspend"}, {"job", "train"}, {"at", "now"}})["ok"] == true);
  REQUIRE(node.is_ordered(*train, channel::kTargetOut));
  const channel::lull_order& words = train->region().control()->order;
  REQUIRE(turn_until(*node.daemon, [&] { return words.pace_bytes_per_s != 0; }));
  CHECK(words.pace_bytes_per_s == 825'000'000);
  CHECK(words.chunk_bytes == 1U << 20);
  // Its copies have been slower than that: it is paced as they are.
  train->region().client()->residence.copy_bytes_per_s = 12'000'000'000;
  serve_one();
  REQUIRE(turn_until(*node.daemon, [&] {
    if (words.pace_bytes_per_s == 0) serve_one();
    return words.pace_bytes_per_s == 180'000'000;
  }));
  // It rests: as fast as they go.
  REQUIRE(turn_until(*node.daemon, [&] { return words.pace_bytes_per_s == 0; }));
  CHECK(words.chunk_bytes == 0);
}

TEST_CASE("jobs that take turns are given what is free, and a turn where there is none") {
  Node node;
  node.settings.config.quantum_s = 1;
  node.restart();
  const uint32_t wish = channel::kMovesSwap | channel::kMovesOversubscribe;
  const auto want = [](FakeClient& client, uint64_t bytes) {
    channel::atomic64(client.region().client()->device[0].wanted_bytes)
        .store(bytes, std::memory_order_relaxed);
    client.push(client.record(channel::kRecordMemory));
  };
  const auto may_hold = [](const FakeClient& client, uint64_t bytes) {
    return client.region().control()->memory_allowance[0] >= bytes;
  };
  auto one = node.client(FakeClient::movable("one", wish), 0);
  CHECK_FALSE(may_hold(*one, 1));
  want(*one, 50 * kGiB);
  REQUIRE(turn_until(*node.daemon, [&] { return may_hold(*one, 50 * kGiB); }));
  CHECK_FALSE(may_hold(*one, 51 * kGiB));
  one->hold_memory(0, 50 * kGiB);
  want(*one, 0);
  // The other's first allocation does not fit: it waits for its turn, then the first one leaves.
  auto two = node.client(FakeClient::movable("two", wish), 0);
  want(*two, 40 * kGiB);
  REQUIRE(node.is_ordered(*one, channel::kTargetOut));
  CHECK_FALSE(may_hold(*two, 40 * kGiB));
  one->obey();
  REQUIRE(turn_until(*node.daemon, [&] { return may_hold(*two, 40 * kGiB); }));
  CHECK(node.job("one")["by_policy"] == true);
  two->hold_memory(0, 40 * kGiB);
  want(*two, 0);
  // And back, after the second's quantum.
  REQUIRE(node.is_ordered(*two, channel::kTargetOut));
  CHECK(one->order().target == channel::kTargetOut);
  two->obey();
  REQUIRE(node.is_ordered(*one, channel::kTargetResident));
  one->obey();
  REQUIRE(node.comes_to("one", "running"));
  // Who leaves for good makes room at once.
  one->hang_up();
  REQUIRE(node.is_ordered(*two, channel::kTargetResident));
}

TEST_CASE("a lock file a GPU is there for clients without a coordinator, and no link is followed") {
  Node node;
  DeviceUuid uuid;
  uuid.fill(7);
  const std::string path = return_lock_path(node.settings.socket_path, uuid);
  CHECK(path == node.dir.path("return-GPU-07070707-0707-0707-0707-070707070707.lock"));
  struct stat info;
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  CHECK(S_ISREG(info.st_mode));
  CHECK((info.st_mode & 0777) == 0666);
  node.daemon.reset();
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  const std::string link = node.dir.path("link.lock");
  REQUIRE(::symlink(path.c_str(), link.c_str()) == 0);
  CHECK_FALSE(make_return_lock(link));
  REQUIRE(::link(path.c_str(), node.dir.path("hard.lock").c_str()) == 0);
  CHECK_FALSE(make_return_lock(path));
  std::filesystem::create_directory(node.dir.path("folder.lock"));
  CHECK_FALSE(make_return_lock(node.dir.path("folder.lock")));
  CHECK_FALSE(make_return_lock("/no/such/folder/x.lock"));
}

TEST_CASE("clients whose memory is out see signs of life, whatever else is quiet") {
  Node node;
  auto client = node.client("train", kGiB);
  node.suspend("train", *client);
  for (int n = 0; n < 3; ++n) {
    const uint32_t looks = client->region().control()->looks;
    const uint64_t began = channel::monotonic_ns();
    REQUIRE(turn_until(*node.daemon, [&] { return client->region().control()->looks != looks; }));
    // Within a second, or clients take the daemon for gone; a loaded machine may be slow itself.
    CHECK(channel::monotonic_ns() - began < 20'000'000'000);
  }
}

}  // namespace lull::daemon
