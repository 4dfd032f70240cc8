// A program whose memory moves, on the simulated GPU, with a coordinator played by the test: where
// its memory is, what it holds of the device, and that no byte of it is ever wrong.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "coordinator/channel/model_clock.h"
#include "tests/seed.h"
#include "tests/shim/coordinator.h"
#include "tests/shim/probe_process.h"
#include "tools/simgpu/device/inspect.h"

using namespace lull::test;
namespace channel = lull::channel;

namespace {

constexpr uint64_t kMiB = 1 << 20;

struct Machine {
  // Small, and a checkpoint takes milliseconds.
  explicit Machine(int devices = 1, const std::string& more = "") : folder(private_directory()) {
    std::ofstream(folder + "/profile.json")
        << R"({"name": "small", "memory_bytes": 536870912, "checkpoint_out_ns": 5000000,)"
        << R"("checkpoint_out_gb_per_s": 50, "checkpoint_back_ns": 5000000,)"
        << R"("checkpoint_back_gb_per_s": 50)" << more << "}";
    environment = {{"SIMGPU_DEVICE", folder + "/device"},
                   {"SIMGPU_PROFILE", folder + "/profile.json"},
                   {"SIMGPU_DEVICES", std::to_string(devices)},
                   {"LULL_SOCKET", folder + "/s"},
                   {"LULL_SUSPENDABLE", "1"}};
  }
  ~Machine() { std::filesystem::remove_all(folder); }

  // What this process holds on the device.
  uint64_t held(pid_t pid, size_t device = 0) const {
    const auto usage = simgpu::read_usage(folder + "/device");
    REQUIRE(usage);
    for (const auto& process : usage->devices.at(device).processes) {
      if (process.pid == pid && process.alive) return process.memory_bytes;
    }
    return 0;
  }

  std::string folder;
  Environment environment;
};

// A program that has memory and a coordinator.
struct Stage {
  explicit Stage(int devices = 1, const Environment& more = {}, const std::string& profile = "")
      : machine(devices, profile) {
    for (const auto& [key, value] : more) machine.environment[key] = value;
    coordinator.emplace(machine.folder + "/s");
    client = coordinator->attached([this] {
      program.emplace(machine.environment);
      REQUIRE(program->ask("init") == "0");
    });
  }
  // Of many sizes, 24 MiB in all; with slabs and rounding some more.
  void allocate() {
    for (const char* what : {"alloc 64 20", "alloc 40000 10", "alloc 1000000 5", "alloc 3000000 3",
                             "alloc 10485760 1"}) {
      REQUIRE(program->ask(what) == "0");
    }
  }
  uint64_t held() { return machine.held(program->pid()); }
  channel::ResidenceReport go(channel::lull_target target, uint32_t drain_ms = 60'000,
                              const std::vector<channel::lull_device_pair>& pairs = {}) {
    return ended(client, order(client, target, drain_ms, pairs));
  }
  // Until it is in that state.
  void in(channel::lull_residence_state state) {
    REQUIRE(eventually([&] { return residence(client).state == state; }));
  }
  // Somebody without lull holds all of the device that is free, but 16 MiB; as its allocation 1.
  std::unique_ptr<ProbeProcess> fill_device() {
    Environment alone = machine.environment;
    alone["LD_PRELOAD"] = "";
    auto hog = std::make_unique<ProbeProcess>(alone);
    REQUIRE(hog->ask("init") == "0");
    const uint64_t free_bytes = std::stoull(hog->ask("free_memory"));
    REQUIRE(hog->ask("alloc " + std::to_string(free_bytes - 16 * kMiB) + " 1") == "0");
    return hog;
  }
  // The coordinator is away for good.
  void kill_coordinator() { coordinator.reset(); }

  Machine machine;
  std::optional<Coordinator> coordinator;
  std::optional<ProbeProcess> program;
  Client client;
};

}  // namespace

TEST_CASE("memory goes out and comes back, and calls that use it wait meanwhile") {
  Stage stage;
  stage.allocate();
  const uint64_t before = stage.held();
  REQUIRE(before >= 24 * kMiB);
  for (int round = 0; round < 5; ++round) {
    const auto out = stage.go(channel::kTargetOut);
    REQUIRE(out.result == channel::kMoveDone);
    CHECK(out.state == channel::kOut);
    CHECK(out.reason.empty());
    CHECK(out.moved_bytes == out.moving_bytes);
    CHECK(out.moved_bytes >= 24 * kMiB);
    CHECK(stage.held() < before - 24 * kMiB);
    stage.program->ask("hold");
    stage.program->tell("check");
    const auto back = stage.go(channel::kTargetResident);
    CHECK(back.result == channel::kMoveDone);
    CHECK(back.state == channel::kResident);
    CHECK(stage.program->answer() == "0");
    CHECK(stage.program->ask("join") == "done");
    CHECK(stage.held() == before);
    CHECK(stage.program->ask("change") == "0");
    CHECK(stage.program->ask("check") == "0");
  }
  CHECK(stage.program->finish() == 0);
}

TEST_CASE("a context that is given up holds nothing, and comes back as it was") {
  Stage stage;
  stage.allocate();
  const uint64_t before = stage.held();
  for (int round = 0; round < 3; ++round) {
    const auto given = stage.go(channel::kTargetGivenUp);
    REQUIRE(given.result == channel::kMoveDone);
    CHECK(given.state == channel::kGivenUp);
    CHECK(stage.held() == 0);
    stage.program->tell("check");
    const auto back = stage.go(channel::kTargetResident);
    REQUIRE(back.result == channel::kMoveDone);
    CHECK(stage.program->answer() == "0");
    CHECK(stage.held() == before);
  }
  // By way of out, both ways.
  CHECK(stage.go(channel::kTargetOut).state == channel::kOut);
  CHECK(stage.go(channel::kTargetGivenUp).state == channel::kGivenUp);
  CHECK(stage.go(channel::kTargetOut).state == channel::kOut);
  CHECK(stage.go(channel::kTargetResident).state == channel::kResident);
  CHECK(stage.program->ask("check") == "0");
  CHECK(stage.program->ask("change") == "0");
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("a program at work is moved at any moment and never sees a wrong byte") {
  Stage stage;
  stage.allocate();
  const uint32_t seed = static_cast<uint32_t>(lull::tests::test_seed());
  std::mt19937 random(seed);
  INFO("seed " << seed);
  REQUIRE(stage.program->ask("work") == "0");
  for (int round = 0; round < 40; ++round) {
    const bool deep = random() % 4 == 0;
    const auto out = stage.go(deep ? channel::kTargetGivenUp : channel::kTargetOut);
    REQUIRE(out.result == channel::kMoveDone);
    const std::string rounds = stage.program->ask("rounds");
    CHECK(stage.program->ask("rounds") == rounds);
    REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
    REQUIRE(eventually([&] { return stage.program->ask("rounds") != rounds; }));
  }
  CHECK(stage.program->ask("endwork") == "0");
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("the newest order wins, whatever the one before is at") {
  Stage stage(1, {{"SIMGPU_SLOW_MOTION", "20"}});
  stage.allocate();
  const uint32_t seed = static_cast<uint32_t>(lull::tests::test_seed());
  std::mt19937 random(seed);
  INFO("seed " << seed);
  for (int round = 0; round < 60; ++round) {
    const int count = 1 + static_cast<int>(random() % 3);
    uint32_t last = 0;
    uint32_t target = 0;
    for (int n = 0; n < count; ++n) {
      target = random() % 3;
      last = order(stage.client, static_cast<channel::lull_target>(target));
      for (uint32_t spin = random() % 3000; spin > 0; --spin) residence(stage.client);
    }
    const auto report = ended(stage.client, last);
    REQUIRE(report.result == channel::kMoveDone);
    const uint32_t expected[] = {channel::kResident, channel::kOut, channel::kGivenUp};
    CHECK(report.state == expected[target]);
  }
  REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("work that does not end refuses the move, and the program goes on") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.program->ask("block") == "0");
  const auto busy = stage.go(channel::kTargetOut, /*drain_ms=*/50);
  CHECK(busy.result == channel::kMoveBusy);
  CHECK(busy.state == channel::kResident);
  CHECK(busy.reason == "submitted work did not complete in time");
  CHECK(stage.program->ask("check") == "0");
  CHECK(stage.program->ask("unblock") == "0");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
}

TEST_CASE("a stream capture that is open refuses the move, and is left alone") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.program->ask("capture") == "0");
  const auto busy = stage.go(channel::kTargetOut, /*drain_ms=*/50);
  CHECK(busy.result == channel::kMoveBusy);
  CHECK(busy.reason == "a stream capture is open");
  CHECK(stage.program->ask("endcapture") == "0");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  stage.program->tell("capture");
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->answer() == "0");
  CHECK(stage.program->ask("endcapture") == "0");
}

TEST_CASE("a capture is over however it ends, and then the program can be moved") {
  Stage stage;
  stage.allocate();
  const auto is_busy = [&] {
    const auto report = stage.go(channel::kTargetOut, /*drain_ms=*/50);
    return report.result == channel::kMoveBusy && report.reason == "a stream capture is open";
  };
  const auto moves = [&] {
    return stage.go(channel::kTargetOut).result == channel::kMoveDone &&
           stage.go(channel::kTargetResident).result == channel::kMoveDone &&
           stage.program->ask("check") == "0";
  };
  SECTION("its stream is destroyed") {
    REQUIRE(stage.program->ask("capture") == "0");
    CHECK(is_busy());
    REQUIRE(stage.program->ask("destroycapture") == "0");
    CHECK(moves());
    REQUIRE(stage.program->ask("capture") == "0");
    CHECK(is_busy());
    REQUIRE(stage.program->ask("endcapture") == "0");
    CHECK(moves());
  }
  SECTION("it is invalidated, and its end fails") {
    REQUIRE(stage.program->ask("capture") == "0");
    CHECK(stage.program->ask("spoilcapture") == "900");
    CHECK(is_busy());
    CHECK(stage.program->ask("endcapture") == "901");
    CHECK(moves());
  }
  SECTION("an end that does not belong to it ends nothing") {
    REQUIRE(stage.program->ask("capture") == "0");
    CHECK(stage.program->ask("wrongend") != "0");
    CHECK(is_busy());
    CHECK(stage.program->ask("endcapture") == "0");
    CHECK(moves());
  }
  SECTION("a stream that only joined it is destroyed: it goes on") {
    REQUIRE(stage.program->ask("capture") == "0");
    REQUIRE(stage.program->ask("joincapture") == "0");
    CHECK(is_busy());
    CHECK(stage.program->ask("endcapture") != "0");
    CHECK(moves());
  }
  SECTION("another thread began it") {
    REQUIRE(stage.program->ask("threadcapture") == "0");
    CHECK(is_busy());
    CHECK(stage.program->ask("endcapture") == "0");
    CHECK(moves());
    REQUIRE(stage.program->ask("threadcapture") == "0");
    REQUIRE(stage.program->ask("destroycapture") == "0");
    CHECK(moves());
  }
  SECTION("its context is destroyed") {
    REQUIRE(stage.program->ask("contextcapture") == "0");
    CHECK(moves());
  }
  SECTION("its thread has ended, and its default stream with it") {
    REQUIRE(stage.program->ask("leftcapture 1") == "0");
    CHECK(moves());
  }
  SECTION("only its thread could have ended it: it is over with its stream") {
    REQUIRE(stage.program->ask("leftcapture 0") == "0");
    CHECK(is_busy());
    CHECK(stage.program->ask("endcapture") == "908");
    CHECK(is_busy());
    CHECK(stage.program->ask("check") == "0");
    REQUIRE(stage.program->ask("destroycapture") == "0");
    CHECK(moves());
  }
}

TEST_CASE("a context that the driver does not destroy keeps its work") {
  Stage stage;
  stage.allocate();
  CHECK(stage.program->ask("destroyprimary") == "201");
  REQUIRE(stage.program->ask("block") == "0");
  const auto busy = stage.go(channel::kTargetOut, /*drain_ms=*/50);
  CHECK(busy.result == channel::kMoveBusy);
  CHECK(busy.reason == "submitted work did not complete in time");
  CHECK(stage.program->ask("unblock") == "0");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE(
    "a context that is to go while its memory is away, or on its way, goes when that is back") {
  for (const std::string end : {"reset", "endcontext"}) {
    for (const bool on_its_way : {false, true}) {
      INFO(end << (on_its_way ? " on the way" : " while out"));
      Stage stage;
      if (end == "endcontext") REQUIRE(stage.program->ask("context") == "0");
      stage.allocate();
      if (on_its_way) channel::publish_pace(stage.client.region, 50'000'000, 1 << 20);
      const uint32_t number = order(stage.client, channel::kTargetOut);
      if (on_its_way) {
        stage.in(channel::kLeaving);
      } else {
        REQUIRE(ended(stage.client, number).result == channel::kMoveDone);
      }
      stage.program->tell(end);
      if (on_its_way) REQUIRE(ended(stage.client, number).result == channel::kMoveDone);
      CHECK(residence(stage.client).state == channel::kOut);
      channel::publish_pace(stage.client.region, 0, 0);
      REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
      CHECK(stage.program->answer() == "0");
      CHECK(stage.held() <= 32 * kMiB);  // one slab is kept
      stage.allocate();
      CHECK(stage.go(channel::kTargetGivenUp).result == channel::kMoveDone);
      CHECK(stage.held() == 0);
      CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
      CHECK(stage.program->ask("check") == "0");
    }
  }
}

TEST_CASE("a reference to a context is no context: its end takes nothing along") {
  Stage stage;
  REQUIRE(stage.program->ask("context") == "0");
  stage.allocate();
  const uint64_t before = stage.held();
  CHECK(stage.program->ask("attach") == "0");
  CHECK(stage.held() == before);
  CHECK(stage.program->ask("check") == "0");
  REQUIRE(stage.program->ask("block") == "0");
  CHECK(stage.go(channel::kTargetOut, /*drain_ms=*/50).result == channel::kMoveBusy);
  CHECK(stage.program->ask("unblock") == "0");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("memory that cannot be mapped to bring its contents back stays out until it can") {
  Stage stage;
  constexpr uint64_t kBytes = 256 * kMiB;
  REQUIRE(stage.program->ask("unmapped " + std::to_string(kBytes)) == "0");
  stage.in(channel::kResident);
  REQUIRE(eventually([&] { return residence(stage.client).swappable_bytes[0] >= kBytes; }));
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.held() < kBytes);
  // No room for so much more in the address space.
  std::ifstream statm("/proc/" + std::to_string(stage.program->pid()) + "/statm");
  uint64_t pages = 0;
  REQUIRE(statm >> pages);
  rlimit before{};
  rlimit tight{};
  REQUIRE(prlimit(stage.program->pid(), RLIMIT_AS, nullptr, &before) == 0);
  tight = before;
  tight.rlim_cur = pages * 4096 + kBytes / 2;
  REQUIRE(prlimit(stage.program->pid(), RLIMIT_AS, &tight, nullptr) == 0);
  const auto refused = stage.go(channel::kTargetResident);
  CHECK(refused.result == channel::kMoveNoDeviceMemory);
  CHECK(refused.state == channel::kOut);
  CHECK(refused.reason.find("would not map") != std::string::npos);
  CHECK(stage.held() < kBytes);
  REQUIRE(prlimit(stage.program->pid(), RLIMIT_AS, &before, nullptr) == 0);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("checkunmapped") == "0");
}

namespace {

// Of the program's threads of that name: the signals that they block.
std::vector<uint64_t> blocked_signals(pid_t pid, const std::string& name) {
  std::vector<uint64_t> blocked;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(task.path() / "status");
    std::string is;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:\t")) is = line.substr(6);
      if (line.starts_with("SigBlk:\t") && is == name)
        blocked.push_back(std::stoull(line.substr(8), nullptr, 16));
    }
  }
  return blocked;
}

}  // namespace

TEST_CASE("the shim's threads block all signals, and are there only where memory moves") {
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  // What nobody can block, and two that glibc keeps to itself.
  const uint64_t all = ~(bit(SIGKILL) | bit(SIGSTOP) | bit(32) | bit(33));
  {
    Stage stage;
    CHECK(blocked_signals(stage.program->pid(), "lull").empty());  // nothing is allocated yet
    stage.allocate();
    CHECK(blocked_signals(stage.program->pid(), "lull") == std::vector<uint64_t>{all});
    // With the one that waits for contexts.
    REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
    REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
    CHECK(blocked_signals(stage.program->pid(), "lull") == std::vector<uint64_t>{all, all});
  }
  Stage still(1, {{"LULL_SUSPENDABLE", "0"}});
  still.allocate();
  CHECK(still.program->ask("check") == "0");
  CHECK(blocked_signals(still.program->pid(), "lull").empty());
}

TEST_CASE("a program that ends is not kept while its memory moves, unless it needs it") {
  for (const auto target : {channel::kTargetOut, channel::kTargetResident}) {
    for (const bool needs : {false, true}) {
      INFO("on the way to " << target << (needs ? ", with an exit handler" : ""));
      Stage stage;
      // Before the first allocation: it runs after the shim's own.
      if (needs) REQUIRE(stage.program->ask("atexit") == "0");
      stage.allocate();
      if (target == channel::kTargetResident) {
        REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
      }
      channel::publish_pace(stage.client.region, /*bytes_per_s=*/10'000, /*chunk_bytes=*/65536);
      order(stage.client, target);
      stage.in(target == channel::kTargetOut ? channel::kLeaving : channel::kReturning);
      REQUIRE(stage.program->ask("exit 7") == "bye");
      if (needs) channel::publish_pace(stage.client.region, 0, 0);
      CHECK(stage.program->finish() == 7);
      const bool checked = stage.program->complaints().find("at exit 0\n") != std::string::npos;
      CHECK(checked == needs);
    }
  }
}

TEST_CASE("a program that ends is not kept while its work is waited for") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.program->ask("block") == "0");
  order(stage.client, channel::kTargetOut, /*drain_ms=*/3'600'000);
  stage.in(channel::kDraining);
  REQUIRE(stage.program->ask("exit 6") == "bye");
  CHECK(stage.program->finish() == 6);
}

TEST_CASE(
    "work on a thread's own default stream that does not end refuses the move, under MPS too") {
  // Nothing but a wait for the whole context knows of it, and the driver has no checkpoint there.
  Stage stage(1, {{"SIMGPU_NARROW_LEGACY_QUERY", "1"}, {"SIMGPU_SHARING", "mps"}});
  stage.allocate();
  REQUIRE(stage.program->ask("blockown") == "0");
  for (int round = 0; round < 2; ++round) {
    const auto busy = stage.go(channel::kTargetOut, /*drain_ms=*/50);
    CHECK(busy.result == channel::kMoveBusy);
    CHECK(busy.state == channel::kResident);
    CHECK(busy.reason == "submitted work did not complete in time");
  }
  CHECK(stage.program->ask("unblockown") == "0");
  CHECK(stage.program->ask("check") == "0");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("work on a thread's own default stream is waited for") {
  Stage stage;
  stage.allocate();
  CHECK(stage.program->ask("perthread") == "0");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("too little host memory refuses the move whole and says what bounds it") {
  Stage stage;
  stage.allocate();
  channel::publish_host_allowance(stage.client.region, 1 * kMiB);
  // What was prepared before counts: none of it goes away. So a program that grows.
  REQUIRE(stage.program->ask("alloc 33554432 2") == "0");
  const uint64_t before = stage.held();
  const auto refused = stage.go(channel::kTargetOut);
  CHECK(refused.result == channel::kMoveNoHostMemory);
  CHECK(refused.state == channel::kResident);
  CHECK(refused.reason.find("the operator's host_memory leaves this job 1 MiB") !=
        std::string::npos);
  CHECK(stage.held() == before);
  CHECK(stage.program->ask("check") == "0");
  channel::publish_host_allowance(stage.client.region, UINT64_MAX);
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("the host side is made ready ahead of any order") {
  Stage stage;
  stage.allocate();
  REQUIRE(eventually([&] {
    const auto report = residence(stage.client);
    return report.host_bytes >= 24 * kMiB && report.host_bytes >= report.swappable_bytes[0];
  }));
  CHECK((residence(stage.client).abilities & channel::kCanSwap) != 0);
  CHECK((residence(stage.client).abilities & channel::kCanGiveUp) != 0);
  CHECK((residence(stage.client).abilities & channel::kCanMigrate) == 0);
}

TEST_CASE("what the driver refuses to give up comes back, with the reason") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.program->ask("managed 65536") == "0");
  const uint64_t before = stage.held();
  const auto refused = stage.go(channel::kTargetGivenUp);
  CHECK(refused.result == channel::kMoveRefused);
  CHECK(refused.state == channel::kResident);
  CHECK_FALSE(refused.reason.empty());
  CHECK(stage.held() == before);
  CHECK(stage.program->ask("check") == "0");
  // Where it was out before, it stays out.
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  const auto again = stage.go(channel::kTargetGivenUp);
  CHECK(again.result == channel::kMoveRefused);
  CHECK(again.state == channel::kOut);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("a way back that finds no device memory stays out, and a later one succeeds") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  const auto hog = stage.fill_device();
  const auto refused = stage.go(channel::kTargetResident);
  CHECK(refused.result == channel::kMoveNoDeviceMemory);
  CHECK(refused.state == channel::kOut);
  CHECK(stage.held() < 16 * kMiB);
  REQUIRE(hog->ask("free 1") == "0");
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("a thread that is cancelled in a held call, or in the driver, leaves the gate right") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  stage.program->ask("hold");
  CHECK(stage.program->ask("cancel") == "0");
  REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("join") == "cancelled");
  CHECK(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("a fork child of a suspended program is on its own") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  CHECK(stage.program->ask("fork") == "0");
  REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("fork") == "0");
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("a suspended program ends at once by a signal, and by its own end without a call") {
  for (const int signal : {SIGTERM, SIGKILL, 0}) {
    Stage stage;
    stage.allocate();
    REQUIRE(stage.go(channel::kTargetGivenUp).result == channel::kMoveDone);
    stage.program->ask("hold");
    if (signal != 0) {
      kill(stage.program->pid(), signal);
      CHECK(stage.program->finish() == 128 + signal);
    } else {
      CHECK(stage.program->ask("exit 3") == "bye");
      CHECK(stage.program->finish() == 3);
    }
  }
}

TEST_CASE("a program that is out ends in its own ways, at once") {
  const struct {
    const char* command;
    int status;
  } ends[] = {{"_exit 4", 4}, {"exec", 9}};
  for (const auto target : {channel::kTargetOut, channel::kTargetGivenUp}) {
    for (const auto& end : ends) {
      INFO(end.command << " at level " << target);
      Stage stage;
      stage.allocate();
      REQUIRE(stage.go(target).result == channel::kMoveDone);
      stage.program->tell(end.command);
      CHECK(stage.program->finish() == end.status);
      CHECK(residence(stage.client).state != channel::kResident);
    }
  }
}

TEST_CASE("an exit handler that uses memory which is out waits for it, with and without lulld") {
  for (const bool with_coordinator : {true, false}) {
    Stage stage;
    stage.allocate();
    REQUIRE(stage.program->ask("atexit") == "0");
    REQUIRE(stage.go(channel::kTargetGivenUp).result == channel::kMoveDone);
    REQUIRE(stage.program->ask("exit 5") == "bye");
    if (with_coordinator) {
      // It waits: nobody has said that it may come back.
      const uint64_t until = channel::monotonic_ns() + 200'000'000;
      REQUIRE(eventually([&] { return channel::monotonic_ns() > until; }));
      CHECK(residence(stage.client).state == channel::kGivenUp);
      CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
    } else {
      stage.kill_coordinator();
    }
    CHECK(stage.program->finish() == 5);
    CHECK(stage.program->complaints().find("at exit 0\n") != std::string::npos);
  }
}

TEST_CASE(
    "who may be moved is the user's wish or the operator's rule, decided at the first attach") {
  Machine machine;
  machine.environment.erase("LULL_SUSPENDABLE");
  {
    Coordinator coordinator(machine.folder + "/s");
    ProbeProcess program(machine.environment);
    REQUIRE(program.ask("init") == "0");
    REQUIRE(program.ask("alloc 1000000 3") == "0");
    const Client client = coordinator.client();
    CHECK(client.hello.moves == 0);
    CHECK(residence(client).abilities == 0);
    CHECK(residence(client).swappable_bytes[0] == 0);
  }
  {
    Coordinator coordinator(machine.folder + "/s");
    coordinator.moves = channel::kMovesSwap;
    ProbeProcess program(machine.environment);
    REQUIRE(program.ask("init") == "0");
    REQUIRE(program.ask("alloc 1000000 3") == "0");
    const Client client = coordinator.client();
    CHECK(ended(client, order(client, channel::kTargetOut)).result == channel::kMoveDone);
    CHECK(ended(client, order(client, channel::kTargetResident)).result == channel::kMoveDone);
    CHECK(program.ask("check") == "0");
  }
}

// ---- without a coordinator
// -----------------------------------------------------------------------

namespace {

enum class End { kKilled, kStopped };

// The coordinator goes while its client is in that state; the client's call goes on by itself, with
// the right contents, and a new coordinator can move it again.
void lose_coordinator_in(channel::lull_residence_state state, End end) {
  INFO("state " << state << (end == End::kKilled ? ", killed" : ", stopped"));
  // Slow enough to be met in the midst of a checkpoint and of copies.
  Stage stage(1, {{"SIMGPU_SLOW_MOTION", "20"}});
  stage.allocate();
  const auto pace = [&](uint64_t bytes_per_s) {
    channel::publish_pace(stage.client.region, bytes_per_s, 256 * 1024);
  };
  const uint64_t before = stage.held();
  const auto go = [&](channel::lull_target target) { order(stage.client, target); };
  switch (state) {
    case channel::kDraining:
      REQUIRE(stage.program->ask("block") == "0");
      go(channel::kTargetOut);
      break;
    case channel::kGivingUp:
    case channel::kGivenUp:
      go(channel::kTargetGivenUp);
      break;
    case channel::kRestoring:
      REQUIRE(stage.go(channel::kTargetGivenUp).result == channel::kMoveDone);
      go(channel::kTargetResident);
      break;
    case channel::kReturning:
      REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
      pace(1 * kMiB);
      go(channel::kTargetResident);
      break;
    case channel::kLeaving:
      pace(1 * kMiB);
      go(channel::kTargetOut);
      break;
    default:
      go(channel::kTargetOut);
  }
  stage.in(state);
  if (end == End::kKilled) {
    stage.kill_coordinator();
  } else {
    stage.coordinator->shows_life = false;
    pace(0);
  }
  CHECK(stage.program->ask("change") == "0");
  CHECK(stage.program->ask("check") == "0");
  CHECK(stage.held() == before);
  if (state == channel::kDraining) CHECK(stage.program->ask("unblock") == "0");
  if (end == End::kKilled) {
    stage.coordinator.emplace(stage.machine.folder + "/s");
    stage.client = stage.coordinator->connected();
  } else {
    stage.coordinator->shows_life = true;
  }
  REQUIRE(eventually([&] { return residence(stage.client).state == channel::kResident; }));
  CHECK(stage.go(channel::kTargetGivenUp).result == channel::kMoveDone);
  CHECK(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  CHECK(stage.program->ask("check") == "0");
}

}  // namespace

TEST_CASE("the coordinator is killed in every state") {
  for (const auto state : {channel::kDraining, channel::kLeaving, channel::kOut, channel::kGivingUp,
                           channel::kGivenUp, channel::kRestoring, channel::kReturning}) {
    lose_coordinator_in(state, End::kKilled);
  }
}

TEST_CASE("the coordinator is stopped in every state") {
  for (const auto state : {channel::kDraining, channel::kLeaving, channel::kOut, channel::kGivingUp,
                           channel::kGivenUp, channel::kRestoring, channel::kReturning}) {
    lose_coordinator_in(state, End::kStopped);
  }
}

TEST_CASE("without a coordinator one process at a time brings its memory back to a GPU") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  // As lulld makes it, and another process that is on its way back.
  std::string uuid;
  const std::string digits = stage.program->ask("uuid");
  for (size_t n = 0; n < digits.size(); ++n) {
    if (n == 8 || n == 12 || n == 16 || n == 20) uuid += '-';
    uuid += digits[n];
  }
  const std::string path = stage.machine.folder + "/return-GPU-" + uuid + ".lock";
  const int lock = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  REQUIRE(lock >= 0);
  REQUIRE(flock(lock, LOCK_EX) == 0);
  stage.program->tell("check");
  stage.kill_coordinator();
  const uint64_t until = channel::monotonic_ns() + 500'000'000;
  REQUIRE(eventually([&] { return channel::monotonic_ns() > until; }));
  CHECK(residence(stage.client).state == channel::kOut);
  close(lock);
  CHECK(stage.program->answer() == "0");
}

TEST_CASE("without a coordinator a way back waits for device memory, however long") {
  Stage stage;
  stage.allocate();
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  const auto hog = stage.fill_device();
  stage.program->tell("check");
  stage.kill_coordinator();
  const uint64_t until = channel::monotonic_ns() + 500'000'000;
  REQUIRE(eventually([&] { return channel::monotonic_ns() > until; }));
  CHECK(residence(stage.client).state == channel::kOut);
  CHECK(stage.held() < 16 * kMiB);
  // A coordinator that comes meanwhile finds it out, and may leave it to itself.
  Coordinator next(stage.machine.folder + "/s");
  const Client again = next.client();
  REQUIRE(hog->finish() == 0);
  CHECK(stage.program->answer() == "0");
  REQUIRE(eventually([&] { return residence(again).state == channel::kResident; }));
}

TEST_CASE(
    "without a coordinator a context comes back once its GPU shows room for it and a tenth more") {
  constexpr uint64_t kDevice = 4096 * kMiB;
  // 1 GiB is what a context may need (service.cc).
  constexpr uint64_t kRoom = 1024 * kMiB + 1024 * kMiB / 10;
  Stage stage(1,
              {{"LD_LIBRARY_PATH", std::string(LULL_NVML_FOLDER) + ":" + LULL_PROBE_LIBRARIES},
               {"SIMULATED_NVML_BYTES", std::to_string(kDevice)}},
              R"(, "memory_bytes": 4294967296)");
  stage.allocate();
  REQUIRE(stage.go(channel::kTargetGivenUp).result == channel::kMoveDone);
  Environment alone = stage.machine.environment;
  alone["LD_PRELOAD"] = "";
  ProbeProcess hog(alone);
  REQUIRE(hog.ask("init") == "0");
  // The driver would have room for context and memory; the GPU does not show enough by 16 MiB.
  const uint64_t used = stage.machine.held(hog.pid());
  REQUIRE(hog.ask("reserve " + std::to_string(kDevice - used - kRoom + 16 * kMiB)) == "0");
  stage.program->tell("check");
  stage.kill_coordinator();
  const auto still_after = [&](uint64_t ns) {
    const uint64_t until = channel::monotonic_ns() + ns;
    REQUIRE(eventually([&] { return channel::monotonic_ns() > until; }));
    return residence(stage.client).state == channel::kGivenUp;
  };
  CHECK(still_after(500'000'000));
  // A little less: now it shows the tenth.
  REQUIRE(hog.ask("release") == "0");
  REQUIRE(hog.ask("reserve " + std::to_string(kDevice - used - kRoom - 16 * kMiB)) == "0");
  CHECK(stage.program->answer() == "0");
  CHECK(hog.finish() == 0);
}

// ---- several devices
// -----------------------------------------------------------------------------

TEST_CASE("memory on several devices goes out and comes back") {
  Machine machine(3);
  Coordinator coordinator(machine.folder + "/s");
  ProbeProcess program(machine.environment);
  REQUIRE(program.ask("init 3") == "0");
  for (int device = 0; device < 3; ++device) {
    REQUIRE(program.ask("device " + std::to_string(device)) == "0");
    REQUIRE(program.ask("alloc 5000000 4") == "0");
    REQUIRE(program.ask("alloc 500 10") == "0");
  }
  const Client client = coordinator.client();
  for (const auto target : {channel::kTargetOut, channel::kTargetGivenUp}) {
    REQUIRE(ended(client, order(client, target)).result == channel::kMoveDone);
    for (size_t device = 0; device < 3; ++device)
      CHECK(machine.held(program.pid(), device) < 4 * kMiB);
    REQUIRE(ended(client, order(client, channel::kTargetResident)).result == channel::kMoveDone);
    CHECK(program.ask("check") == "0");
  }
}

namespace {

std::array<uint8_t, 16> bytes_of(const std::string& digits) {
  std::array<uint8_t, 16> uuid{};
  REQUIRE(digits.size() == 32);
  for (size_t n = 0; n < 16; ++n) {
    uuid[n] = static_cast<uint8_t>(std::stoul(digits.substr(2 * n, 2), nullptr, 16));
  }
  return uuid;
}

}  // namespace

TEST_CASE("a program moves among four GPUs, sees one, and says where it is") {
  constexpr size_t kDevices = 4;
  Machine machine(kDevices);
  // Who is where, as a program sees it that hides nothing.
  std::vector<std::string> uuids;
  std::vector<std::string> buses;
  {
    Environment alone = machine.environment;
    alone["LD_PRELOAD"] = "";
    ProbeProcess all(alone);
    REQUIRE(all.ask("init") == "0");
    for (size_t n = 0; n < kDevices; ++n) {
      uuids.push_back(all.ask("uuid " + std::to_string(n)));
      buses.push_back(all.ask("bus " + std::to_string(n)));
      buses.back().resize(buses.back().rfind(' '));
    }
  }
  machine.environment["LULL_MIGRATABLE"] = "1";
  machine.environment["LULL_VISIBLE_DEVICES"] = "1";
  Coordinator coordinator(machine.folder + "/s");
  ProbeProcess program(machine.environment);
  REQUIRE(program.ask("init") == "0");
  REQUIRE(program.ask("count") == "1");
  CHECK(program.ask("get 0") == "0");
  CHECK(program.ask("get 1") == "101");
  CHECK(program.ask("peer 1") == "101");
  CHECK(program.ask("uuid 1") == "none");
  CHECK(program.ask("bus 0") == buses[0] + " 0");
  CHECK(program.ask("bybus " + buses[1].substr(0, buses[1].find(' '))) == "101");
  REQUIRE(program.ask("alloc 5000000 4") == "0");
  REQUIRE(program.ask("alloc 500 20") == "0");
  const Client client = coordinator.client();
  CHECK(client.hello.moves == (channel::kMovesSwap | channel::kMovesMigrate));
  REQUIRE(eventually([&] { return (residence(client).abilities & channel::kCanMigrate) != 0; }));
  const uint32_t seed = static_cast<uint32_t>(lull::tests::test_seed());
  std::mt19937 random(seed);
  INFO("seed " << seed);
  size_t now = 0;
  for (int round = 0; round < 20; ++round) {
    const size_t next = (now + 1 + random() % (kDevices - 1)) % kDevices;
    REQUIRE(ended(client, order(client, channel::kTargetGivenUp)).result == channel::kMoveDone);
    // Change places: everybody else stays what it is.
    std::vector<channel::lull_device_pair> pairs;
    for (size_t n = 0; n < kDevices; ++n) {
      const size_t to = n == now ? next : n == next ? now : n;
      channel::lull_device_pair pair;
      std::memcpy(pair.from, bytes_of(uuids[n]).data(), 16);
      std::memcpy(pair.to, bytes_of(uuids[to]).data(), 16);
      pairs.push_back(pair);
    }
    const auto back = ended(client, order(client, channel::kTargetResident, 60'000, pairs));
    REQUIRE(back.result == channel::kMoveDone);
    now = next;
    CHECK(program.ask("check") == "0");
    CHECK(program.ask("change") == "0");
    CHECK(program.ask("check") == "0");
    CHECK(program.ask("uuid 0") == uuids[now]);
    CHECK(program.ask("bus 0") == buses[now] + " 0");
    CHECK(program.ask("count") == "1");
    for (size_t n = 0; n < kDevices; ++n) {
      CHECK((machine.held(program.pid(), n) >= 20'000'000) == (n == now));
    }
    const auto device = channel::read_device(client.region, 0);
    REQUIRE(device);
    CHECK(device->uuid == bytes_of(uuids[now]));
  }
  // Pairs that do not name every GPU: refused, and nothing is lost.
  REQUIRE(ended(client, order(client, channel::kTargetGivenUp)).result == channel::kMoveDone);
  channel::lull_device_pair pair;
  std::memcpy(pair.from, bytes_of(uuids[0]).data(), 16);
  std::memcpy(pair.to, bytes_of(uuids[1]).data(), 16);
  const auto refused = ended(client, order(client, channel::kTargetResident, 60'000, {pair}));
  CHECK(refused.result == channel::kMoveRefused);
  CHECK(refused.state == channel::kGivenUp);
  CHECK(ended(client, order(client, channel::kTargetResident)).result == channel::kMoveDone);
  CHECK(program.ask("check") == "0");
}

TEST_CASE("a task that takes turns waits for its turn's memory, and can be moved meanwhile") {
  Stage stage(1, {{"LULL_OVERSUBSCRIBE", "1"}});
  stage.allocate();
  CHECK(stage.client.hello.moves == (channel::kMovesSwap | channel::kMovesOversubscribe));
  const uint64_t used = stage.client.region.client()->device[0].used_bytes;
  channel::publish_allowance(stage.client.region, 0, used);
  stage.program->tell("alloc 1048576 1");
  REQUIRE(eventually([&] {
    return channel::atomic64(stage.client.region.client()->device[0].wanted_bytes).load() >=
           used + kMiB;
  }));
  REQUIRE(stage.go(channel::kTargetOut).result == channel::kMoveDone);
  REQUIRE(stage.go(channel::kTargetResident).result == channel::kMoveDone);
  channel::publish_allowance(stage.client.region, 0, used + 4 * kMiB);
  wake(stage.client);
  CHECK(stage.program->answer() == "0");
  CHECK(stage.program->ask("check") == "0");
  // What the device can never hold is refused as ever.
  CHECK(stage.program->ask("alloc 1073741824 1") == "2");
  // And so is everything that waits when the daemon has gone.
  stage.program->tell("alloc 67108864 1");
  stage.kill_coordinator();
  const std::string answer = stage.program->answer();
  CHECK((answer == "2" || answer == "0"));
}

TEST_CASE("what one thread waits for stays asked for while another allocates and frees") {
  Stage stage(1, {{"LULL_OVERSUBSCRIBE", "1"}});
  stage.allocate();
  const auto word = [&](uint64_t channel::lull_device::* which) {
    return channel::atomic64(stage.client.region.client()->device[0].*which).load();
  };
  const uint64_t used = word(&channel::lull_device::used_bytes);
  channel::publish_allowance(stage.client.region, 0, used + kMiB);
  CHECK(stage.program->ask("churn 65536") == "0");
  REQUIRE(eventually([&] { return word(&channel::lull_device::used_bytes) > used; }));
  stage.program->tell("alloc 67108864 1");
  REQUIRE(eventually([&] { return word(&channel::lull_device::wanted_bytes) >= 64 * kMiB; }));
  int times_forgotten = 0;
  uint64_t last = 0;
  for (int changes = 0; changes < 100;) {
    const uint64_t now = word(&channel::lull_device::used_bytes);
    changes += now != last ? 1 : 0;
    last = now;
    times_forgotten += word(&channel::lull_device::wanted_bytes) < 64 * kMiB ? 1 : 0;
  }
  CHECK(times_forgotten == 0);
  channel::publish_allowance(stage.client.region, 0, used + 128 * kMiB);
  wake(stage.client);
  CHECK(stage.program->answer() == "0");
  CHECK(stage.program->ask("endchurn") == "0");
  CHECK(stage.program->ask("check") == "0");
}

TEST_CASE("a task that takes turns tries again where the driver had no memory") {
  Stage stage(1, {{"LULL_OVERSUBSCRIBE", "1"}});
  stage.allocate();
  const auto hog = stage.fill_device();
  stage.program->tell("alloc 67108864 1");
  REQUIRE(eventually([&] {
    return channel::atomic64(stage.client.region.client()->device[0].wanted_bytes).load() >= 64 * kMiB;
  }));
  REQUIRE(hog->finish() == 0);
  wake(stage.client);
  CHECK(stage.program->answer() == "0");
  CHECK(stage.program->ask("check") == "0");
}

// ---- how long it takes: `shim_moves_test [.moves]`, nothing passes or fails
// ----------------------------

TEST_CASE("out and back beside a pinned copy of the same bytes", "[.moves]") {
  constexpr double kOutGbPerS = 55.187;
  constexpr double kBackGbPerS = 54.914;
  struct {
    uint64_t each;
    int count;
    int slower;
  } const cases[] = {
      {64 * kMiB, 1, 1000}, {2 * kMiB, 32, 1000}, {256 * kMiB, 4, 1000}, {16 * kMiB, 64, 1000}};
  for (const auto& it : cases) {
    Machine machine;
    machine.environment.erase("SIMGPU_PROFILE");
    machine.environment["SIMGPU_SLOW_MOTION"] = std::to_string(it.slower);
    Coordinator coordinator(machine.folder + "/s");
    coordinator.slow_motion = it.slower;
    ProbeProcess program(machine.environment);
    REQUIRE(program.ask("init") == "0");
    REQUIRE(program.ask("alloc " + std::to_string(it.each) + " " + std::to_string(it.count)) ==
            "0");
    const Client client = coordinator.client();
    REQUIRE(eventually([&] {
      const auto report = residence(client);
      return report.swappable_bytes[0] > 0 && report.host_bytes >= report.swappable_bytes[0];
    }));
    for (int round = 0; round < 2; ++round) {
      const auto out = ended(client, order(client, channel::kTargetOut));
      REQUIRE(out.result == channel::kMoveDone);
      const auto back = ended(client, order(client, channel::kTargetResident));
      REQUIRE(back.result == channel::kMoveDone);
      const double bytes = static_cast<double>(out.moved_bytes);
      const double out_ns = static_cast<double>(out.move_ns) / it.slower;
      const double back_ns = static_cast<double>(back.move_ns) / it.slower;
      printf(
          "simulated: %d x %4llu MiB: out %8.3f ms, %.3fx of a pinned copy; back %8.3f ms, %.3fx\n",
          it.count, static_cast<unsigned long long>(it.each / kMiB), out_ns / 1e6,
          out_ns / (bytes / kOutGbPerS), back_ns / 1e6, back_ns / (bytes / kBackGbPerS));
    }
  }
}
