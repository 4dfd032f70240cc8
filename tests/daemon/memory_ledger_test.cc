#include "coordinator/daemon/memory_ledger.h"

#include <string.h>

#include <catch2/catch.hpp>

#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;

struct Node {
  explicit Node(uint64_t reserve_bytes = 0) {
    DaemonSettings settings = quiet_settings(dir);
    settings.config.memory_reserve_bytes = reserve_bytes;
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
  }
  std::unique_ptr<FakeClient> client(const std::string& job, uint64_t limit_bytes) {
    channel::lull_hello hello = FakeClient::hello("task");
    strncpy(hello.job, job.c_str(), sizeof hello.job - 1);
    hello.memory_limit = limit_bytes;
    auto client = std::make_unique<FakeClient>(socket, hello);
    REQUIRE(client->join(*daemon));
    return client;
  }
  // As the shim does: says what it wants and waits for the allowance.
  bool wants(FakeClient& client, uint64_t bytes) {
    channel::atomic64(client.region().client()->device[0].wanted_bytes)
        .store(bytes, std::memory_order_release);
    client.push(client.record(channel::kRecordMemory));
    const bool got =
        turn_until(*daemon, [&] { return allowance(client) >= bytes || ++turns > 50; }) &&
        allowance(client) >= bytes;
    turns = 0;
    channel::atomic64(client.region().client()->device[0].wanted_bytes)
        .store(0, std::memory_order_release);
    if (got) {
      channel::atomic64(client.region().client()->device[0].used_bytes)
          .store(bytes, std::memory_order_release);
    }
    return got;
  }
  static uint64_t allowance(const FakeClient& client) {
    return channel::memory_allowance(client.region(), 0);
  }
  int turns = 0;
  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
};

TEST_CASE("a process limit holds from the first moment") {
  Node node;
  const auto client = node.client("", 20 * kGiB);
  CHECK(Node::allowance(*client) == 20 * kGiB);
  client->add_device(7);
  CHECK(node.wants(*client, 20 * kGiB));
  CHECK_FALSE(node.wants(*client, 20 * kGiB + 1));
}

TEST_CASE("without a limit there is no limit") {
  Node node;
  const auto client = node.client("", 0);
  CHECK(Node::allowance(*client) == kNoLimit);
}

TEST_CASE("processes of a job share its limit, whoever needs it first") {
  Node node;
  const auto first = node.client("job", 10 * kGiB);
  first->add_device(7);
  CHECK(node.wants(*first, 3 * kGiB));
  const auto second = node.client("job", 10 * kGiB);
  second->add_device(7);
  CHECK(node.wants(*second, 6 * kGiB));
  CHECK(Node::allowance(*first) + Node::allowance(*second) <= 10 * kGiB);
  CHECK(node.wants(*first, 4 * kGiB));
  CHECK_FALSE(node.wants(*first, 4 * kGiB + 1));
  CHECK(Node::allowance(*first) + Node::allowance(*second) <= 10 * kGiB);
  second->hang_up();
  REQUIRE(turn_until(*node.daemon, [&] { return node.daemon->client_count() == 1; }));
  CHECK(node.wants(*first, 10 * kGiB));
}

TEST_CASE("the limit of a job holds on each device by itself") {
  Node node;
  const auto first = node.client("job", 10 * kGiB);
  first->add_device(7);
  CHECK(node.wants(*first, 10 * kGiB));
  const auto second = node.client("job", 10 * kGiB);
  second->add_device(8);
  CHECK(node.wants(*second, 10 * kGiB));
}

TEST_CASE("jobs with the same limit do not meet") {
  Node node;
  const auto first = node.client("one", 10 * kGiB);
  const auto second = node.client("two", 10 * kGiB);
  first->add_device(7);
  second->add_device(7);
  CHECK(node.wants(*first, 10 * kGiB));
  CHECK(node.wants(*second, 10 * kGiB));
}

TEST_CASE("the configured reserve is kept from every client") {
  Node node(8 * kGiB);
  const auto client = node.client("", 0);
  client->add_device(7, 80 * kGiB);
  client->push(client->record(channel::kRecordMemory));
  REQUIRE(settle(*node.daemon, {client.get()}));
  CHECK(node.wants(*client, 72 * kGiB));
  CHECK_FALSE(node.wants(*client, 73 * kGiB));
}

}  // namespace
}  // namespace lull::daemon
