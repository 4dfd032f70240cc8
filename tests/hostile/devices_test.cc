// Programs name devices that are not there, and facts of those that are. Where known devices come
// from: the operator, NVML, the driver's files, and the word of trusted programs, in this order.
#include <string.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "coordinator/daemon/machine_devices.h"
#include "tests/daemon/fake_client.h"
#include "tests/hostile/hostile_client.h"

namespace lull::tests {
namespace {

using namespace lull::daemon;
using channel::GateState;
using nlohmann::json;

struct Node {
  explicit Node(const std::function<void(Node&, DaemonSettings&)>& change = {}) {
    DaemonSettings settings = quiet_settings(dir);
    settings.policy = "priority max_hold_ms=0";
    if (change) change(*this, settings);
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
  }
  std::unique_ptr<HostileClient> client(int priority = 5) {
    auto client = std::make_unique<HostileClient>(socket);
    client->hello.priority = priority;
    REQUIRE(client->attach([&](const auto& done) { return turn_until(*daemon, done); }));
    client->name_kernel(static_cast<uint64_t>(priority) + 1, "kernel");
    return client;
  }
  bool until(const std::function<bool()>& done) { return turn_until(*daemon, done); }
  json status() { return ask(*daemon, socket, json{{"op", "status"}}); }
  json row(const HostileClient& client) {
    const json all = status();
    for (const json& row : all["clients"]) {
      if (row["id"] == client.welcome().client_id) return row;
    }
    return nullptr;
  }
  bool is_told(const HostileClient& client) {
    return until([&] { return channel::unknown_devices(*client.region().control()) != 0; });
  }
  // As the driver writes it.
  void write_gpu(const std::string& slot, const std::string& uuid) {
    std::filesystem::create_directories(dir.path("gpus/" + slot));
    write_file(dir.path("gpus/" + slot + "/information"),
               "Model: \t\t Driver GPU\nIRQ:   \t\t 11\nGPU UUID: \t " + uuid +
                   "\nVideo BIOS: \t ??.??\n");
  }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
};

TEST_CASE("four programs that name 64 devices leave those after them scheduled") {
  Node node;
  std::vector<std::unique_ptr<HostileClient>> inventors;
  for (uint8_t n = 0; n < 4; ++n) {
    inventors.push_back(node.client());
    for (uint8_t d = 0; d < 16; ++d) {
      inventors.back()->name_device(static_cast<uint8_t>(100 + n * 16 + d));
    }
    inventors.back()->write(HostileClient::record(channel::kRecordMemory));
    REQUIRE(node.is_told(*inventors.back()));
  }
  CHECK(node.status()["devices"].size() == 2);
  const json unscheduled = node.row(*inventors[3])["unscheduled"];
  REQUIRE(unscheduled.size() == 16);
  CHECK(unscheduled[0]["uuid"] == "GPU-94949494-9494-9494-9494-949494949494");
  CHECK(unscheduled[0]["why"] == "not among the devices of lulld's configuration");

  const auto high = node.client(2);
  const auto low = node.client(7);
  high->name_device(7);
  low->name_device(7);
  low->write(HostileClient::record(channel::kRecordMemory));
  REQUIRE(node.until([&] { return node.row(*low)["devices"].size() == 1; }));
  high->launch(1);
  CHECK(node.until([&] { return low->gate() != GateState::kOpen; }));
  CHECK(channel::unknown_devices(*low->region().control()) == 0);
}

TEST_CASE("launches on a device that is unknown hold nobody and are held by nobody") {
  Node node;
  const auto high = node.client(2);
  const auto other = node.client(7);
  high->name_device(99);
  other->name_device(99);
  REQUIRE(node.is_told(*high));
  REQUIRE(node.is_told(*other));
  for (uint64_t n = 1; n <= 20; ++n) high->launch(n);
  high->pretend_to_wait(3);
  for (int n = 0; n < 20; ++n) node.daemon->turn(1'000'000);
  CHECK(other->gate() == GateState::kOpen);
  CHECK(high->gate() == GateState::kOpen);
}

TEST_CASE("a program of a job with a limit may use memory on a device that is unknown") {
  Node node;
  std::vector<std::unique_ptr<HostileClient>> ranks;
  for (int n = 0; n < 2; ++n) {
    ranks.push_back(std::make_unique<HostileClient>(node.socket));
    ranks.back()->hello.memory_limit = 1ULL << 30;
    strncpy(ranks.back()->hello.job, "job", sizeof ranks.back()->hello.job - 1);
    REQUIRE(ranks.back()->attach([&](const auto& done) { return node.until(done); }));
    ranks.back()->name_device(99);
  }
  REQUIRE(node.is_told(*ranks[1]));
  CHECK(channel::memory_allowance(ranks[1]->region(), 0) == 1ULL << 30);
}

TEST_CASE("what a program says of a device's memory takes nobody's away") {
  Node node(
      [](Node&, DaemonSettings& settings) { settings.config.memory_reserve_bytes = 1ULL << 30; });
  const auto liar = node.client();
  liar->name_device(7, /*total_bytes=*/1);
  liar->write(HostileClient::record(channel::kRecordMemory));
  REQUIRE(node.until([&] { return node.row(*liar)["devices"].size() == 1; }));
  const auto later = node.client();
  later->name_device(7);
  later->write(HostileClient::record(channel::kRecordMemory));
  REQUIRE(node.until([&] { return node.row(*later)["devices"].size() == 1; }));
  CHECK(channel::memory_allowance(later->region(), 0) == kDeviceBytes - (1ULL << 30));
  CHECK(node.status()["devices"][0]["total_bytes"] == kDeviceBytes);
}

TEST_CASE(
    "NVML's devices are known, each GPU before its instances, with UUIDs as CUDA gives them") {
  const auto devices = machine_devices({.nvml = FAKE_NVML, .proc = "/none"});
  REQUIRE(devices.size() == 3);
  CHECK(uuid_text(devices[0].uuid, devices[0].instance) ==
        "GPU-01010101-0101-0101-0101-010101010101");
  CHECK(devices[1].total_bytes == 80ULL << 30);
  CHECK(uuid_text(devices[2].uuid, devices[2].instance) ==
        "MIG-0a0b0c0d-0303-0303-0303-030303030303");
  // In the order of the text, as in CUuuid.
  CHECK(devices[2].uuid[0] == 0x0a);
  CHECK(devices[2].uuid[3] == 0x0d);
  CHECK(devices[2].name == "Fake GPU MIG 3g.40gb");
  CHECK(devices[2].total_bytes == 40ULL << 30);
}

TEST_CASE("without NVML the driver's files name the GPUs that somebody has used") {
  Node node;
  node.write_gpu("0000:01:00.0", "GPU-01010101-0101-0101-0101-010101010101");
  node.write_gpu("0000:02:00.0", "GPU-" + std::string(36, '?'));
  const auto devices = machine_devices({.nvml = "libnone.so", .proc = node.dir.path("gpus")});
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].name == "Driver GPU");
  CHECK(devices[0].total_bytes == 0);
  CHECK(machine_devices({.nvml = "libnone.so", .proc = "/none"}).empty());
}

TEST_CASE("a UUID is what nvidia-smi prints, and nothing else") {
  CHECK(parse_uuid("GPU-01020304-0506-0708-090a-0b0c0d0e0f10"));
  CHECK(parse_uuid("MIG-01020304-0506-0708-090A-0B0C0D0E0F10")->instance);
  for (const char* text :
       {"", "GPU-", "GPU-0102030405060708090a0b0c0d0e0f10", "MIG-GPU-01/3/0",
        "GPU-01020304-0506-0708-090a-0b0c0d0e0f1g", "GPU-01020304-0506-0708-090a-0b0c0d0e0f101"}) {
    CHECK_FALSE(parse_uuid(text));
  }
}

TEST_CASE("a device that comes after lulld has started is found when a program names it") {
  Node node([](Node& self, DaemonSettings& settings) {
    self.write_gpu("0000:01:00.0", "GPU-01010101-0101-0101-0101-010101010101");
    settings.config.devices.clear();
    settings.machine = {.nvml = "libnone.so", .proc = self.dir.path("gpus")};
    settings.ask_driver_again_ns = 0;
  });
  CHECK(node.status()["devices"].size() == 1);
  const auto early = node.client();
  early->name_device(2);
  REQUIRE(node.is_told(*early));
  const json why = node.row(*early)["unscheduled"][0]["why"];
  CHECK(why.get<std::string>().find("driver names no such device") != std::string::npos);

  node.write_gpu("0000:02:00.0", "GPU-02020202-0202-0202-0202-020202020202");
  const auto late = node.client();
  late->name_device(2);
  CHECK(node.until([&] { return node.row(*late)["devices"].size() == 1; }));
  // It is good for those as well that were told otherwise.
  CHECK(node.until([&] { return node.row(*early)["devices"].size() == 1; }));
  CHECK(channel::unknown_devices(*early->region().control()) == 0);
  CHECK(node.row(*early)["unscheduled"].empty());
}

TEST_CASE("who names what makes the driver be asked no more often") {
  Node node([](Node& self, DaemonSettings& settings) {
    self.write_gpu("0000:01:00.0", "GPU-01010101-0101-0101-0101-010101010101");
    settings.config.devices.clear();
    settings.machine = {.nvml = "libnone.so", .proc = self.dir.path("gpus")};
    settings.ask_driver_again_ns = 3'600'000'000'000;
  });
  node.write_gpu("0000:02:00.0", "GPU-02020202-0202-0202-0202-020202020202");
  const auto client = node.client();
  client->name_device(2);
  for (int n = 0; n < 50; ++n) node.daemon->turn(1'000'000);
  const json unscheduled = node.row(*client)["unscheduled"];
  REQUIRE(unscheduled.size() == 1);
  CHECK(unscheduled[0]["why"] == "the driver is asked about it");
}

TEST_CASE("where neither driver nor operator says anything, a trusted program's word counts") {
  Node node([](Node&, DaemonSettings& settings) {
    settings.config.devices.clear();
    settings.machine = {.nvml = "libnone.so", .proc = "/none"};
  });
  const auto own = node.client();
  own->name_device(42, 1ULL << 30);
  REQUIRE(node.until([&] { return node.row(*own)["devices"].size() == 1; }));
  CHECK(node.status()["devices"][0]["total_bytes"] == 1ULL << 30);

  DeviceTable table;
  channel::DeviceEntry entry;
  entry.uuid.fill(42);
  CHECK_FALSE(table.add_user(entry, ClientId{1}, /*trusted=*/false));
  CHECK(table.add_user(entry, ClientId{1}, /*trusted=*/true));
  CHECK(table.add_user(entry, ClientId{2}, /*trusted=*/false));
}

TEST_CASE("invented devices of trusted programs make room when they are used no more") {
  DeviceTable table;
  channel::DeviceEntry entry;
  for (uint8_t n = 0; n < kMaxNodeDevices; ++n) {
    entry.uuid.fill(n);
    REQUIRE(table.add_user(entry, ClientId{1}, /*trusted=*/true));
  }
  entry.uuid.fill(200);
  CHECK_FALSE(table.add_user(entry, ClientId{2}, /*trusted=*/true));
  table.remove_user(ClientId{1});
  CHECK(table.add_user(entry, ClientId{2}, /*trusted=*/true));
}

}  // namespace
}  // namespace lull::tests
