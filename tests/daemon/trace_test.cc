// The daemon's recordings: what clients do as a trace, what the engine decides as a decision log.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>

#include "coordinator/channel/ticks.h"
#include "coordinator/daemon/event_cost.h"
#include "coordinator/daemon/start_times.h"
#include "coordinator/trace/reader.h"
#include "tests/daemon/fake_client.h"

namespace lull::daemon {
namespace {

using nlohmann::json;

struct TracingNode {
  explicit TracingNode(const std::string& policy = "", bool tracing = true, bool deciding = false) {
    DaemonSettings settings = quiet_settings(dir);
    settings.policy = policy;
    if (tracing) settings.trace = dir.path("trace");
    know_long_kernel(settings, dir, "serve", 101);
    if (deciding) settings.decision_log = dir.path("decisions");
    socket = settings.socket_path;
    daemon = start_daemon(std::move(settings));
  }
  std::unique_ptr<FakeClient> client(const std::string& name, int priority,
                                     SlowdownBound bound = {}) {
    channel::lull_hello hello = FakeClient::hello(name, priority);
    hello.slowdown_mean = bound.mean_per_mille;
    hello.slowdown_p99 = bound.p99_per_mille;
    auto client = std::make_unique<FakeClient>(socket, hello);
    REQUIRE(client->join(*daemon));
    client->add_device(7);
    client->add_kernel(100 + static_cast<uint64_t>(priority), name + "_kernel");
    return client;
  }
  json ask_for(const json& request) { return ask(*daemon, socket, request); }

  TempDir dir;
  std::string socket;
  std::unique_ptr<Daemon> daemon;
};

struct Recorded {
  trace::FileInfo info;
  std::vector<trace::Event> events;
  std::string problem;
  template <typename E>
  std::vector<E> all() const {
    std::vector<E> found;
    for (const trace::Event& event : events) {
      if (const E* one = std::get_if<E>(&event)) found.push_back(*one);
    }
    return found;
  }
};
Recorded read(const std::string& path) {
  Recorded recorded;
  auto reader = trace::Reader::open(path);
  if (!reader) {
    recorded.problem = reader.error();
    return recorded;
  }
  recorded.info = reader->info();
  while (const trace::Event* event = reader->next()) recorded.events.push_back(*event);
  recorded.problem = reader->problem();
  return recorded;
}

TEST_CASE("a traced client's launches are all there, in order, with what they are") {
  TracingNode node;
  auto client = node.client("train", 5);
  CHECK(client->region().control()->wants_launch_records == channel::kRecordEverything);
  channel::lull_kernel& kernel = *client->region().kernel(0);
  kernel.image_hash = 77;
  kernel.grid[0] = 3;
  kernel.block[1] = 4;
  kernel.shared_bytes = 512;
  kernel.call_site_offset = client->region().client()->name_bytes;
  strcpy(client->region().names() + kernel.call_site_offset, "lib.so+0x10;app+0x20");
  client->region().client()->name_bytes += 32;
  client->add_kernel(200, "copy");
  client->region().kernel(1)->kind = channel::kKindCopy;
  for (uint64_t n = 1; n <= 100; ++n) client->launch(0, n, false);
  channel::lull_record copy = client->record(channel::kRecordLaunch, 1, 1);
  copy.stream = 3;
  copy.value0 = 4096;
  client->push(copy, 1);
  client->push(client->record(channel::kRecordCancel, 1, 1), 1);
  channel::lull_record timing = client->record(channel::kRecordTiming, 0, 7);
  timing.value0 = 5000;
  timing.value1 = channel::kGapUnknown;
  client->push(timing, 1);
  channel::lull_record synced = client->record(channel::kRecordSynced, 0, 100);
  synced.value1 = 1'000'000;  // ticks: a fraction of a millisecond
  client->push(synced);
  for (const uint32_t kind : std::initializer_list<uint32_t>{
           channel::kRangeNested, channel::kRangeFree, channel::kRangeMark, 77}) {
    channel::lull_record range = client->record(channel::kRecordRange, 0, 1);
    range.kernel = client->region().kernel(0)->name_offset;
    range.device = kind == channel::kRangeFree ? UINT32_MAX : 0;  // a domain outside the names
    range.stream = kind;
    range.tsc = channel::ticks();
    range.value0 = kind == channel::kRangeMark ? 0 : 1'000'000;
    client->push(range);
  }
  client->region().client()->device[0].used_bytes = 12345;
  channel::atomic64(client->region().thread(1)->copies).fetch_add(1, std::memory_order_relaxed);
  // The rest is still in the rings when the client goes.
  const uint32_t id = client->welcome().client_id;
  client->hang_up();
  REQUIRE(turn_until(*node.daemon, [&] { return node.daemon->client_count() == 0; }));
  const json stopped = node.ask_for({{"op", "trace"}, {"stop", true}});
  CHECK(stopped["ok"] == true);
  REQUIRE(turn_until(*node.daemon, [&] {
    return node.ask_for({{"op", "trace"}})["trace"]["written"] == true;
  }));
  const json figures = node.ask_for({{"op", "status"}})["trace"];
  CHECK(figures["file"] == node.dir.path("trace"));
  CHECK(figures["running"] == false);
  CHECK(figures["launches"] == 101);
  CHECK(figures["timings"] == 1);
  CHECK(figures["lost"] == 0);
  CHECK(figures["dropped"] == 0);
  CHECK(figures["failure"] == "");
  struct stat about;
  REQUIRE(::stat(node.dir.path("trace").c_str(), &about) == 0);
  CHECK(figures["bytes"] == about.st_size);

  const Recorded got = read(node.dir.path("trace"));
  CHECK(got.problem.empty());
  CHECK(got.info.source == "lulld");
  CHECK(got.info.lull_version == LULL_VERSION);
  CHECK_FALSE(got.info.simulated);
  REQUIRE(got.all<trace::PolicyChange>().size() == 1);
  CHECK(got.all<trace::PolicyChange>()[0].policy.starts_with("guarded"));
  const auto started = got.all<trace::ClientStarted>();
  REQUIRE(started.size() == 1);
  CHECK(started[0].client.value == id);
  CHECK(started[0].task == "train");
  CHECK(started[0].program == "program");
  CHECK(started[0].pid == ::getpid());
  CHECK(started[0].priority.level == 5);
  const auto devices = got.all<trace::DeviceInfo>();
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].uuid == "GPU-07070707-0707-0707-0707-070707070707");
  CHECK(devices[0].name == "simulated GPU");
  CHECK(devices[0].total_bytes == 80ULL << 30);
  const auto kernels = got.all<trace::KernelInfo>();
  REQUIRE(kernels.size() == 2);
  CHECK(kernels[0].id.value == 105);
  CHECK(kernels[0].name == "train_kernel");
  CHECK(kernels[0].image_hash == 77);
  CHECK(kernels[0].grid == std::array<uint32_t, 3>{3, 0, 0});
  CHECK(kernels[0].block == std::array<uint32_t, 3>{0, 4, 0});
  CHECK(kernels[0].shared_bytes == 512);
  CHECK(kernels[0].call_site == "lib.so+0x10;app+0x20");
  CHECK(kernels[1].kind == trace::UnitKind::kCopy);
  const auto launches = got.all<trace::Launch>();
  REQUIRE(launches.size() == 101);
  for (uint64_t n = 0; n < 100; ++n) {
    CHECK(launches[n].sequence == n + 1);
    CHECK(launches[n].kernel == 0);
    CHECK(launches[n].thread.value == 0);
    CHECK(launches[n].held.ns == 0);
    if (n > 0) CHECK(launches[n].at >= launches[n - 1].at);
  }
  CHECK(launches[100].kernel == 1);
  CHECK(launches[100].stream.value == 3);
  CHECK(launches[100].bytes == 4096);
  const auto timings = got.all<trace::Timing>();
  REQUIRE(timings.size() == 1);
  CHECK(timings[0].sequence == 7);
  CHECK(timings[0].duration == Duration{5000} - daemon::kEventCost);
  CHECK(timings[0].gap.ns == -1);
  CHECK(timings[0].start.ns == -1);
  REQUIRE(got.all<trace::Cancelled>().size() == 1);
  CHECK(got.all<trace::Cancelled>()[0].stream.value == 0);
  REQUIRE(got.all<trace::Synced>().size() == 1);
  CHECK(got.all<trace::Synced>()[0].sequence == 100);
  const auto waits = got.all<trace::Waited>();
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].until == got.all<trace::Synced>()[0].at);
  CHECK(waits[0].from < waits[0].until);
  const auto ranges = got.all<trace::Range>();
  REQUIRE(ranges.size() == 3);
  CHECK(ranges[0].kind == trace::RangeKind::kNested);
  CHECK(ranges[0].depth == 1);
  CHECK(ranges[0].from < ranges[0].until);
  CHECK(ranges[2].from == ranges[2].until);
  const auto names = got.all<trace::RangeInfo>();
  REQUIRE(names.size() == 1);
  CHECK(names[0].domain.empty());
  REQUIRE(got.all<trace::MemoryUse>().size() == 1);
  CHECK(got.all<trace::MemoryUse>()[0].used_bytes == 12345);
  const auto ended = got.all<trace::ClientEnded>();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].launches == 100);
  CHECK(ended[0].copies == 1);
  CHECK(ended[0].dropped == 0);
}

TEST_CASE("a held launch says how long it was held and by whom") {
  TracingNode node("priority max_hold_ms=0");
  auto high = node.client("serve", 1);
  auto low = node.client("train", 8);
  REQUIRE(settle(*node.daemon, {high.get(), low.get()}));
  high->launch(0, 1);  // ten seconds, as is known
  REQUIRE(turn_until(*node.daemon, [&] { return low->state() != channel::GateState::kOpen; }));
  // What is in flight already takes the whole of the low client's bound.
  low->launch(0, 1);
  low->hold(0, 41);
  REQUIRE(turn_until(*node.daemon, [&] {
    const json status = node.ask_for({{"op", "status"}});
    for (const json& client : status["clients"]) {
      if (!client["held"].empty()) return true;
    }
    return false;
  }));
  low->let_go(0, 2, 41);
  // Held and let go between two looks.
  low->hold(0, 42);
  low->let_go(0, 3, 42);
  REQUIRE(turn_until(*node.daemon, [&] {
    return !channel::ring_has_records(*low->region().thread(0));
  }));
  node.daemon->stop();
  const Recorded got = read(node.dir.path("trace"));
  CHECK(got.problem.empty());
  std::vector<trace::Launch> lows;
  for (const trace::Launch& launch : got.all<trace::Launch>()) {
    if (launch.client.value == low->welcome().client_id) lows.push_back(launch);
  }
  REQUIRE(lows.size() == 3);
  CHECK(lows[0].held.ns == 0);
  CHECK(lows[0].held_by.value == 0);
  for (const size_t n : {1, 2}) {
    CHECK(lows[n].held.ns > 0);
    CHECK(lows[n].held_by.value == high->welcome().client_id);
    CHECK(lows[n].at.ns + lows[n].held.ns <= got.all<trace::ClientEnded>().back().at.ns);
  }
}

TEST_CASE("one kernel of two clients is one kernel of the trace, two of one name are two") {
  TracingNode node;
  auto first = node.client("train", 5);
  auto second = node.client("train", 5);
  second->add_kernel(900, "train_kernel");  // another image
  second->region().kernel(1)->image_hash = 9;
  first->launch(0, 1, false);
  second->launch(0, 1, false);
  second->launch(1, 2, false);
  settle(*node.daemon, {first.get(), second.get()});
  node.daemon->stop();
  const Recorded got = read(node.dir.path("trace"));
  REQUIRE(got.all<trace::KernelInfo>().size() == 2);
  std::map<std::pair<uint32_t, uint64_t>, trace::KernelIndex> kernel_of;
  for (const trace::Launch& launch : got.all<trace::Launch>()) {
    kernel_of[{launch.client.value, launch.sequence}] = launch.kernel;
  }
  const uint32_t a = first->welcome().client_id, b = second->welcome().client_id;
  CHECK(kernel_of.at({a, 1}) == kernel_of.at({b, 1}));
  CHECK(kernel_of.at({b, 2}) != kernel_of.at({b, 1}));
}

TEST_CASE("tracing begins and ends while clients run, and counts from then on") {
  TracingNode node("", /*tracing=*/false);
  auto client = node.client("train", 5);
  for (uint64_t n = 1; n <= 10; ++n) client->launch(0, n, false);
  REQUIRE(settle(*node.daemon, {client.get()}));
  CHECK(client->region().control()->wants_launch_records == channel::kRecordUntimed);
  CHECK(node.ask_for({{"op", "status"}})["trace"].is_null());
  CHECK(node.ask_for({{"op", "trace"}})["trace"].is_null());

  const std::string file = node.dir.path("later");
  const json begun = node.ask_for({{"op", "trace"}, {"file", file}, {"source", "me"}, {"command", "x y"}});
  CHECK(begun["ok"] == true);
  CHECK(begun["trace"]["running"] == true);
  CHECK(client->region().control()->wants_launch_records == channel::kRecordEverything);
  const json twice = node.ask_for({{"op", "trace"}, {"file", node.dir.path("other")}});
  CHECK(twice["ok"] == false);
  CHECK(twice["error"] == fmt::format("cannot trace into {}: lulld records into {} already: stop that first",
                                      node.dir.path("other"), file));
  for (uint64_t n = 11; n <= 15; ++n) client->launch(0, n, false);
  REQUIRE(node.ask_for({{"op", "policy"}, {"policy", "share"}})["ok"] == true);
  REQUIRE(node.ask_for({{"op", "priority"}, {"task", "train"}, {"level", 3}})["ok"] == true);
  CHECK(node.ask_for({{"op", "trace"}, {"stop", true}})["trace"]["running"] == false);
  REQUIRE(turn_until(*node.daemon, [&] {
    return node.ask_for({{"op", "trace"}})["trace"]["written"] == true;
  }));
  for (uint64_t n = 16; n <= 20; ++n) client->launch(0, n, false);
  REQUIRE(turn_until(*node.daemon, [&] {
    return client->region().control()->wants_launch_records == channel::kRecordUntimed;
  }));
  const json again = node.ask_for({{"op", "trace"}, {"stop", true}});
  CHECK(again["error"] == "cannot stop tracing: no trace is recorded: see status");

  const Recorded got = read(file);
  CHECK(got.problem.empty());
  CHECK(got.info.source == "me");
  CHECK(got.info.command == "x y");
  const auto launches = got.all<trace::Launch>();
  REQUIRE(launches.size() == 5);
  CHECK(launches.front().sequence == 11);
  REQUIRE(got.all<trace::ClientEnded>().size() == 1);
  CHECK(got.all<trace::ClientEnded>()[0].launches == 5);
  CHECK(got.all<trace::PolicyChange>().back().policy == "share");
  REQUIRE(got.all<trace::PriorityChange>().size() == 1);
  CHECK(got.all<trace::PriorityChange>()[0].priority.level == 3);
}

TEST_CASE("a trace has running clients and new ones timed as it says, and puts that back") {
  TracingNode node("", /*tracing=*/false);
  auto running = node.client("serve", 5);
  const auto period = [](FakeClient& client) {
    return channel::atomic32(client.region().control()->timing_period)
        .load(std::memory_order_relaxed);
  };
  const uint32_t before = period(*running);
  CHECK(before > 1);
  REQUIRE(node.ask_for({{"op", "trace"}, {"file", node.dir.path("t")}, {"timing", "full"}})["ok"] ==
          true);
  CHECK(period(*running) == 1);
  auto added = node.client("train", 6);
  CHECK(period(*added) == 1);
  REQUIRE(node.ask_for({{"op", "trace"}, {"stop", true}})["ok"] == true);
  CHECK(period(*running) == before);
  CHECK(period(*added) == before);
}

TEST_CASE("requests to trace that make no sense are refused with what would") {
  TracingNode node("", /*tracing=*/false);
  const auto error = [&](const json& request) {
    const json reply = node.ask_for(request);
    CHECK(reply["ok"] == false);
    return reply.value("error", "");
  };
  CHECK(error({{"op", "trace"}, {"file", "relative"}}) ==
        "cannot trace: file is \"relative\": the whole path of a file, without stop, is expected");
  CHECK(error({{"op", "trace"}, {"file", 5}}).starts_with("cannot trace: file is 5: "));
  CHECK(error({{"op", "trace"}, {"file", "/tmp/x"}, {"stop", true}}).starts_with("cannot trace: "));
  CHECK(error({{"op", "trace"}, {"stop", 1}}) == "cannot trace: stop is 1: true is expected");
  CHECK(error({{"op", "trace"}, {"file", node.dir.path("no/where")}}) ==
        fmt::format("cannot write {}: No such file or directory: name a file that can be written",
                    node.dir.path("no/where")));
  write_file(node.dir.path("precious"), "data");
  CHECK(error({{"op", "trace"}, {"file", node.dir.path("precious")}}) ==
        fmt::format("cannot write {}: it is there already: name another, or remove it",
                    node.dir.path("precious")));
}

TEST_CASE("a daemon that cannot trace does not start") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.trace = dir.path("no/where");
  const auto refused = Daemon::start(std::move(settings));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().find("No such file or directory") != std::string::npos);
}

TEST_CASE("what a full ring lost is said in the trace") {
  TracingNode node;
  auto client = node.client("train", 5);
  for (uint64_t n = 1; n <= 300; ++n) client->launch(0, n, false);  // a ring holds 256
  settle(*node.daemon, {client.get()});
  node.daemon->stop();
  const Recorded got = read(node.dir.path("trace"));
  uint64_t lost = 0;
  for (const trace::Lost& some : got.all<trace::Lost>()) lost += some.records;
  CHECK(got.all<trace::Launch>().size() == 256);
  CHECK(lost == 44);
  REQUIRE(got.all<trace::ClientEnded>().size() == 1);
  CHECK(got.all<trace::ClientEnded>()[0].launches == 300);
  CHECK(got.all<trace::ClientEnded>()[0].dropped == 44);
}

TEST_CASE("records that lie leave a trace that can be read") {
  TracingNode node;
  auto client = node.client("train", 5);
  client->launch(0, 1, false);
  channel::lull_record wild = client->record(channel::kRecordTiming, 0, UINT64_MAX);
  wild.device = 15;
  client->push(wild);
  wild.device = 0;
  wild.stream = 1'000'000;
  client->push(wild);
  wild.stream = 0;
  wild.value0 = 3'600'000'000'000;
  wild.value1 = UINT64_MAX - 1;
  wild.device_start = UINT64_MAX;
  client->push(wild);
  channel::lull_record launch = client->record(channel::kRecordLaunch, 0, UINT64_MAX);
  launch.value0 = UINT64_MAX;
  client->push(launch);
  client->region().kernel(0)->name_offset = UINT32_MAX;
  client->region().client()->device[0].used_bytes = UINT64_MAX;
  channel::atomic64(client->region().thread(0)->dropped).store(UINT64_MAX, std::memory_order_relaxed);
  settle(*node.daemon, {client.get()});
  node.daemon->stop();
  const Recorded got = read(node.dir.path("trace"));
  CHECK(got.problem.empty());
  CHECK(got.all<trace::Launch>().size() == 2);
  CHECK(got.all<trace::Timing>().size() == 1);
  CHECK(got.all<trace::ClientEnded>().size() == 1);
}

TEST_CASE("with a simulated GPU the trace waits for its clock") {
  TempDir dir;
  DaemonSettings settings = quiet_settings(dir);
  settings.simulated = true;
  settings.sim_device = dir.path("device");
  settings.trace = dir.path("trace");
  const std::string socket = settings.socket_path;
  auto daemon = start_daemon(std::move(settings));
  CHECK(read(dir.path("trace")).problem.find("the file is empty") != std::string::npos);
  FakeClient client(socket, FakeClient::hello("train"));
  REQUIRE(client.join(*daemon));
  CHECK(client.region().control()->wants_launch_records == channel::kRecordEverything);
  // The device comes with the program's first call, the launch before lulld has looked again.
  write_sim_device(dir.path("device"), 4.0, 0);
  client.add_device(7);
  client.add_kernel(1, "kernel");
  for (uint64_t n = 1; n <= 20; ++n) client.launch(0, n, false);
  settle(*daemon, {&client});
  daemon->stop();
  const Recorded got = read(dir.path("trace"));
  CHECK(got.problem.empty());
  CHECK(got.info.simulated);
  CHECK(got.info.slow_motion == 4.0);
  CHECK(got.info.sharing == "time_slice");
  CHECK(got.all<trace::ClientStarted>().size() == 1);
  CHECK(got.all<trace::Launch>().size() == 20);
  REQUIRE(got.all<trace::ClientEnded>().size() == 1);
  CHECK(got.all<trace::ClientEnded>()[0].launches == 20);
}

TEST_CASE("the engine's steps replay from the daemon's decision log") {
  TracingNode node("guarded max_hold_ms=0", /*tracing=*/false, /*deciding=*/true);
  auto high = node.client("serve", 1, {10, 20'000});
  auto low = node.client("train", 8);
  for (uint64_t n = 1; n <= 50; ++n) {
    high->launch(0, n);
    low->launch(0, n);
    if (n % 10 == 0) high->complete(n);
    node.daemon->turn(0);
  }
  low->hold(0, 5);
  // A turn looks only at those clients that are due.
  REQUIRE(turn_until(*node.daemon, [&] {
    return std::ranges::all_of(std::array{high.get(), low.get()}, [](FakeClient* client) {
      const channel::lull_thread& ring = *client->region().thread(0);
      return ring.head == ring.tail;
    });
  }));
  REQUIRE(node.ask_for({{"op", "policy"}, {"policy", "time_slice"}})["ok"] == true);
  low->hang_up();
  REQUIRE(turn_until(*node.daemon, [&] { return node.daemon->client_count() == 1; }));
  const json figures = node.ask_for({{"op", "status"}})["decision_log"];
  CHECK(figures["steps"] > 2);
  CHECK(figures["failure"] == "");
  node.daemon->stop();
  auto log = trace::DecisionLogReader::open(node.dir.path("decisions"));
  REQUIRE(log.has_value());
  const trace::Replay replayed = trace::replay(*log);
  CHECK(log->problem().empty());
  CHECK(replayed.engines == 1);
  CHECK(replayed.steps >= figures["steps"].get<uint64_t>());
  CHECK(replayed.inputs > 100);
  CHECK(replayed.outputs > 3);
  CHECK(replayed.different_step == 0);

  // What the task may lose is in it, as far as it counts.
  std::vector<SlowdownBound> bounds;
  auto again = trace::DecisionLogReader::open(node.dir.path("decisions"));
  REQUIRE(again.has_value());
  while (const trace::Decision* decision = again->next()) {
    const auto* step = std::get_if<trace::EngineStep>(decision);
    if (step == nullptr) continue;
    for (const engine::Input& input : step->inputs) {
      const auto* attached = std::get_if<engine::ClientAttached>(&input);
      if (attached != nullptr) bounds.push_back(attached->bound);
    }
  }
  CHECK(bounds == std::vector<SlowdownBound>{{10, 10'000}, {}});
}

TEST_CASE("a base of start times is placed by the unit that waited least") {
  const auto packed = [](uint64_t base, uint64_t since) { return (base << channel::kStartBits) | since; };
  StartTimes starts;
  CHECK(starts.at(0, 0, {100}).ns == -1);
  CHECK(starts.at(0, packed(1, 50), kNever).ns == -1);
  // Launched at 1000, began 500 after the base: the base is at 500 at the earliest.
  CHECK(starts.at(0, packed(1, 500), {1000}).ns == 1000);
  // This one waited 900 less: the base is later than thought.
  CHECK(starts.at(0, packed(1, 600), {2000}).ns == 2000);
  CHECK(starts.at(0, packed(1, 700), {1500}).ns == 2100);
  CHECK(starts.at(0, packed(1, 800), kNever).ns == 2200);
  CHECK(starts.at(1, packed(1, 800), {5000}).ns == 5000);
  CHECK(starts.at(0, packed(2, 0), {9000}).ns == 9000);
  CHECK(starts.at(0, packed(1, 900), {0}).ns == 2300);
}

TEST_CASE("a program on many devices has a base of start times on each") {
  const auto packed = [](uint64_t base, uint64_t since) { return (base << channel::kStartBits) | since; };
  StartTimes starts;
  for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
    CHECK(starts.at(device, packed(device + 1, 0), {1000}).ns == 1000);
  }
  // Launched long before it began: only the base says when that was.
  for (uint32_t device = 0; device < channel::kMaxDevices; ++device) {
    CHECK(starts.at(device, packed(device + 1, 5000), {1500}).ns == 6000);
  }
  CHECK(starts.at(channel::kMaxDevices, packed(1, 0), {1000}).ns == -1);
}

}  // namespace
}  // namespace lull::daemon
