// Programs and coordinator in the simulator, against timelines worked out by hand.
#include <catch2/catch.hpp>
#include <map>

#include "tests/simulate/made_workload.h"
#include "tools/simulate/node.h"

using namespace lull;
using namespace lull::simulate;
using namespace lull::simulate::test;

namespace {

struct Bench {
  explicit Bench(const std::string& policy, simgpu::Sharing sharing = simgpu::Sharing::kSerial) {
    options.coordinator.policy = policy;
    options.sharing = sharing;
    node.emplace(options);
  }
  Program& start(const play::Workload& workload, uint8_t level, uint64_t iterations) {
    scripts.push_back(std::make_unique<Script>(make_script(workload, options.profile)));
    ProgramPlan plan;
    plan.script = scripts.back().get();
    plan.task = workload.name;
    plan.priority = Priority{level};
    plan.iterations = iterations;
    return node->start(plan);
  }
  NodeOptions options = free_markers();
  std::vector<std::unique_ptr<Script>> scripts;
  std::optional<Node> node;
};

void is(const Service& service, int64_t began_ns, int64_t ended_ns) {
  CHECK(service.began.ns == began_ns);
  CHECK(service.ended.ns == ended_ns);
}

}  // namespace

TEST_CASE("an iteration alone takes what host and device take") {
  Bench b("share");
  // Call at 100, kernel until 1100, wait; pause of 50, kernel of 2000; 500 between iterations.
  const auto w = workload("w", {launch(0, 1000, 100), sync_stream(), launch(1, 2000, 50)}, 500);
  Program& program = b.start(w, 5, 2);
  CHECK(b.node->run([&] { return program.ended(); }));
  REQUIRE(program.services().size() == 2);
  is(program.services()[0], 0, 3150);
  is(program.services()[1], 3650, 6800);
  CHECK(program.launches() == 4);
  CHECK(program.completions() == 4);
}

TEST_CASE("the host runs ahead by what its calls take, and waits at the end") {
  Bench b("share");
  const auto w = workload("w", {launch(0, 1000, 0, 10), launch(0, 1000, 0, 10)});
  Program& program = b.start(w, 5, 1);
  b.node->run([&] { return program.ended(); });
  is(program.services()[0], 0, 2000);
}

TEST_CASE("a stream waits for another one's event") {
  Bench b("share");
  auto w = workload("w", {launch(0, 1000),
                          {.kind = play::OpKind::EventRecord, .stream = 0, .event = 0},
                          {.kind = play::OpKind::EventWait, .stream = 1, .event = 0},
                          launch(1, 500, 0, 0, 1)});
  Program& program = b.start(w, 5, 1);
  b.node->run([&] { return program.ended(); });
  is(program.services()[0], 0, 1500);
}

TEST_CASE("a low launch beside busy high work is held until the coordinator lets it go") {
  Bench b("priority max_hold_ms=0");
  const auto high = workload("high", {launch(0, 1'000'000, 200'000)});
  const auto low = workload("low", {launch(1, 10'000, 400'000)});
  Program& h = b.start(high, 2, 1);
  Program& l = b.start(low, 7, 1);
  b.node->run([&] { return l.is_held(); });
  CHECK(b.node->now().ns == 400'000);
  CHECK_FALSE(h.ended());
  b.node->run([&] { return l.ended(); });
  // The high kernel ends at 1'200'000 and its client leaves; the decision takes 10 us to get there.
  is(h.services()[0], 0, 1'200'000);
  CHECK(l.services()[0].ended.ns == 1'200'000 + 10'000 + 10'000);
}

// It rings the doorbell: nobody waits for work of it until then.
TEST_CASE("a launch behind a long pause is heard of at once, also one that will be reported") {
  CoordinatorModel coordinator({.policy = "priority"});
  for (const uint32_t id : {1, 2})
    coordinator.attach({.client = ClientId{id}, .job = JobId{id}, .priority = Priority{static_cast<uint8_t>(id)}},
                       DeviceId{0}, 1, Instant{0});
  coordinator.step(Instant{0});
  const auto launch = [&](uint64_t sequence, Instant at) {
    coordinator.launched({.client = ClientId{1}, .device = DeviceId{0}, .sequence = sequence,
                          .kernel = KernelId{1}, .tracked = true},
                         at);
    const Instant heard = coordinator.next();
    while (coordinator.next() <= at + Duration{1'000'000}) {
      const Instant next = coordinator.next();
      coordinator.step(next);
      coordinator.publish(next, [](const engine::Output&) {});
    }
    coordinator.synced(ClientId{1}, StreamSlot{0}, sequence, at + Duration{1'000'000});
    return heard;
  };
  launch(1, Instant{1'000'000});
  const Instant late{100'000'000};
  CHECK(launch(2, late) <= late + Duration{5'000});
}

TEST_CASE("what is known of a task's kernel holds for the first launch of its next process") {
  Bench b("guarded");
  const auto high = workload("high", {launch(0, 100'000), sync_stream(0), launch(1, 100'000, 3'000'000)});
  // Short ones, which fit, and a long one: taken to be as short it would go with them.
  const auto low = workload("low", {launch(2, 10'000, 1'000'000), sync_stream(0), launch(3, 20'000'000)});
  Program& before = b.start(low, 7, 3);
  b.node->run([&] { return before.ended(); });
  b.start(high, 2, 1'000'000);
  b.node->run([&] { return b.node->now().ns > 200'000'000; });
  auto again = low;
  for (int i = 0; i < 20; ++i) again.ops.insert(again.ops.begin(), low.ops.begin(), low.ops.begin() + 2);
  Program& l = b.start(again, 7, 1);
  b.node->run([&] { return b.node->now().ns > 300'000'000; });
  CHECK(l.launches() == 21);
  CHECK(l.is_held());
}

TEST_CASE("requests arrive at random and wait for the one before") {
  Bench b("share");
  Script script = make_script(workload("w", {launch(0, 1000)}), b.options.profile);
  ProgramPlan plan;
  plan.script = &script;
  plan.iterations = 2000;
  plan.arrival_interval_ns = 2000;
  Program& program = b.node->start(plan);
  b.node->run([&] { return program.ended(); });
  double waited = 0;
  for (const Service& s : program.services()) {
    CHECK((s.ended - s.began).ns == 1000);
    waited += static_cast<double>((s.began - s.arrived).ns);
  }
  // M/D/1 at half load: half a service time of waiting in the mean.
  CHECK(waited / 2000 == Approx(500).epsilon(0.15));
  CHECK(static_cast<double>(program.services().back().arrived.ns) / 2000 ==
        Approx(2000).epsilon(0.1));
}

TEST_CASE("a program that is killed loses its work, and the others go on") {
  Bench b("priority");
  const auto high = workload("high", {launch(0, 100'000)});
  const auto low = workload("low", {launch(1, 50'000)});
  Program& h = b.start(high, 2, 1'000'000);
  Program& l = b.start(low, 7, 20);
  b.node->run([&] { return h.services().size() == 5; });
  h.kill(b.node->now());
  CHECK(b.node->run([&] { return l.ended(); }));
  CHECK(l.services().size() == 20);
}

TEST_CASE("the engine is told all that the daemon tells it of a launch and its measurement") {
  Bench b("share");
  std::map<uint64_t, KernelId> launched;  // by sequence: one stream
  uint64_t named = 0;
  std::string model;
  b.node->coordinator().watch([&](Instant, auto inputs, auto) {
    for (const engine::Input& input : inputs) {
      if (const auto* used = std::get_if<engine::DeviceUsed>(&input)) model = used->model;
      if (const auto* l = std::get_if<engine::Launched>(&input)) launched[l->sequence] = l->kernel;
      if (const auto* timed = std::get_if<engine::Timed>(&input)) {
        REQUIRE(launched.contains(timed->sequence));
        CHECK(launched[timed->sequence] == timed->kernel);
        ++named;
      }
    }
  });
  // One kernel name at three places of the iteration, with three lengths.
  const auto w = workload("w", {launch(0, 1000, 100), launch(0, 3000, 100), launch(1, 200, 50),
                                launch(0, 9000, 100)}, 500);
  Program& program = b.start(w, 5, 200);
  b.node->run([&] { return program.services().size() == 150; });
  CHECK(named > 10);
  CHECK(model == b.options.profile.name);
  const auto status = b.node->coordinator().status();
  REQUIRE(status.clients.size() == 1);
  CHECK(status.clients[0].iteration.locked);
  CHECK(status.clients[0].iteration.period == 4);
  // The player's buffer: 256 bytes, one more, and the stream's word.
  CHECK(status.clients[0].iteration.lowest_bytes == 256 + 1 + 8);
}
