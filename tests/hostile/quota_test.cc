// One user attaches so often that nobody else can.
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>

#include "coordinator/daemon/client_quota.h"
#include "coordinator/daemon/profile_store.h"
#include "tests/daemon/fake_client.h"
#include "tests/hostile/hostile_client.h"

namespace lull::tests {
namespace {

using namespace lull::daemon;
using nlohmann::json;

constexpr uid_t kStranger = 54321;  // has no account here

struct Node {
  explicit Node(uint32_t most) {
    DaemonSettings settings = quiet_settings(dir);
    settings.config.max_clients = most;
    settings.config.socket_mode = 0666;
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
    std::filesystem::permissions(dir.path(""), std::filesystem::perms(0755));
  }
  std::unique_ptr<HostileClient> client() { return std::make_unique<HostileClient>(socket); }
  bool attach(HostileClient& client) {
    return client.attach([&](const auto& done) { return turn_until(*daemon, done); });
  }
  // A process of another user attaches, holding its place until it has ended. Nothing: it ended
  // otherwise than it should.
  std::optional<bool> attach_as(uid_t user) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(user, user, user) != 0 || ::setresuid(user, user, user) != 0) ::_exit(2);
      HostileClient other(socket);
      const bool in = other.attach([](const auto& done) {
        for (uint64_t waited_ns = 0; waited_ns < kPatienceNs; waited_ns += 1'000'000) {
          if (done()) return true;
          ::usleep(1000);
        }
        return false;
      });
      ::_exit(in ? 0 : 1);
    }
    int status = 0;
    if (child < 0 ||
        !turn_until(*daemon, [&] { return ::waitpid(child, &status, WNOHANG) == child; }) ||
        !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
      return std::nullopt;
    }
    return WEXITSTATUS(status) == 0;
  }
  json refused() { return ask(*daemon, socket, json{{"op", "status"}})["refused"]; }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
};

TEST_CASE("a user that attaches without end gets half of the places, and is told so") {
  Node node(8);
  CHECK(node.refused()["attempts"] == 0);
  std::vector<std::unique_ptr<HostileClient>> flood;
  size_t in = 0;
  for (int n = 0; n < 20; ++n) {
    flood.push_back(node.client());
    in += node.attach(*flood.back()) ? 1 : 0;
  }
  CHECK(in == 4);
  CHECK(node.daemon->client_count() == 4);
  const channel::lull_welcome& last = flood.back()->welcome();
  CHECK(last.status == channel::kWelcomeFull);
  const std::string why = last.message;
  CHECK(why.find("serves 4 clients of uid " + std::to_string(::geteuid())) != std::string::npos);
  CHECK(why.find("raise max_clients_per_user") != std::string::npos);
  const json refused = node.refused();
  CHECK(refused["attempts"] == 16);
  REQUIRE(refused["users"].size() == 1);
  CHECK(refused["users"][0] == json{{"uid", ::geteuid()}, {"attempts", 16}, {"why", why}});

  // A place that is left can be taken again.
  flood.front()->hang_up();
  REQUIRE(turn_until(*node.daemon, [&] { return node.daemon->client_count() == 3; }));
  const auto next = node.client();
  CHECK(node.attach(*next));
  const auto beyond = node.client();
  CHECK_FALSE(node.attach(*beyond));
}

TEST_CASE("root fills its places, and another user's program attaches") {
  if (::geteuid() != 0) {
    WARN("not run: only root can play another user");
    return;
  }
  Node node(8);
  std::vector<std::unique_ptr<HostileClient>> flood;
  for (int n = 0; n < 20; ++n) {
    flood.push_back(node.client());
    node.attach(*flood.back());
  }
  const auto attached = node.attach_as(kStranger);
  REQUIRE(attached);
  CHECK(*attached);
  CHECK(node.refused()["users"].size() == 1);
}

TEST_CASE("each user has a limit of its own, root and the daemon's user too, and all have one") {
  ClientQuota quota;
  const auto may = [&](uid_t user) { return !quota.objection(user, {8, 4}); };
  const auto fill = [&](uid_t user) {
    uint32_t taken = 0;
    for (; taken < 20 && may(user); ++taken) quota.attached(user);
    return taken;
  };
  for (const uid_t user : {uid_t{0}, uid_t{1000}}) {
    CHECK(fill(user) == 4);
    CHECK(quota.clients_of(user) == 4);
  }
  // Both together have all: that is what the message says.
  CHECK(fill(1001) == 0);
  CHECK(quota.objection(1001, {8, 4})->find("raise max_clients in") != std::string::npos);
  quota.left(0);
  CHECK(quota.objection(1000, {8, 4})->find("raise max_clients_per_user") != std::string::npos);
  CHECK(fill(1001) == 1);
  for (int n = 0; n < 3; ++n) quota.left(0);
  CHECK(quota.clients_of(0) == 0);
  CHECK(fill(1001) == 3);
}

TEST_CASE(
    "there are no more places than descriptors suffice for, and a user has its part of them") {
  const auto places = [](uint64_t descriptors) {
    const Places fit = places_for({1024, 512}, descriptors);
    CHECK(fit.all * kDescriptorsAClient + kDescriptorsKept <=
          std::max<uint64_t>(descriptors, kDescriptorsKept + kDescriptorsAClient));
    return std::pair(fit.all, fit.of_user);
  };
  CHECK(places(65536) == std::pair(1024U, 512U));
  CHECK(places(kDescriptorsKept + 2048) == std::pair(1024U, 512U));
  CHECK(places(1024) == std::pair(352U, 176U));
  CHECK(places(324) == std::pair(2U, 1U));
  CHECK(places(0) == std::pair(1U, 1U));
}

TEST_CASE("programs with long profiles that attach at once are recalled one a turn") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.config.profiles = dir.path("profiles");
  const std::string socket = settings.socket_path;
  policies::KernelProfile profile;
  profile.add_duration(Duration{5000}, /*disturbed=*/false);
  ProfileStore store(*settings.config.profiles);
  REQUIRE(store.save(known_task("hostile", 2000, std::string(400, 'k'), profile)));
  REQUIRE(store.list()[0].bytes > 1U << 20);
  const auto daemon = start_daemon(std::move(settings));
  std::vector<std::unique_ptr<HostileClient>> flood;
  for (int n = 0; n < 4; ++n) {
    flood.push_back(std::make_unique<HostileClient>(socket));
    REQUIRE(flood.back()->attach([&](const auto& done) { return turn_until(*daemon, done); }));
  }
  for (const auto& client : flood) client->name_device(7);
  uint64_t before = 0;
  CHECK(turn_until(*daemon, [&] {
    const uint64_t now = daemon->profiles_recalled();
    CHECK(now - before <= 1);
    before = now;
    return now == flood.size();
  }));
}

// Processor time of this thread.
uint64_t processor_ns() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec * 1'000'000'000 + now.tv_nsec);
}

TEST_CASE("long profiles of programs that leave at once are written off the loop's thread") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.config.profiles = dir.path("profiles");
  const std::string socket = settings.socket_path;
  policies::KernelProfile profile;
  for (int n = 0; n < 120; ++n) profile.add_duration(Duration{5000 + n * n * 20}, false);
  const engine::TaskRecord record = known_task("hostile", 250, "k", profile);
  ProfileStore store(*settings.config.profiles);
  const uint64_t before_ns = processor_ns();
  REQUIRE(store.save(record));
  const uint64_t written_ns = processor_ns() - before_ns;

  const auto daemon = start_daemon(std::move(settings));
  std::vector<std::unique_ptr<HostileClient>> flood;
  for (int n = 0; n < 12; ++n) {
    flood.push_back(std::make_unique<HostileClient>(socket));
    REQUIRE(flood.back()->attach([&](const auto& done) { return turn_until(*daemon, done); }));
    flood.back()->name_device(7);
  }
  REQUIRE(turn_until(*daemon, [&] { return daemon->profiles_recalled() == flood.size(); }));
  CHECK(store.list()[0].kernels == 250);
  std::filesystem::remove_all(store.directory());
  for (const auto& client : flood) {
    client->region().thread(0)->launches += 1;
    client->hang_up();
  }
  const uint64_t leaving_ns = processor_ns();
  REQUIRE(turn_until(*daemon, [&] { return daemon->client_count() == 0; }));
  // Twelve would take twelve times as long as one; of one user's, so many wait for the disk at
  // most.
  CHECK(processor_ns() - leaving_ns < 2 * written_ns);
  CHECK(turn_until(*daemon, [&] {
    const auto kept = store.list();
    return kept.size() == 1 && kept[0].task == record.task && kept[0].kernels == 250;
  }));
}

TEST_CASE("what has been learnt is on disk when lulld has ended") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  constexpr size_t kTasks = 40;
  for (size_t n = 0; n < kTasks; ++n) {
    know_long_kernel(settings, dir, "task" + std::to_string(n), 1);
  }
  const std::string socket = settings.socket_path;
  ProfileStore store(*settings.config.profiles);
  auto daemon = start_daemon(std::move(settings));
  std::vector<std::unique_ptr<HostileClient>> clients;
  for (size_t n = 0; n < kTasks; ++n) {
    clients.push_back(std::make_unique<HostileClient>(socket));
    strcpy(clients.back()->hello.name, ("task" + std::to_string(n)).c_str());
    REQUIRE(clients.back()->attach([&](const auto& done) { return turn_until(*daemon, done); }));
    clients.back()->name_device(7);
  }
  REQUIRE(turn_until(*daemon, [&] { return daemon->profiles_recalled() == kTasks; }));
  std::filesystem::remove_all(store.directory());
  for (const auto& client : clients) client->region().thread(0)->launches += 1;
  daemon.reset();
  CHECK(store.list().size() == kTasks);
}

TEST_CASE("refusals are kept of so many users, and counted of all") {
  Refusals refusals;
  for (uid_t user = 0; user < 1000; ++user) {
    CHECK(refusals.add(user, "full") == (user < Refusals::kUsersKept));
  }
  CHECK(refusals.attempts == 1000);
  CHECK(refusals.users.size() == Refusals::kUsersKept);
  CHECK_FALSE(refusals.add(7, "full"));
  CHECK(refusals.add(7, "another reason"));
  CHECK(refusals.users.at(7).attempts == 3);
}

TEST_CASE("what is not given is half of all, and one at least") {
  Config config;
  CHECK(clients_per_user(config) == 512);
  config.max_clients = 1;
  CHECK(clients_per_user(config) == 1);
  config.max_clients = 5;
  CHECK(clients_per_user(config) == 3);
  config.max_clients_per_user = 2;
  CHECK(clients_per_user(config) == 2);
}

}  // namespace
}  // namespace lull::tests
