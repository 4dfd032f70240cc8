// What the engine learns of a client's launches beyond its kernels, and takes up from earlier runs.
#include <catch2/catch.hpp>

#include "coordinator/engine/engine.h"

using namespace lull;
using namespace lull::engine;

namespace {

struct Bench {
  Engine engine;
  std::vector<Output> out;
  int64_t now_ns = 1'000'000;
  uint64_t sequence[3] = {0, 0, 0};

  void tell(Input input) {
    const Input one[] = {std::move(input)};
    out.clear();
    engine.step(Instant{now_ns}, one, out);
  }
  void attach(uint32_t id, const std::string& task, const std::string& model) {
    tell(ClientAttached{ClientId{id}, JobId{id}, Priority{5}, task});
    tell(DeviceUsed{ClientId{id}, DeviceId{0}, model});
  }
  // An iteration of 100 launches; each is measured. `pace_ns` between launches.
  void iterate(uint32_t id, int64_t pace_ns) {
    now_ns += 300'000;
    for (uint64_t k = 0; k < 100; ++k) {
      now_ns += pace_ns;
      const uint64_t number = ++sequence[id];
      tell(Launched{.client = ClientId{id}, .device = DeviceId{0}, .stream = {}, .sequence = number,
                    .kernel = KernelId{k * 7919 + 3}, .at = Instant{now_ns},
                    .memory_bytes = k == 42 ? 1000U : 1500U});
      tell(Timed{ClientId{id}, KernelId{k * 7919 + 3}, Duration{2000}, Duration{50}, Instant{now_ns},
                 StreamSlot{}, number});
      tell(Progressed{ClientId{id}, StreamSlot{}, number});
    }
  }
};

}  // namespace

TEST_CASE("Status tells a client's iteration, its lowest memory and its slowdown") {
  Bench bench;
  bench.attach(1, "first", "GPU");
  for (int i = 0; i < 30; ++i) bench.iterate(1, 5'000);
  auto found = bench.engine.status().clients.at(0).iteration;
  CHECK(found.locked);
  CHECK(found.period == 100);
  CHECK(found.completed >= 25);
  CHECK(found.undisturbed_count == found.completed);
  CHECK(found.undisturbed.ns == Approx(800'000).epsilon(0.01));
  CHECK(found.slowdown == Approx(1000).epsilon(0.01));
  CHECK(found.lowest_bytes == 1000);

  // Another client works on the device: what is measured meanwhile is not "undisturbed".
  bench.attach(2, "second", "GPU");
  for (int i = 0; i < 30; ++i) {
    bench.tell(Launched{.client = ClientId{2}, .device = DeviceId{0}, .stream = {}, .sequence = ++bench.sequence[2],
                        .kernel = KernelId{5}, .at = Instant{bench.now_ns}});
    bench.iterate(1, 13'000);
  }
  const auto later = bench.engine.status().clients.at(0).iteration;
  CHECK(later.undisturbed == found.undisturbed);
  CHECK(later.slowdown == Approx(2000).epsilon(0.05));
}

TEST_CASE("A record of a task serves its next run on the same model and no other") {
  Bench bench;
  bench.attach(1, "task", "A");
  for (int i = 0; i < 20; ++i) bench.iterate(1, 5'000);
  const auto record = bench.engine.record(ClientId{1});
  REQUIRE(record);
  CHECK(record->gpu == "A");
  CHECK(record->kernels.size() == 100);

  Bench fresh;
  fresh.attach(1, "task", "A");
  fresh.tell(TaskRecalled{ClientId{1}, write_task_record(*record)});
  fresh.tell(Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = {}, .sequence = 1,
                      .kernel = KernelId{3}, .at = Instant{fresh.now_ns}});
  REQUIRE(!fresh.out.empty());
  const auto* predicted = std::get_if<Predict>(&fresh.out.front());
  REQUIRE(predicted != nullptr);
  CHECK(predicted->length.ns == 2000);
  CHECK(fresh.engine.status().clients.at(0).iteration.undisturbed.ns == Approx(800'000).epsilon(0.01));

  fresh.attach(2, "task", "B");
  CHECK(fresh.engine.status().clients.at(1).kernels == 0);
  fresh.tell(TaskRecalled{ClientId{2}, "nonsense"});
  fresh.tell(TaskRecalled{ClientId{9}, write_task_record(*record)});
  CHECK(fresh.engine.status().dropped_inputs == 2);
}
