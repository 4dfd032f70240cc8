// What policies are told of lengths and pauses, under each predictor, and that the sums hold.
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "coordinator/engine/engine.h"
#include "tests/seed.h"

using namespace lull;
using namespace lull::engine;
namespace pol = lull::policies;

namespace {

// Opens every gate and writes down what it was told.
struct Told {
  std::vector<pol::Submitted> submitted;
  std::vector<pol::Waiting> waiting;
  std::vector<pol::Completed> completed;
  std::map<uint32_t, int64_t> in_flight_ns;  // by client
} told;

class Scribe final : public pol::LaunchPolicy {
 public:
  void step(Instant, std::span<const pol::Event> events, std::vector<pol::Decision>&) override {
    for (const pol::Event& event : events) {
      if (const auto* s = std::get_if<pol::Submitted>(&event)) {
        told.submitted.push_back(*s);
        told.in_flight_ns[s->client.value] += s->predicted.ns;
      } else if (const auto* w = std::get_if<pol::Waiting>(&event)) {
        told.waiting.push_back(*w);
      } else if (const auto* c = std::get_if<pol::Completed>(&event)) {
        told.completed.push_back(*c);
        told.in_flight_ns[c->client.value] -= c->predicted.ns;
      }
    }
  }
};

const pol::PolicyRow kRows[] = {
    {"scribe", {}, pol::ProgressNeed::kNever, pol::Holding::kByPrediction,
     [](const pol::SettingValues&) -> std::unique_ptr<pol::LaunchPolicy> {
       return std::make_unique<Scribe>();
     }}};

struct Bench {
  explicit Bench(std::optional<pol::Predictor> predictor,
                 std::span<const pol::PolicyRow> rows = kRows)
      : engine(options(predictor, rows)) {
    told = {};
    tell(ClientAttached{ClientId{1}, JobId{1}, Priority{5}, "task"});
    tell(DeviceUsed{ClientId{1}, DeviceId{0}});
  }
  static EngineOptions options(std::optional<pol::Predictor> predictor,
                               std::span<const pol::PolicyRow> rows) {
    EngineOptions options;
    options.policy = "scribe";
    options.predictor = predictor;
    options.policies = rows;
    return options;
  }
  void tell(Input input) {
    const Input one[] = {std::move(input)};
    engine.step(Instant{now_ns}, one, out);
  }
  void launch(uint64_t kernel, bool tracked = true) {
    now_ns += 1000;
    tell(Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = {}, .sequence = ++sequence,
                  .kernel = KernelId{kernel}, .at = Instant{now_ns}, .tracked = tracked});
  }
  void measure(uint64_t kernel, int64_t ns, int64_t gap_ns) {
    tell(Timed{ClientId{1}, KernelId{kernel}, Duration{ns}, Duration{gap_ns}, Instant{now_ns},
               StreamSlot{}, sequence});
    now_ns += ns;
    tell(Progressed{ClientId{1}, StreamSlot{}, sequence});
  }
  // Kernel 7 runs 10 us behind kernel 1 and 50 us behind kernel 2; at the end of the iteration,
  // behind kernel 1 too, 90 us.
  void iterate() {
    const auto run = [this](uint64_t kernel, int64_t us, int64_t gap_us) {
      launch(kernel);
      measure(kernel, us * 1000, gap_us * 1000);
    };
    run(1, 5, 0);
    run(7, 10, 20);
    run(2, 5, 0);
    run(7, 50, 400);
    run(3, 5, 0);
    run(1, 5, 0);
    run(7, 90, 20);
    now_ns += 500'000;
  }

  Engine engine;
  std::vector<Output> out;
  int64_t now_ns = 1'000'000;
  uint64_t sequence = 0;
};

}  // namespace

TEST_CASE("Each predictor tells what it is for, at launches and at held heads") {
  struct Case {
    pol::Predictor how;
    int64_t first_us, second_us, third_us, gap_us;  // of kernel 7; the gap behind the second
  };
  // p95 of 10, 50, 90; of 10, 90 behind kernel 1; of each alone.
  for (const Case& c : {Case{pol::Predictor::kMean, 50, 50, 50, 146},
                        Case{pol::Predictor::kQuantile, 90, 90, 90, 20},
                        Case{pol::Predictor::kPair, 90, 50, 90, 400},
                        Case{pol::Predictor::kPosition, 10, 50, 90, 400},
                        Case{pol::Predictor::kBest, 10, 50, 90, 400}}) {
    INFO(name_of(c.how));
    Bench bench(c.how);
    for (int i = 0; i < 60; ++i) bench.iterate();
    told = {};
    bench.iterate();
    REQUIRE(told.submitted.size() == 7);
    const auto near_us = [](int64_t us) { return Approx(static_cast<double>(us) * 1000).epsilon(0.07); };
    CHECK(told.submitted[1].predicted.ns == near_us(c.first_us));
    CHECK(told.submitted[3].predicted.ns == near_us(c.second_us));
    CHECK(told.submitted[6].predicted.ns == near_us(c.third_us));
    CHECK(told.submitted[3].gap.ns == near_us(c.gap_us));
    CHECK(told.submitted[3].expected.ns == near_us(50));
    // A launch that waits is told as the launch it will be.
    bench.launch(1);
    bench.tell(Held{ClientId{1}, DeviceId{0}, ThreadSlot{0}, StreamSlot{}, Ticket{1}, KernelId{7},
                    Instant{bench.now_ns}});
    REQUIRE(told.waiting.size() == 1);
    CHECK(told.waiting[0].predicted.ns == near_us(c.first_us));
  }
}

TEST_CASE("What is charged is the kernel's mean, whatever the policy is told") {
  std::vector<std::vector<std::pair<uint64_t, int64_t>>> published;
  for (size_t how = 0; how <= pol::kPlainPredictors; ++how) {
    Bench bench(static_cast<pol::Predictor>(how));
    for (int i = 0; i < 40; ++i) bench.iterate();
    auto& list = published.emplace_back();
    for (const Output& output : bench.out) {
      if (const auto* p = std::get_if<Predict>(&output)) {
        list.emplace_back(p->kernel.value, p->length.ns);
      }
    }
    CHECK(list.size() > 5);
    CHECK(list == published.front());
  }
}

TEST_CASE("What is told done is what was told launched, under every predictor") {
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::vector<int64_t> sums;
  for (size_t how = 0; how <= pol::kPlainPredictors; ++how) {
    std::mt19937_64 random(seed);
    Bench bench(static_cast<pol::Predictor>(how));
    for (int i = 0; i < 20; ++i) bench.iterate();
    for (int i = 0; i < 6000; ++i) {  // beyond what a stream holds one by one
      bench.launch(random() % 12, random() % 50 != 0);
      if (random() % 400 == 0) bench.tell(Cancelled{ClientId{1}, StreamSlot{}, bench.sequence});
      if (random() % 5 == 0) {
        bench.tell(Timed{ClientId{1}, KernelId{random() % 12},
                         Duration{static_cast<int64_t>(random() % 90'000)}, Duration{-1}});
      }
      if (random() % 3000 == 0) {
        bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence - random() % 20});
      }
      REQUIRE(told.in_flight_ns[1] == bench.engine.status().clients[0].devices[0].in_flight.ns);
    }
    bench.now_ns += 10'000'000'000;
    bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence});
    uint32_t units = 0;
    for (const auto& done : told.completed) units += done.units;
    CHECK(units == told.submitted.size());
    CHECK(told.in_flight_ns[1] == 0);
    CHECK(bench.engine.status().clients[0].devices[0].in_flight.ns == 0);
    int64_t sum = 0;
    for (const auto& launch : told.submitted) sum += launch.predicted.ns;
    sums.push_back(sum);
  }
  CHECK(sums[1] > sums[0]);  // they are not all the same
}

TEST_CASE("A kernel that was never measured is told as long as 19 in 20 of the others") {
  Bench bench(pol::Predictor::kQuantile);
  bench.launch(99);
  CHECK(told.submitted.back().predicted.ns == 50'000);
  for (uint64_t k = 1; k <= 10; ++k) {
    bench.launch(k);
    bench.measure(k, static_cast<int64_t>(k) * 10'000, -1);
  }
  bench.launch(98);
  CHECK(told.submitted.back().predicted.ns == Approx(100'000).epsilon(0.07));
  CHECK(told.submitted.back().predicted.ns >= 100'000);
  CHECK(told.submitted.back().expected.ns == 55'000);
  CHECK(told.submitted.back().gap.ns == -1);
}

// Kernel 9 takes 5 ms behind kernel 1 and 12 behind kernel 2; one launch of each is measured.
TEST_CASE("How long a long kernel took is seen from its completions, too") {
  Bench bench(pol::Predictor::kBest);
  const auto launch = [&](uint64_t behind) {
    bench.launch(behind);
    bench.measure(behind, 5'000, 0);
    bench.launch(9);
    return told.submitted.back().predicted.ns;
  };
  const auto complete = [&](int64_t ns) {
    bench.now_ns += ns;
    bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence});
  };
  launch(1);
  bench.measure(9, 5'000'000, 0);
  for (int n = 0; n < 6; ++n) {
    launch(2);
    complete(12'000'000);
    launch(1);
    complete(5'000'000);
  }
  CHECK(launch(2) == Approx(12e6).epsilon(0.07));
  complete(12'000'000);
  CHECK(launch(1) == Approx(5e6).epsilon(0.07));
  complete(5'000'000);

  const auto two = [&](int64_t second_ns) {
    launch(2);
    const uint64_t first = bench.sequence;
    bench.launch(2);
    bench.launch(9);
    bench.now_ns += 12'000'000;
    bench.tell(Progressed{ClientId{1}, StreamSlot{}, first});
    bench.tell(Progressed{ClientId{1}, StreamSlot{}, first + 1});
    complete(second_ns);
    launch(2);
    complete(12'000'000);
  };
  SECTION("behind other work that says little") {
    for (int n = 0; n < 20; ++n) two(6'000'000);
    launch(2);
    CHECK(told.submitted.back().expected.ns == Approx(12e6).epsilon(0.03));
  }
  SECTION("however long that was, and how important the others are") {
    for (int n = 0; n < 20; ++n) two(20'000'000);
    CHECK(launch(2) == Approx(12e6).epsilon(0.07));
    complete(12'000'000);
    bench.tell(ClientAttached{ClientId{2}, JobId{2}, Priority{2}, "important"});
    bench.tell(DeviceUsed{ClientId{2}, DeviceId{0}});
    for (int n = 0; n < 24; ++n) two(20'000'000);
    CHECK(launch(2) == Approx(12e6).epsilon(0.07));
    complete(12'000'000);
    for (uint64_t n = 1; n <= 40; ++n) {  // behind one kernel of theirs
      bench.tell(Launched{.client = ClientId{2}, .device = DeviceId{0}, .stream = {}, .sequence = n,
                          .kernel = KernelId{5}, .at = Instant{bench.now_ns}, .tracked = true});
      launch(2);
      complete(30'000'000);
      bench.tell(Progressed{ClientId{2}, StreamSlot{}, n});
    }
    CHECK(launch(2) == Approx(12e6).epsilon(0.07));
  }
  SECTION("nor beside others that had work done meanwhile") {
    bench.tell(ClientAttached{ClientId{2}, JobId{2}, Priority{5}, "other"});
    bench.tell(DeviceUsed{ClientId{2}, DeviceId{0}});
    for (uint64_t n = 1; n <= 20; ++n) {
      launch(2);
      bench.tell(Launched{.client = ClientId{2}, .device = DeviceId{0}, .stream = {}, .sequence = n,
                          .kernel = KernelId{5}, .at = Instant{bench.now_ns}, .tracked = true});
      bench.now_ns += 8'000'000;
      bench.tell(Progressed{ClientId{2}, StreamSlot{}, n});
      complete(2'000'000);
    }
    launch(2);
    CHECK(told.submitted.back().expected.ns == Approx(12e6).epsilon(0.03));
  }
}

TEST_CASE("A policy is told by the predictor of its row, and heads anew when it comes") {
  std::vector<pol::PolicyRow> rows{kRows[0], kRows[0]};
  rows[1].name = "careful";
  rows[1].predictor = pol::Predictor::kPosition;
  Bench bench(std::nullopt, rows);
  for (int i = 0; i < 60; ++i) bench.iterate();
  bench.launch(1);
  bench.tell(Held{ClientId{1}, DeviceId{0}, ThreadSlot{0}, StreamSlot{}, Ticket{1}, KernelId{7},
                  Instant{bench.now_ns}});
  CHECK(told.waiting.back().predicted.ns == Approx(50'000).epsilon(0.05));
  bench.tell(PolicyChanged{"careful"});
  REQUIRE(told.waiting.size() == 2);
  CHECK(told.waiting.back().predicted.ns == Approx(10'000).epsilon(0.07));
}

TEST_CASE("A measurement counts unless others were there before the launch had completed") {
  enum class Other { kAfter, kMeanwhile, kBefore };
  struct Case {
    Other other;
    int64_t ns;
    uint64_t counted;
  };
  // What is as it was alone, at the same place, did not suffer from it.
  for (const Case& c : {Case{Other::kAfter, 10'500, 9}, Case{Other::kMeanwhile, 10'500, 8},
                        Case{Other::kBefore, 10'500, 8}, Case{Other::kMeanwhile, 10'000, 9}}) {
    INFO(static_cast<int>(c.other) << ", " << c.ns << " ns");
    Bench bench(pol::Predictor::kMean);
    bench.tell(ClientAttached{ClientId{2}, JobId{2}, Priority{5}, "other"});
    bench.tell(DeviceUsed{ClientId{2}, DeviceId{0}});
    const auto other_launches = [&bench] {
      bench.tell(Launched{.client = ClientId{2}, .device = DeviceId{0}, .stream = {}, .sequence = 1,
                          .kernel = KernelId{5}, .at = Instant{bench.now_ns}});
    };
    const auto complete = [&bench] {
      bench.now_ns += 10'000;
      bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence});
    };
    for (int i = 0; i < 8; ++i) {
      bench.launch(1);
      bench.measure(1, 10'000, -1);
    }
    if (c.other == Other::kBefore) other_launches();
    bench.launch(1);
    const Instant launched{bench.now_ns};
    if (c.other == Other::kMeanwhile) other_launches();
    complete();
    if (c.other == Other::kAfter) other_launches();
    bench.tell(Timed{ClientId{1}, KernelId{1}, Duration{c.ns}, Duration{-1}, launched, StreamSlot{},
                     bench.sequence});
    REQUIRE(bench.engine.record(ClientId{1})->kernels.size() == 1);
    CHECK(bench.engine.record(ClientId{1})->kernels[0].saved.count == c.counted);
  }
}

// A kernel of 0.3 ms beside the client's own collective of 8 ms, on a device that runs one at a time, or a copy.
TEST_CASE("What ran beside its own client's longer work on another stream is no measure of a length") {
  enum class Beside { kNothing, kBefore, kMeanwhile, kToTheEnd, kCopy, kOnAnother };
  constexpr int64_t kShort = 300'000, kLong = 8'000'000;
  for (const pol::Predictor predictor : {pol::Predictor::kQuantile, pol::Predictor::kPair}) {
    for (const Beside beside : {Beside::kNothing, Beside::kBefore, Beside::kMeanwhile, Beside::kToTheEnd, Beside::kCopy,
                                Beside::kOnAnother}) {
      INFO(pol::name_of(predictor) << ", " << static_cast<int>(beside));
      Bench bench(predictor);
      const bool on_another = beside == Beside::kOnAnother;
      if (on_another) bench.tell(DeviceUsed{ClientId{1}, DeviceId{1}});
      uint64_t others = 0;
      const auto other = [&](bool copy) {
        bench.tell(Launched{.client = ClientId{1}, .device = DeviceId{on_another ? 1U : 0U}, .stream = StreamSlot{1}, .sequence = ++others,
                            .kernel = KernelId{copy ? 3U : 2U}, .at = Instant{bench.now_ns}, .tracked = true, .copy = copy});
      };
      const auto end_other = [&](bool copy, int64_t after_ns) {
        bench.now_ns += after_ns;
        bench.tell(Timed{ClientId{1}, KernelId{copy ? 3U : 2U}, Duration{kLong}, Duration{-1}, Instant{bench.now_ns - kLong},
                         StreamSlot{1}, others});
        bench.tell(Progressed{ClientId{1}, StreamSlot{1}, others});
      };
      const auto timed = [&](int64_t took_ns, Instant launched) {
        bench.tell(Timed{ClientId{1}, KernelId{1}, Duration{took_ns}, Duration{1'000}, launched, StreamSlot{},
                         bench.sequence});
      };
      const auto complete = [&] { bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence}); };
      for (int n = 0; n < 8; ++n) {
        other(/*copy=*/beside == Beside::kCopy);
        end_other(/*copy=*/beside == Beside::kCopy, kLong);
        bench.launch(1);
        const Instant launched{bench.now_ns};
        bench.now_ns += kShort;
        timed(kShort, launched);
        complete();
      }
      for (int n = 0; n < 12; ++n) {  // of more in a row it would be thought that the kernel has become longer
        const bool copy = beside == Beside::kCopy;
        const bool before = beside == Beside::kBefore || copy || on_another;
        if (before) other(copy);
        bench.launch(1);
        const Instant launched{bench.now_ns};
        if (beside == Beside::kMeanwhile || beside == Beside::kToTheEnd) other(copy);
        if (before || beside == Beside::kMeanwhile) end_other(copy, kLong);
        bench.now_ns += kShort + (beside == Beside::kToTheEnd ? kLong : 0);
        if (beside == Beside::kToTheEnd) timed(kLong + kShort, launched);
        complete();
        if (beside == Beside::kToTheEnd) end_other(copy, 0);
        if (beside == Beside::kNothing) timed(kShort, launched);
        if (before || beside == Beside::kMeanwhile) timed(kLong + kShort, launched);
      }
      bench.launch(1);
      const int64_t told_ns = told.submitted.back().predicted.ns;
      if (beside == Beside::kCopy || on_another)
        CHECK(told_ns > 4 * kShort);  // those have another engine: the kernel is longer now
      else
        CHECK(told_ns == Approx(kShort).epsilon(0.07));
    }
  }
}

// Of the task eight kernels of 10 us are known, or seven; the ninth, which is there meanwhile, may take as long, or any.
TEST_CASE("What ran beside its own client's unmeasured kernel is a measure where it is long against those of its task") {
  struct Case {
    uint64_t known;
    int64_t ns;
    uint64_t counted;
  };
  for (const Case& c : {Case{8, 200'000, 10}, Case{8, 60'000, 9}, Case{7, 200'000, 9}, Case{7, 60'000, 9}}) {
    INFO(c.known << " known, " << c.ns << " ns");
    Bench bench(pol::Predictor::kMean);
    for (uint64_t kernel = c.known; kernel >= 2; --kernel) {
      bench.launch(kernel);
      bench.measure(kernel, 10'000, -1);
    }
    for (int n = 0; n < 8; ++n) {
      bench.launch(1);
      bench.measure(1, 10'000, -1);
    }
    bench.tell(Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{1}, .sequence = 1,
                        .kernel = KernelId{99}, .at = Instant{bench.now_ns}, .tracked = true});
    bench.launch(1);
    const Instant launched{bench.now_ns};
    bench.now_ns += c.ns;
    bench.tell(Timed{ClientId{1}, KernelId{1}, Duration{c.ns}, Duration{-1}, launched, StreamSlot{}, bench.sequence});
    bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence});
    bench.tell(Progressed{ClientId{1}, StreamSlot{1}, 1});
    bench.now_ns += 100'000'000;
    bench.launch(1);
    bench.measure(1, 10'000, -1);  // as long as ever: the one before was no drift
    const auto record = bench.engine.record(ClientId{1});
    REQUIRE(record->kernels.size() == c.known);
    uint64_t most = 0;
    for (const auto& kernel : record->kernels) most = std::max<uint64_t>(most, kernel.saved.count);
    CHECK(most == c.counted);
  }
}

TEST_CASE("Measurements find their launches, however many another stream has made") {
  Bench bench(pol::Predictor::kQuantile);
  const auto other = [&](uint64_t sequence) {
    bench.tell(Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{1}, .sequence = sequence,
                        .kernel = KernelId{2}, .at = Instant{bench.now_ns}, .tracked = true});
    bench.tell(Progressed{ClientId{1}, StreamSlot{1}, sequence});
  };
  bench.tell(ClientAttached{ClientId{2}, JobId{2}, Priority{5}, "other"});
  bench.tell(DeviceUsed{ClientId{2}, DeviceId{0}});
  bench.launch(1);
  const Instant launched{bench.now_ns};
  bench.now_ns += 10'000;
  bench.tell(Progressed{ClientId{1}, StreamSlot{}, bench.sequence});
  for (uint64_t n = 1; n <= 3'000; ++n) other(n);
  // Others come later: what was complete before that has had no co-running work.
  bench.tell(Launched{.client = ClientId{2}, .device = DeviceId{0}, .stream = {}, .sequence = 1, .kernel = KernelId{5},
                      .at = Instant{bench.now_ns}});
  for (int n = 0; n < 2; ++n)
    bench.tell(Timed{ClientId{1}, KernelId{1}, Duration{10'000}, Duration{-1}, launched, StreamSlot{}, bench.sequence});
  CHECK(bench.engine.record(ClientId{1})->kernels[0].saved.count == 2);
}
