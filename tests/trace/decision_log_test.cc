#include "coordinator/trace/decision_log.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "tests/seed.h"
#include "tests/trace/random_trace.h"

namespace lull::trace {
namespace {

using namespace engine;

// Inputs of a few clients on two devices, with lies among them: whatever comes, the engine takes it.
class RandomInputs {
 public:
  explicit RandomInputs(uint64_t seed) : random_(seed) {}

  Instant now{1000};
  std::vector<Input> next() {
    now = now + Duration{static_cast<int64_t>(below(20'000))};
    std::vector<Input> inputs;
    for (uint64_t n = below(4); n > 0; --n) inputs.push_back(one());
    return inputs;
  }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }
  ClientId client() { return {static_cast<uint32_t>(below(6))}; }
  DeviceId device() { return {static_cast<uint32_t>(below(2))}; }
  StreamSlot stream() { return {static_cast<uint32_t>(below(3))}; }
  KernelId kernel() { return {below(8) == 0 ? random_() : 1 + below(9)}; }
  SlowdownBound bound() {
    if (below(3) == 0) return {};
    return {static_cast<int32_t>(random_()), static_cast<int32_t>(below(100))};
  }
  Priority priority() { return {static_cast<uint8_t>(below(10))}; }
  Input one() {
    switch (below(24)) {
      case 0:
      case 1:
        return ClientAttached{client(), {1 + below(9)}, priority(), fmt::format("task {}", below(4)), bound()};
      case 2:
      case 3:
      case 4:
        return DeviceUsed{client(), device()};
      case 5:
        return below(4) == 0 ? Input{ClientDetached{client()}} : Input{TimerFired{}};
      case 6:
        return PriorityChanged{client(), priority()};
      case 7: {
        const char* policies[] = {"share", "exclusive", "time_slice", "priority in_flight_us=50", "fikit", "nonsense"};
        return below(10) == 0 ? Input{PolicyChanged{policies[below(6)]}} : Input{TimerFired{}};
      }
      case 8:
      case 9:
      case 10:
      case 11:
        return Held{client(), device(), {static_cast<uint32_t>(below(3))}, stream(),
                    {static_cast<uint32_t>(1 + below(99))}, kernel(), now};
      case 12:
        return engine::Cancelled{client(), stream(), below(400)};
      case 13:
      case 14:
        return Progressed{client(), stream(), below(sequence_ + 2)};
      case 15:
      case 16:
        return Timed{client(), kernel(), {static_cast<int64_t>(below(900'000))},
                     {static_cast<int64_t>(below(90'000)) - 1}, below(2) == 0 ? kNever : now};
      default:
        return Launched{client(), device(), stream(), ++sequence_, kernel(), now, below(3) != 0,
                        {static_cast<uint32_t>(below(3) == 0 ? 1 + below(99) : 0)},
                        {static_cast<uint32_t>(below(3))}};
    }
  }
  std::mt19937_64 random_;
  uint64_t sequence_ = 0;
};

// Drives an engine, logs what it did, and gives every step's outputs as bytes.
std::vector<std::vector<uint8_t>> record(const std::string& path, uint64_t seed, size_t steps,
                                         size_t flush_every) {
  auto log = DecisionLogWriter::create(path, {"0.1.0", "host", 5});
  REQUIRE(log.has_value());
  RandomInputs random(seed);
  std::vector<std::vector<uint8_t>> all;
  std::unique_ptr<Engine> engine;
  std::vector<Output> outputs;
  for (size_t n = 0; n < steps; ++n) {
    if (n % (steps / 2) == 0) {  // a fresh engine in the middle
      EngineOptions options{.policy = n == 0 ? "priority" : "time_slice", .max_clients = 5,
                            .control_latency = {10'000}};
      engine = std::make_unique<Engine>(options);
      log->begun(options);
    }
    const auto inputs = random.next();
    outputs.clear();
    engine->step(random.now, inputs, outputs);
    log->step(random.now, inputs, outputs);
    all.push_back(outputs_as_bytes(outputs));
    if (flush_every != 0 && n % flush_every == 0) log->flush();
  }
  CHECK(log->steps() == steps);
  REQUIRE(log->finish().has_value());
  return all;
}

TEST_CASE("a decision log replays to the same outputs, step by step") {
  TempFolder folder;
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  const std::string path = folder.file("log");
  const auto expected = record(path, seed, 6000, 700);
  auto log = DecisionLogReader::open(path);
  REQUIRE(log.has_value());
  CHECK(log->info().lull_version == "0.1.0");
  CHECK(log->info().host == "host");
  const Replay result = replay(*log);
  CHECK(log->problem().empty());
  CHECK(result.engines == 2);
  CHECK(result.steps == 6000);
  CHECK(result.inputs > 5000);
  CHECK(result.outputs > 1000);
  CHECK(result.different_step == 0);

  // The log's own outputs are those that came, and its inputs those that went in.
  auto again = DecisionLogReader::open(path);
  RandomInputs random(seed);
  size_t n = 0;
  while (const Decision* decision = again->next()) {
    const auto* step = std::get_if<EngineStep>(decision);
    if (step == nullptr) continue;
    const auto inputs = random.next();
    REQUIRE(step->now == random.now);
    REQUIRE(inputs_as_bytes(step->inputs) == inputs_as_bytes(inputs));
    REQUIRE(outputs_as_bytes(step->outputs) == expected[n++]);
  }
  CHECK(n == 6000);
}

TEST_CASE("what a client may lose is kept to the thousandth, and so is that it said nothing") {
  TempFolder folder;
  const std::string path = folder.file("log");
  const SlowdownBound bounds[] = {{}, {0, 0}, {30, 50}, {10'000, 10'000}, {INT32_MIN, INT32_MAX}};
  {
    auto log = DecisionLogWriter::create(path, {});
    REQUIRE(log.has_value());
    std::vector<Input> inputs;
    for (const SlowdownBound& bound : bounds) {
      inputs.push_back(ClientAttached{{1}, {1}, {2}, "task", bound});
    }
    log->step(Instant{1000}, inputs, {});
  }
  auto log = DecisionLogReader::open(path);
  REQUIRE(log.has_value());
  const Decision* decision = log->next();
  REQUIRE(decision != nullptr);
  const auto& inputs = std::get<EngineStep>(*decision).inputs;
  REQUIRE(inputs.size() == std::size(bounds));
  for (size_t n = 0; n < inputs.size(); ++n) {
    CHECK(std::get<ClientAttached>(inputs[n]).bound == bounds[n]);
    CHECK(std::get<ClientAttached>(inputs[n]).task == "task");
  }
}

TEST_CASE("a replay says at which step an engine decides otherwise") {
  TempFolder folder;
  const std::string path = folder.file("log");
  {
    auto log = DecisionLogWriter::create(path, {});
    REQUIRE(log.has_value());
    EngineOptions options{.policy = "share"};
    log->begun(options);
    Engine engine(options);
    RandomInputs random(1);
    std::vector<Output> outputs;
    for (int n = 1; n <= 100; ++n) {
      const auto inputs = random.next();
      outputs.clear();
      engine.step(random.now, inputs, outputs);
      if (n == 57) outputs.emplace_back(Notice{"decided by somebody else"});
      log->step(random.now, inputs, outputs);
    }
  }
  auto log = DecisionLogReader::open(path);
  REQUIRE(log.has_value());
  CHECK(replay(*log).different_step == 57);
}

TEST_CASE("a cut decision log is read up to its last whole block, a trace is none") {
  TempFolder folder;
  const std::string path = folder.file("log");
  record(path, 3, 1000, 100);
  const std::string bytes = read_bytes(path);
  size_t most = 0;
  for (size_t size = bytes.size(); size > 200; size -= 331) {
    write_bytes(folder.file("cut"), bytes.substr(0, size));
    auto log = DecisionLogReader::open(folder.file("cut"));
    REQUIRE(log.has_value());
    const Replay result = replay(*log);
    CHECK(result.different_step == 0);
    CHECK(log->was_cut() == !log->problem().empty());
    CHECK((result.steps == 1000 || result.steps % 100 == 1 || result.steps == 0));
    most = std::max<size_t>(most, result.steps);
    if (size < 331) break;
  }
  CHECK(most == 1000);
  write_trace(folder.file("trace"), {});
  const auto trace = DecisionLogReader::open(folder.file("trace"));
  REQUIRE_FALSE(trace.has_value());
  CHECK(trace.error().find("it is a trace, not a decision log") != std::string::npos);
  const auto other = Reader::open(path);
  REQUIRE_FALSE(other.has_value());
  CHECK(other.error().find("it is a decision log, not a trace") != std::string::npos);
}

// Whole blocks with right checksums and wrong content.
TEST_CASE("the decision log's reader survives thousands of mutated files") {
  TempFolder folder;
  const uint64_t seed = tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string path = folder.file("log");
  record(folder.file("good"), 9, 60, 0);
  auto good = BlockFileReader::open(folder.file("good"), FileKind::kDecisionLog);
  REQUIRE(good.has_value());
  std::vector<std::pair<BlockType, std::vector<uint8_t>>> blocks;
  while (good->next() == BlockFileReader::Result::kBlock) {
    blocks.emplace_back(good->type(), std::vector<uint8_t>(good->raw().begin(), good->raw().end()));
  }
  uint64_t refused = 0;
  for (int n = 0; n < 3000; ++n) {
    const auto head = file_head(FileKind::kDecisionLog);
    std::string bytes(head.begin(), head.end());
    BlockPacker packer;
    for (const auto& [type, raw] : blocks) {
      auto bad = raw;
      for (uint64_t m = 1 + random() % 4; m > 0 && !bad.empty(); --m) {
        const size_t at = random() % bad.size();
        switch (random() % 3) {
          case 0: bad[at] = static_cast<uint8_t>(random()); break;
          case 1: bad.resize(at); break;
          default: bad.insert(bad.begin() + static_cast<ptrdiff_t>(at), static_cast<uint8_t>(random()));
        }
      }
      const auto packed = packer.pack(type, type == BlockType::kHead && n % 8 != 0 ? raw : bad);
      bytes.append(packed.begin(), packed.end());
    }
    write_bytes(path, bytes);
    auto log = DecisionLogReader::open(path);
    if (!log) {
      ++refused;
      continue;
    }
    while (log->next() != nullptr) {
    }
    refused += log->problem().empty() ? 0 : 1;
  }
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace lull::trace
