// The shim in a real process, over a driver that notes its calls, with the test as coordinator.
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "coordinator/channel/identity.h"
#include "policies/vocabulary.h"
#include "tests/shim/coordinator.h"
#include "tests/shim/probe_process.h"

using namespace lull::test;
namespace channel = lull::channel;
using channel::GateState;

namespace {

struct Stage {
  std::string directory = private_directory();
  std::string socket = directory + "/s";
  Coordinator coordinator;
  ProbeProcess probe;
  Client client;

  explicit Stage(Environment environment = {}, uint32_t timing_period = 0)
      : coordinator(socket, timing_period), probe(with_socket(environment)) {
    client = coordinator.attached([&, again = false]() mutable {
      if (std::exchange(again, true)) {
        std::destroy_at(&probe);
        std::construct_at(&probe, with_socket(environment));
      }
      REQUIRE(probe.ask("init") == "0");
    });
    drain(client);
    probe.ask("calls");
  }
  Environment with_socket(Environment environment) const {
    environment["LULL_SOCKET"] = socket;
    return environment;
  }
  // Waits for a held launch and returns its record.
  channel::lull_record held() {
    channel::lull_record found{};
    REQUIRE(eventually([&] {
      for (const auto& record : drain(client)) {
        if (record.kind == channel::kRecordHeld) found = record;
      }
      return found.kind != 0;
    }));
    return found;
  }
};

}  // namespace

TEST_CASE("a launch is recorded, counted and named, and reaches the driver once") {
  Stage stage(Environment{{"LULL_PRIORITY", "high"}, {"LULL_NAME", "task"}, {"LULL_JOB", "job"}});
  CHECK(stage.client.hello.priority == 2);
  CHECK(std::string(stage.client.hello.name) == "task");
  CHECK(std::string(stage.client.hello.job) == "job");
  CHECK(std::string(stage.client.hello.program) == "shim_probe");
  const auto device = channel::read_device(stage.client.region, 0);
  REQUIRE(device);
  CHECK(device->name == "recording device");
  CHECK(device->uuid[3] == 9);

  CHECK(stage.probe.ask("launch vadd 16 3 1") == "0");
  CHECK(stage.probe.ask("calls") == "cuModuleGetFunction cuLaunchKernel cuLaunchKernel cuLaunchKernel .");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 3);
  CHECK(records[0].sequence == 1);
  CHECK(records[2].sequence == 3);
  CHECK(records[0].tsc == 0);  // the time is taken when it is asked for
  channel::publish_record_mode(stage.client.region, channel::kRecordTimed);
  CHECK(stage.probe.ask("launch vadd 16 2 1") == "0");
  const auto timed = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(timed.size() == 2);
  CHECK(timed[0].tsc > 0);
  CHECK(timed[0].tsc < timed[1].tsc);
  CHECK(records[0].stream < channel::kUntrackedStream);
  CHECK(kernel_name(stage.client, records[0].kernel) == "vadd");
  const auto& kernel = *stage.client.region.kernel(records[0].kernel);
  CHECK(kernel.grid[0] == 16);
  CHECK(kernel.block[0] == 32);
  CHECK(kernel.kernel_id == channel::kernel_id("vadd", kernel.image_hash, kernel.grid,
                                               kernel.block, kernel.shared_bytes));
  CHECK(totals(stage.client).launches == 5);
}

TEST_CASE("the same image, function and shape is the same kernel in another process") {
  uint64_t first = 0, again = 0, other = 0;
  for (uint64_t* id : {&first, &again, &other}) {
    Stage stage;
    stage.probe.ask(id == &other ? "launch k 9 1 1" : "launch k 8 1 1");
    const auto records = drain(stage.client, channel::kRecordLaunch);
    REQUIRE(records.size() == 1);
    *id = channel::kernel_id(stage.client.region, records[0].kernel);
  }
  CHECK(first == again);
  CHECK(first != other);
}

TEST_CASE("a refused launch is cancelled and not counted, and its error is the driver's") {
  Stage stage;
  stage.probe.ask("refuse");
  CHECK(stage.probe.ask("launch k 1 1 1") == "1");
  const auto records = drain(stage.client);
  REQUIRE(records.size() == 2);
  CHECK(records[1].kind == channel::kRecordCancel);
  CHECK(records[1].sequence == records[0].sequence);
  CHECK(totals(stage.client).launches == 0);
}

TEST_CASE("a closed gate holds a launch until it opens") {
  Stage stage;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  stage.probe.tell("launch k 1 1 1");
  const auto held = stage.held();
  const auto seen = channel::read_held(*stage.client.region.thread(0));
  CHECK(seen.ticket == held.ticket);
  CHECK(seen.kernel == held.kernel);
  set_gate(stage.client, GateState::kOpen, 2, 0);
  CHECK(stage.probe.answer() == "0");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 1);
  CHECK(records[0].ticket == held.ticket);
  CHECK(channel::held_ticket(*stage.client.region.thread(0)) == 0);
  CHECK(totals(stage.client).held_ns > 0);
}

TEST_CASE("a coordinator that shows no sign of life holds nobody until it does again") {
  Stage stage;
  stage.coordinator.shows_life = false;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  stage.probe.tell("launch k 1 200 1");
  const auto held = stage.held();
  CHECK(stage.probe.answer() == "0");
  CHECK(totals(stage.client).launches == 200);
  auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 200);
  CHECK(records[0].ticket == held.ticket);
  CHECK(records[199].ticket == 0);  // one of them has waited, not each
  CHECK(totals(stage.client).unheld == 200);
  stage.coordinator.shows_life = true;
  channel::show_life(stage.client.region);
  stage.probe.tell("launch k 1 1 1");
  CHECK(stage.held().ticket != held.ticket);
  set_gate(stage.client, GateState::kOpen, 2, 0);
  CHECK(stage.probe.answer() == "0");
}

TEST_CASE("a released ticket lets one held launch go and the next one is held again") {
  Stage stage;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  stage.probe.tell("launch k 1 2 1");
  const auto first = stage.held();
  channel::publish_release(stage.client.region, 0, first.ticket);
  wake(stage.client);
  const auto second = stage.held();
  CHECK(second.ticket != first.ticket);
  CHECK(totals(stage.client).launches == 1);
  channel::publish_release(stage.client.region, 0, second.ticket);
  wake(stage.client);
  CHECK(stage.probe.answer() == "0");
}

TEST_CASE("credit lets launches go as long as their predictions fit") {
  Stage stage;
  stage.probe.ask("launch k 1 1 1");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  channel::publish_prediction(stage.client.region, records.at(0).kernel, 1000);
  set_gate(stage.client, GateState::kCredit, 1, 3000);
  stage.probe.tell("launch k 1 4 1");
  stage.held();
  CHECK(totals(stage.client).launches == 4);  // the first, and three on credit
  set_gate(stage.client, GateState::kCredit, 1, 4000);
  CHECK(stage.probe.answer() == "0");
}

TEST_CASE("a launch that lulld has said nothing about waits until it has") {
  // It waits 50 ms at most: on a machine that takes longer to answer it is asked again.
  bool told_in_time = false;
  for (int attempt = 0; attempt < 100 && !told_in_time; ++attempt) {
    Stage stage;
    set_gate(stage.client, GateState::kCredit, 1, 80'000'000);
    stage.probe.tell("launch k 1 2 1");
    const auto held = stage.held();
    const bool waits = totals(stage.client).launches == 0;
    channel::publish_prediction(stage.client.region, held.kernel, 1000);
    channel::bump_wake_sequence(stage.client.region);
    wake(stage.client);
    CHECK(stage.probe.answer() == "0");
    const auto records = drain(stage.client, channel::kRecordLaunch);
    REQUIRE(records.size() == 2);
    CHECK(records[1].ticket == 0);
    told_in_time = waits && records[0].value1 == 1000;
  }
  CHECK(told_in_time);
}

TEST_CASE("a grant for one launch of any length lets an unknown one go, for all of it") {
  Stage stage;
  set_gate(stage.client, GateState::kCredit, 1, 3001);
  stage.probe.tell("launch k 1 2 1");
  stage.held();
  CHECK(totals(stage.client).launches == 1);  // the second has nothing left
  set_gate(stage.client, GateState::kOpen, 2, 0);
  CHECK(stage.probe.answer() == "0");
}

TEST_CASE("a launch that lulld says nothing about goes on a credit all the same, a little later") {
  Stage stage;
  set_gate(stage.client, GateState::kCredit, 1, 80'000);
  CHECK(stage.probe.ask("launch k 1 1 1") == "0");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 1);
  CHECK(records[0].ticket != 0);
  CHECK(records[0].value1 == 50'000);
  // It is not waited for again.
  set_gate(stage.client, GateState::kCredit, 2, 80'000'000);
  CHECK(stage.probe.ask("launch k 2 100 1") == "0");
  for (const auto& record : drain(stage.client, channel::kRecordLaunch)) CHECK(record.ticket == 0);
}

TEST_CASE("one function in about the same size is one kind of kernel, from any call site") {
  const uint32_t block[3] = {128, 1, 1};
  const auto id = [&](const char* name, uint32_t blocks) {
    const uint32_t grid[3] = {blocks, 1, 1};
    return lull::KernelId{channel::kernel_id(name, 7, grid, block, 0)};
  };
  const auto kind = [&](const char* name, uint32_t blocks) { return lull::kernel_kind(id(name, blocks)); };
  CHECK(id("f", 15) != id("f", 17));
  CHECK(kind("f", 15) == kind("f", 17));
  CHECK(kind("f", 20515) == kind("f", 20645));
  CHECK(kind("f", 16) != kind("f", 64));
  CHECK(kind("f", 16) != kind("g", 16));
  CHECK(kind("f", UINT32_MAX) == kind("f", UINT32_MAX / 2));  // beyond 2^31 all are one
  const lull::KernelId at{channel::kernel_id_at(id("f", 15).value, 99)};
  CHECK(at != id("f", 15));
  CHECK(lull::kernel_kind(at) == kind("f", 15));
}

TEST_CASE("the end of the coordinator lets held launches go, and a new one gets the client back") {
  Stage stage;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  stage.probe.tell("launch k 1 1 1");
  stage.held();
  stage.coordinator.die();
  CHECK(stage.probe.answer() == "0");
  CHECK(stage.probe.ask("launch k 1 100 1") == "0");

  Coordinator next(stage.socket);
  REQUIRE(eventually([&] {
    stage.probe.ask("launch k 1 64 1");
    return next.clients() == 1;
  }));
  stage.probe.ask("launch k 1 5 1");
  const Client back = next.client();
  const auto records = drain(back, channel::kRecordLaunch);
  REQUIRE(!records.empty());
  CHECK(kernel_name(back, records[0].kernel) == "k");
  CHECK(channel::read_device(back.region, 0));
}

TEST_CASE("work in a capture is neither held nor counted") {
  Stage stage;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  CHECK(stage.probe.ask("begin") == "0");
  CHECK(stage.probe.ask("launch k 1 4 1") == "0");
  CHECK(stage.probe.ask("end") == "0");
  CHECK(totals(stage.client).launches == 0);
  stage.probe.tell("launch k 1 1 1");  // after the capture it is held again
  stage.held();
  set_gate(stage.client, GateState::kOpen, 2, 0);
  CHECK(stage.probe.answer() == "0");
}

TEST_CASE("two modules with one kernel name stay apart, a reloaded image gets its old id") {
  Stage stage;
  std::vector<uint64_t> ids;
  for (const char* step : {"load image-a", "load image-b", "unload", "load image-a"}) {
    REQUIRE(stage.probe.ask(step) == "0");
    if (std::string(step) == "unload") continue;
    REQUIRE(stage.probe.ask("launch same 1 1 1") == "0");
    const auto records = drain(stage.client, channel::kRecordLaunch);
    REQUIRE(records.size() == 1);
    CHECK(kernel_name(stage.client, records[0].kernel) == "same");
    ids.push_back(channel::kernel_id(stage.client.region, records[0].kernel));
  }
  CHECK(ids[0] != ids[1]);
  CHECK(ids[0] == ids[2]);
}

TEST_CASE("a graph is known by its nodes: the same ones again are the same, others are not") {
  Stage stage;
  stage.probe.ask("launch inner 4 1 1");
  drain(stage.client);
  std::vector<uint64_t> ids;
  for (const char* grid : {"graphgrid 4", "graphgrid 8", "graphgrid 4"}) {
    stage.probe.ask(grid);
    REQUIRE(stage.probe.ask("graph") == "0");
    const auto records = drain(stage.client, channel::kRecordLaunch);
    REQUIRE(records.size() == 1);
    ids.push_back(channel::kernel_id(stage.client.region, records[0].kernel));
    CHECK(stage.client.region.kernel(records[0].kernel)->graph_kernels == 2);
  }
  CHECK(ids[0] != ids[1]);
  CHECK(ids[0] == ids[2]);
}

TEST_CASE("the wish for timing reaches the coordinator") {
  CHECK(Stage().client.hello.timing == channel::kTimingUnset);
  CHECK(Stage(Environment{{"LULL_TIMING", "off"}}).client.hello.timing == channel::kTimingOff);
  CHECK(Stage(Environment{{"LULL_TIMING", "sampled"}}).client.hello.timing ==
        channel::kTimingSampled);
  CHECK(Stage(Environment{{"LULL_TIMING", "full"}}).client.hello.timing == channel::kTimingFull);
  CHECK(Stage(Environment{{"LULL_TIMING", "often"}}).client.hello.timing == channel::kTimingUnset);
}

TEST_CASE("what the task may lose reaches the coordinator, and what is no bound is none") {
  const auto said = [](const char* text) {
    const channel::lull_hello hello = Stage(Environment{{"LULL_MAX_SLOWDOWN", text}}).client.hello;
    return std::pair{hello.slowdown_mean, hello.slowdown_p99};
  };
  const std::pair none{channel::kSlowdownUnset, channel::kSlowdownUnset};
  CHECK(said("30,50") == std::pair{30, 50});
  CHECK(said("0,0") == std::pair{0, 0});
  for (const char* text : {"", "30", "30,", ",50", "3%,5%", "-1,5", "30,50,", "30,99999999999"}) {
    INFO(text);
    CHECK(said(text) == none);
  }
  const channel::lull_hello silent = Stage().client.hello;
  CHECK(std::pair{silent.slowdown_mean, silent.slowdown_p99} == none);
}

TEST_CASE("a graph is one launch that knows its kernels") {
  Stage stage;
  stage.probe.ask("launch inner 4 1 1");
  CHECK(stage.probe.ask("graph") == "0");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 2);
  CHECK(kernel_name(stage.client, records[1].kernel) == "graph of 2 kernels");
  CHECK(stage.client.region.kernel(records[1].kernel)->kind == channel::kKindGraph);
  CHECK(totals(stage.client).launches == 2);
  CHECK(totals(stage.client).graph_kernels == 2);
}

TEST_CASE("large copies towards the device are held, small ones and read-backs are not") {
  Stage stage;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  CHECK(stage.probe.ask("copy h2d 100") == "0");
  CHECK(stage.probe.ask("copy d2h 100") == "0");
  stage.probe.tell("copy h2d 1000000");
  const auto held = stage.held();
  CHECK(kernel_name(stage.client, held.kernel) == "copy h2d");
  CHECK(stage.client.region.kernel(held.kernel)->kind == channel::kKindCopy);
  set_gate(stage.client, GateState::kOpen, 2, 0);
  CHECK(stage.probe.answer() == "0");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 1);
  CHECK(records[0].value0 == 1000000);
  CHECK(totals(stage.client).copies == 3);
}

TEST_CASE("a synchronisation proves the stream complete") {
  Stage stage;
  stage.probe.ask("launch k 1 5 1");
  drain(stage.client);
  CHECK(stage.probe.ask("sync") == "0");
  const auto records = drain(stage.client, channel::kRecordSynced);
  REQUIRE(records.size() == 1);
  CHECK(records[0].sequence == 5);
  CHECK(channel::completed_sequence(stage.client.region, records[0].stream) == 5);
  stage.probe.ask("sync");
  CHECK(drain(stage.client).empty());  // nothing new
  // How long it waited is asked for in traces only.
  CHECK(records[0].value1 == 0);
  stage.client.region.control()->wants_launch_records = channel::kRecordEverything;
  stage.probe.ask("launch k 1 1 1");
  drain(stage.client);
  CHECK(stage.probe.ask("sync") == "0");
  const auto timed = drain(stage.client, channel::kRecordSynced);
  REQUIRE(timed.size() == 1);
  CHECK(timed[0].value1 > 0);
  CHECK(timed[0].value1 < timed[0].tsc);
}

TEST_CASE("that the host waited is told once, even where the device has said before that it is through") {
  Stage stage;
  channel::publish_marked_every(stage.client.region, 0, 1);
  stage.probe.ask("launch k 1 3 1");
  drain(stage.client);
  CHECK(channel::completed_sequence(stage.client.region, 0) == 3);  // by the device
  stage.probe.ask("sync");
  const auto records = drain(stage.client, channel::kRecordSynced);
  REQUIRE(records.size() == 1);
  CHECK(records[0].sequence == 3);
  stage.probe.ask("sync");
  CHECK(drain(stage.client).empty());
}

TEST_CASE("markers follow launches when the coordinator wants progress") {
  Stage stage;
  channel::publish_marked_every(stage.client.region, 0, 1);
  stage.probe.ask("launch k 1 2 1");
  CHECK(stage.probe.ask("calls").find("cuLaunchKernel cuStreamWriteValue64_v2 cuLaunchKernel "
                                      "cuStreamWriteValue64_v2 .") != std::string::npos);
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 2);
  CHECK((records[1].flags & channel::kFlagMarker) != 0);
  CHECK(channel::completed_sequence(stage.client.region, records[1].stream) == 2);
  // None of ours in a capture.
  stage.probe.ask("begin");
  stage.probe.ask("calls");
  stage.probe.ask("launch k 1 2 1");
  CHECK(stage.probe.ask("calls") == "cuLaunchKernel cuLaunchKernel .");
}

TEST_CASE("one launch in so many has a marker, as the coordinator asks") {
  Stage stage;
  stage.probe.ask("launch k 1 100 1");
  CHECK(drain(stage.client, channel::kRecordLaunch).size() == 100);
  channel::publish_marked_every(stage.client.region, 0, 4);
  stage.probe.ask("launch k 1 14 1");
  std::vector<uint64_t> marked;
  for (const auto& record : drain(stage.client, channel::kRecordLaunch)) {
    if ((record.flags & channel::kFlagMarker) != 0) marked.push_back(record.sequence);
  }
  CHECK(marked == std::vector<uint64_t>{101, 104, 107, 110, 114});
}

TEST_CASE("copies that no gate holds are recorded while a trace is written, and only then") {
  Stage stage;
  CHECK(stage.probe.ask("copy h2d 100") == "0");
  CHECK(stage.probe.ask("copy d2h 200") == "0");
  CHECK(drain(stage.client, channel::kRecordLaunch).empty());

  channel::publish_record_mode(stage.client.region, channel::kRecordEverything);
  CHECK(stage.probe.ask("copy h2d 100") == "0");
  CHECK(stage.probe.ask("launch k 1 1 1") == "0");
  CHECK(stage.probe.ask("copy d2h 200") == "0");
  const auto records = drain(stage.client, channel::kRecordLaunch);
  REQUIRE(records.size() == 3);
  CHECK(kernel_name(stage.client, records[0].kernel) == "copy h2d");
  CHECK(records[0].flags == channel::kFlagAside);
  CHECK(records[0].value0 == 100);
  CHECK((records[1].flags & channel::kFlagAside) == 0);
  CHECK(kernel_name(stage.client, records[2].kernel) == "copy d2h");
  CHECK(records[2].flags == channel::kFlagAside);
  CHECK(records[2].value0 == 200);
  CHECK(records[0].tsc < records[1].tsc);
  CHECK(records[1].tsc < records[2].tsc);
}

TEST_CASE("kernels are timed until warm, then in windows, with the gap to the next") {
  Stage stage({}, /*timing_period=*/4);
  stage.probe.ask("launch k 1 200 1");
  stage.probe.ask("sync");
  const auto timed = drain(stage.client, channel::kRecordTiming);
  // Warm after 8; then of each 64 launches 16: one in 4.
  REQUIRE(timed.size() >= 8 + 16);
  CHECK(timed.size() <= 8 + 3 * 16);
  CHECK(timed[0].value0 == Approx(10000).margin(2));  // the recording driver's launch
  CHECK(timed[0].value1 == 0);                        // back to back
  CHECK(stage.probe.ask("calls").find("cuEventRecord cuLaunchKernel cuEventRecord") !=
        std::string::npos);
}

TEST_CASE("a launch call that is held up while the device runs dry makes no kernel longer") {
  Stage stage({}, /*timing_period=*/1);
  stage.probe.ask("launch k 1 3 1");
  stage.probe.ask("holdup 5000000");
  stage.probe.ask("launch k 1 2 1");
  stage.probe.ask("sync");
  const auto timed = drain(stage.client, channel::kRecordTiming);
  REQUIRE(timed.size() >= 4);
  CHECK(timed[3].value0 == Approx(10000).margin(2));   // 5 ms and 10 us between its events
  CHECK(timed[2].value1 == Approx(5'000'000).margin(1000));  // they are the gap before it
}

TEST_CASE("a gap ends where the stream's next unit begins, whichever thread launched it") {
  Stage stage({}, /*timing_period=*/1);
  stage.probe.ask("launch k 1 2 1");
  stage.probe.ask("elsewhere k 1 3");
  stage.probe.ask("launch k 1 2 1");
  stage.probe.ask("sync");
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> gaps;
  for (const auto& timed : drain(stage.client, channel::kRecordTiming)) {
    gaps[{timed.stream, timed.sequence}] = timed.value1;
  }
  REQUIRE(gaps.size() >= 6);
  // Back to back all of them: the thread's own next unit came 30 us later.
  size_t known = 0;
  for (const auto& [unit, gap] : gaps) {
    if (gap == channel::kGapUnknown) continue;
    CHECK(gap == 0);
    ++known;
  }
  CHECK(known >= 4);
}

TEST_CASE("a copy that no gate holds ends no gap") {
  Stage stage({}, /*timing_period=*/1);
  channel::publish_record_mode(stage.client.region, channel::kRecordEverything);
  stage.probe.ask("launch k 1 1 1");
  stage.probe.ask("copy h2d 100");
  stage.probe.ask("launch k 1 1 1");
  stage.probe.ask("sync");
  const auto timed = drain(stage.client, channel::kRecordTiming);
  REQUIRE(timed.size() >= 1);
  CHECK(timed[0].value1 == 0);
}

TEST_CASE("what the host takes to launch on an idle stream is no part of a kernel's length") {
  constexpr uint64_t kCallNs = 5'000'000;
  Stage stage({}, /*timing_period=*/1);
  stage.probe.ask("idle " + std::to_string(kCallNs));
  // Between its events lie the call and the kernel's 10 us: never less than the call. A thread that
  // loses its processor stretches any one launch; so until one was undisturbed.
  uint64_t shortest_ns = UINT64_MAX;
  CHECK(eventually([&] {
    stage.probe.ask("launch k 1 1 1");
    stage.probe.ask("sync");
    for (const auto& timing : drain(stage.client, channel::kRecordTiming)) {
      shortest_ns = std::min(shortest_ns, timing.value0);
    }
    return shortest_ns < kCallNs / 2;
  }));
}

TEST_CASE("releasing a primary context that lives on leaves no events of timing in it") {
  Stage stage({}, /*timing_period=*/1);
  stage.probe.ask("hang 1");
  for (int n = 0; n < 3; ++n) {
    CHECK(stage.probe.ask("launch k 1 50 1") == "0");
    CHECK(stage.probe.ask("release") == "0 0");
  }
  // And what is launched afterwards is timed.
  stage.probe.ask("hang 0");
  stage.probe.ask("launch k 1 10 1");
  stage.probe.ask("sync");
  CHECK(drain(stage.client, channel::kRecordTiming).size() >= 9);
}

TEST_CASE("nothing is timed while a capture is open") {
  Stage stage({}, /*timing_period=*/100);
  stage.probe.ask("begin");
  stage.probe.ask("calls");
  stage.probe.ask("launch k 1 3 0");  // on the legacy stream, which does not capture
  CHECK(stage.probe.ask("calls").find("cuEventRecord") == std::string::npos);
}

TEST_CASE("memory is counted, limited and reported inside the limit") {
  Stage stage(Environment{{"LULL_MEMORY", "1048576"}});
  CHECK(stage.client.hello.memory_limit == 1048576);
  const std::string first = stage.probe.ask("alloc 600000");
  CHECK(first.substr(0, 2) == "0 ");
  CHECK(channel::memory_used(stage.client.region, 0) == 600064);
  CHECK(stage.probe.ask("alloc 600000").substr(0, 2) == "2 ");  // CUDA_ERROR_OUT_OF_MEMORY
  CHECK(stage.probe.ask("meminfo") == "448512 1048576 1048576");
  CHECK(stage.probe.ask("free " + first.substr(2)) == "0");
  CHECK(channel::memory_used(stage.client.region, 0) == 0);
}

TEST_CASE("the memory limit holds without a coordinator") {
  ProbeProcess probe(Environment{{"LULL_SOCKET", "/nonexistent/s"}, {"LULL_MEMORY", "1M"}});
  CHECK(probe.ask("init") == "0");
  CHECK(probe.ask("alloc 2000000").substr(0, 2) == "2 ");
  CHECK(probe.ask("alloc 1000").substr(0, 2) == "0 ");
}

TEST_CASE("where the driver cannot map memory, a program that can be moved allocates as it always did") {
  ProbeProcess probe(Environment{{"LULL_SOCKET", "/nonexistent/s"}, {"LULL_SUSPENDABLE", "1"}});
  CHECK(probe.ask("init") == "0");
  probe.ask("calls");
  const std::string answer = probe.ask("alloc 1000");
  CHECK(answer.substr(0, 2) == "0 ");
  CHECK(probe.ask("free " + answer.substr(2)) == "0");
  const std::string calls = probe.ask("calls");
  CHECK(calls.find("cuMemAlloc_v2 ") != std::string::npos);
  CHECK(calls.find("cuMemFree_v2 ") != std::string::npos);
  CHECK(calls.find("cuMemCreate ") == std::string::npos);
}

// One of a job, whose coordinator has not looked since it asked for more than its allowance.
struct AskingStage : Stage {
  AskingStage() : Stage(Environment{{"LULL_JOB", "j"}, {"LULL_MEMORY", "1048576"}}) {
    coordinator.shows_life = false;
    channel::publish_allowance(client.region, 0, 1000);
    probe.tell("alloc 5000");
    REQUIRE(eventually([&] { return !drain(client, channel::kRecordMemory).empty(); }));
  }
};

TEST_CASE("an allocation beyond a job's allowance asks for more") {
  AskingStage stage;
  // Three looks that change nothing are a refusal.
  for (int look = 0; look < 3; ++look) channel::show_life(stage.client.region);
  CHECK(stage.probe.answer().substr(0, 2) == "2 ");
  channel::publish_allowance(stage.client.region, 0, 100000);
  CHECK(stage.probe.ask("alloc 5000").substr(0, 2) == "0 ");
}

TEST_CASE("an allocation beyond a job's allowance waits for a coordinator that is late") {
  AskingStage stage;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  channel::publish_allowance(stage.client.region, 0, 100000);
  CHECK(stage.probe.answer().substr(0, 2) == "0 ");
  // One that stays silent is not waited for for ever.
  CHECK(stage.probe.ask("alloc 200000").substr(0, 2) == "2 ");
}

TEST_CASE("a fork child is detached and the parent is not") {
  Stage stage;
  stage.probe.ask("launch k 1 1 1");
  CHECK(stage.probe.ask("fork") == "42");
  CHECK(stage.probe.ask("launch k 1 1 1") == "0");
  CHECK(totals(stage.client).launches == 2);
  CHECK(stage.coordinator.clients() == 1);
}

TEST_CASE("a program that closes all descriptors is not harmed") {
  Stage stage;
  CHECK(stage.probe.ask("closefds") == "ok");
  set_gate(stage.client, GateState::kClosed, 1, 0);
  CHECK(stage.probe.ask("launch k 1 3 1") == "0");  // the gate opens when the loss is noticed
}

TEST_CASE("a program that reuses our descriptor is not written to") {
  Stage stage;
  CHECK(stage.probe.ask("reusefds") == "ok");
  channel::arm_doorbell(stage.client.region);
  CHECK(stage.probe.ask("launch k 1 3 1") == "0");
  CHECK(stage.probe.complaints().empty());
}

TEST_CASE("a thread cancelled while held goes on cleanly, and so does an exit") {
  Stage stage;
  set_gate(stage.client, GateState::kClosed, 1, 0);
  stage.probe.tell("cancel");
  stage.held();
  set_gate(stage.client, GateState::kOpen, 2, 0);
  CHECK(stage.probe.answer() == "1");
  set_gate(stage.client, GateState::kClosed, 3, 0);
  stage.probe.ask("background");
  stage.held();
  stage.probe.tell("quit");
  CHECK(stage.probe.finish() == 5);
}

TEST_CASE("more threads than slots are all counted") {
  Stage stage;
  CHECK(stage.probe.ask("threads 100") == "ok");
  CHECK(totals(stage.client).launches == 200);
}

TEST_CASE("look-ups hand out hooks in every way a program asks") {
  Stage stage;
  CHECK(stage.probe.ask("dlsym cuLaunchKernel_ptsz") ==
        "liblull.so:cuLaunchKernel_ptsz liblull.so:cuLaunchKernel_ptsz");
  CHECK(stage.probe.ask("dlsym cuDriverGetVersion") ==
        "libcuda.so.1:cuDriverGetVersion libcuda.so.1:cuDriverGetVersion");
  CHECK(stage.probe.ask("dlsym cuNoSuchCall") == "null null");
  CHECK(stage.probe.ask("next") == "77");
  CHECK(stage.probe.ask("gpa cuLaunchKernel 4000 0") == "0 liblull.so:cuLaunchKernel");
  CHECK(stage.probe.ask("gpa cuLaunchKernel 7000 2") == "0 liblull.so:cuLaunchKernel_ptsz");
  CHECK(stage.probe.ask("gpa cuMemAlloc 3020 0") == "0 liblull.so:cuMemAlloc_v2");
  CHECK(stage.probe.ask("gpa cuMemAlloc 2000 0") == "0 liblull.so:cuMemAlloc");
  CHECK(stage.probe.ask("gpa cuMemcpyHtoD 7000 2") == "0 liblull.so:cuMemcpyHtoD_v2_ptds");
  CHECK(stage.probe.ask("gpa cuDriverGetVersion 2020 0") == "0 libcuda.so.1:cuDriverGetVersion");
  CHECK(stage.probe.ask("gpa - 0 0") == "500 null");
  CHECK(stage.probe.ask("gpa1 cuLaunchKernel 7000 2") ==
        "0 liblull.so:cuGetProcAddress liblull.so:cuLaunchKernel_ptsz");
}

TEST_CASE("a driver whose two look-ups disagree is recognised by name and version") {
  Stage stage(Environment{{"TEST_ALIASED_LAUNCH", "1"}});
  CHECK(stage.probe.ask("gpa cuLaunchKernel 4000 0") == "0 liblull.so:cuLaunchKernel");
}

TEST_CASE("LULL_DISABLE=1 forwards and nothing more") {
  const std::string directory = private_directory();
  Coordinator coordinator(directory + "/s");
  ProbeProcess probe(Environment{{"LULL_SOCKET", directory + "/s"}, {"LULL_DISABLE", "1"}});
  CHECK(probe.ask("init") == "0");
  CHECK(probe.ask("launch k 1 200 1") == "0");
  CHECK(probe.ask("dlsym cuLaunchKernel") != "");
  CHECK(coordinator.clients() == 0);
}

TEST_CASE("without a coordinator one line is said, and only when lull was asked for") {
  ProbeProcess asked(Environment{{"LULL_SOCKET", "/nonexistent/s"}});
  CHECK(asked.ask("init") == "0");
  CHECK(asked.ask("launch k 1 500 1") == "0");
  CHECK(asked.complaints() ==
        "lull: no coordinator at /nonexistent/s: running unscheduled: start lulld or pass --socket\n");
  ProbeProcess silent(Environment{{"XDG_RUNTIME_DIR", "/nonexistent"}});
  CHECK(silent.ask("init") == "0");
  CHECK(silent.complaints().empty());
  ProbeProcess strict(Environment{{"LULL_SOCKET", "/nonexistent/s"}, {"LULL_REQUIRE_COORDINATOR", "1"}});
  CHECK(strict.ask("init") == "802");
  CHECK(!strict.complaints().empty());
}

TEST_CASE("a coordinator of another version leaves the program unscheduled with one line") {
  const std::string directory = private_directory();
  Coordinator coordinator(directory + "/s");
  coordinator.welcome_version = 99;
  ProbeProcess probe(Environment{{"LULL_SOCKET", directory + "/s"}});
  CHECK(probe.ask("init") == "0");
  CHECK(probe.ask("launch k 1 10 1") == "0");
  CHECK(probe.complaints().find("another version") != std::string::npos);
}
