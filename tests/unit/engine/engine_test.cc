// What scenario files cannot tell: policies that break the rules, bounds, bad options. The rest of
// the engine's behaviour stands in tests/scenarios.
#include "coordinator/channel/gate.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/flight.h"

#include <catch2/catch.hpp>
#include <map>

using namespace lull;
using namespace lull::engine;
namespace pol = lull::policies;

namespace {

template <typename T>
std::vector<T> only(const std::vector<Output>& outputs) {
  std::vector<T> found;
  for (const Output& output : outputs) {
    if (const T* one = std::get_if<T>(&output)) found.push_back(*one);
  }
  return found;
}

std::vector<Output> step(Engine& engine, int64_t us, std::vector<Input> inputs) {
  std::vector<Output> out;
  engine.step(Instant{us * 1000}, inputs, out);
  return out;
}

ClientAttached attach(uint32_t id, uint8_t level) {
  return {ClientId{id}, JobId{id}, Priority{level}, "task"};
}
ClientAttached attach(uint32_t id, uint8_t level, SlowdownBound bound) {
  return {ClientId{id}, JobId{id}, Priority{level}, "task", bound};
}
DeviceUsed uses(uint32_t id, uint32_t device = 0) { return {ClientId{id}, DeviceId{device}}; }
Held held(uint32_t id, uint32_t thread, uint32_t ticket, int64_t at_us) {
  return {ClientId{id}, DeviceId{0}, ThreadSlot{thread}, StreamSlot{0},
          Ticket{ticket}, KernelId{1}, Instant{at_us * 1000}};
}

// The row of a policy that holds by order and has one setting, 0 .. 100.
template <typename Policy>
pol::PolicyRow row_of(std::string_view name) {
  return {name,
          {{{Policy::kSetting, 0, 0, 100}}},
          pol::ProgressNeed::kNever,
          pol::Holding::kByOrder,
          [](const pol::SettingValues& values) -> std::unique_ptr<pol::LaunchPolicy> {
            return std::make_unique<Policy>(values[Policy::kSetting]);
          }};
}

// A policy that keeps who has peers.
std::map<uint32_t, bool> peers;
class Census final : public pol::LaunchPolicy {
 public:
  static constexpr std::string_view kSetting = "unused";
  explicit Census(int64_t) {}
  void step(Instant, std::span<const pol::Event> events, std::vector<pol::Decision>&) override {
    for (const pol::Event& event : events) {
      if (const auto* joined = std::get_if<pol::Joined>(&event)) peers[joined->client.value] = joined->has_peers;
      if (const auto* now = std::get_if<pol::Reprioritised>(&event)) peers[now->client.value] = now->has_peers;
    }
  }
};
const pol::PolicyRow kCensusRows[] = {row_of<Census>("census")};

// A policy that closes every gate and, when a launch waits, breaks the rule it was made for.
class Rogue final : public pol::LaunchPolicy {
 public:
  static constexpr std::string_view kSetting = "rule";
  explicit Rogue(int64_t rule) : rule_(rule) {}
  void step(Instant now, std::span<const pol::Event> events,
            std::vector<pol::Decision>& out) override {
    for (const pol::Event& event : events) {
      if (const auto* joined = std::get_if<pol::Joined>(&event)) {
        out.push_back(pol::Close{joined->client});
      }
      if (const auto* left = std::get_if<pol::Left>(&event); left && rule_ == 0) {
        out.push_back(pol::Open{left->client});
      }
      if (const auto* waiting = std::get_if<pol::Waiting>(&event)) misbehave(now, *waiting, out);
    }
  }

 private:
  void misbehave(Instant now, const pol::Waiting& pending, std::vector<pol::Decision>& out) const {
    const pol::ReleaseLaunch release{pending.client, pending.thread, pending.ticket};
    switch (rule_) {
      case 1:
        out.push_back(pol::Credit{pending.client, Duration{-1}});
        break;
      case 2:
        out.push_back(pol::Credit{pending.client, Duration{INT64_MAX}});
        break;
      case 3: out.insert(out.end(), {release, release}); break;
      case 4:
        out.push_back(pol::ReleaseLaunch{pending.client, pending.thread, Ticket{99}});
        break;
      case 5: out.push_back(pol::WakeAt{now}); break;
      case 6:
        out.assign(100'000, pol::Close{pending.client});
        break;
      case 7: out.push_back(pol::Close{ClientId{4711}}); break;
      default: break;
    }
  }
  const int64_t rule_;
};

const pol::PolicyRow kRogueRows[] = {row_of<Rogue>("rogue")};

// Gives each client credit by what it may lose, plus the setting.
class Teller final : public pol::LaunchPolicy {
 public:
  static constexpr std::string_view kSetting = "plus";
  explicit Teller(int64_t plus) : plus_(plus) {}
  void step(Instant, std::span<const pol::Event> events, std::vector<pol::Decision>& out) override {
    for (const pol::Event& event : events) {
      const auto* joined = std::get_if<pol::Joined>(&event);
      if (joined == nullptr || !joined->bound.is_set()) continue;
      const int64_t both = joined->bound.mean_per_mille + joined->bound.p99_per_mille * 20'000;
      out.push_back(pol::Credit{joined->client, Duration{2 * (both * 100 + plus_)}});
    }
  }

 private:
  const int64_t plus_;
};
const pol::PolicyRow kTellerRows[] = {row_of<Teller>("teller")};

// Once a client has launched, it has as much credit as the setting says, in units of 10 us.
class Miser final : public pol::LaunchPolicy {
 public:
  static constexpr std::string_view kSetting = "credit";
  explicit Miser(int64_t credit) : credit_(credit) {}
  void step(Instant, std::span<const pol::Event> events, std::vector<pol::Decision>& out) override {
    for (const pol::Event& event : events) {
      if (const auto* launch = std::get_if<pol::Submitted>(&event))
        out.push_back(pol::Credit{launch->client, Duration{10'000 * credit_}, /*any_length=*/false});
    }
  }

 private:
  const int64_t credit_;
};
const pol::PolicyRow kMiserRows[] = {row_of<Miser>("miser")};

// Its credit is never the same for long, but always more than one launch of unknown length.
class Waverer final : public pol::LaunchPolicy {
 public:
  void step(Instant now, std::span<const pol::Event> events,
            std::vector<pol::Decision>& out) override {
    for (const pol::Event& event : events) {
      if (const auto* joined = std::get_if<pol::Joined>(&event)) client_ = joined->client;
    }
    more_ = !more_;
    out.push_back(pol::Credit{client_, Duration{more_ ? 200'000 : 180'000}});
    out.push_back(pol::WakeAt{now + Duration{50'000}});
  }

 private:
  ClientId client_;
  bool more_ = false;
};
const pol::PolicyRow kWavererRows[] = {
    {"waverer",
     {},
     pol::ProgressNeed::kNever,
     pol::Holding::kByOrder,
     [](const pol::SettingValues&) -> std::unique_ptr<pol::LaunchPolicy> {
       return std::make_unique<Waverer>();
     }}};

EngineOptions with(std::string policy) {
  EngineOptions options;
  options.policy = std::move(policy);
  return options;
}

}  // namespace

TEST_CASE("A policy that breaks a rule is replaced by share, and the gates open") {
  const int rule = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  CAPTURE(rule);
  EngineOptions options = with("rogue rule=" + std::to_string(rule));
  options.policies = kRogueRows;
  Engine engine(options);
  auto out = step(engine, 0, {attach(1, 5), uses(1), attach(2, 5), uses(2)});
  CHECK(only<SetGate>(out).size() == 2);
  CHECK(only<Notice>(out).empty());
  if (rule == 0) {
    out = step(engine, 1, {ClientDetached{ClientId{2}}});
    CHECK(only<SetGate>(out).size() == 1);
  } else {
    out = step(engine, 1, {held(1, 0, 1, 1)});
    CHECK(only<SetGate>(out).size() == 2);
  }
  REQUIRE(only<Notice>(out).size() == 1);
  CHECK(only<Notice>(out)[0].text.starts_with("policy rogue broke a rule on device 0"));
  for (const SetGate& gate : only<SetGate>(out)) CHECK(gate.gate == Gate::kOpen);
  CHECK(only<Release>(out).size() == (rule == 3 ? 1 : 0));
  CHECK(engine.status().policy == "share");
  CHECK(engine.status().notices.size() == 1);
}

TEST_CASE("Policies are told what a client may lose, as far as it counts, when it joins and when they do") {
  EngineOptions options = with("teller");
  options.policies = kTellerRows;
  Engine engine(options);
  const auto told = [](const std::vector<Output>& outputs) {
    std::vector<std::pair<uint32_t, int64_t>> all;
    for (const SetGate& gate : only<SetGate>(outputs)) {
      all.emplace_back(gate.client.value, gate.granted.ns / 2);
    }
    return all;
  };
  using All = std::vector<std::pair<uint32_t, int64_t>>;
  CHECK(told(step(engine, 0,
                  {attach(1, 2, {30, 50}), uses(1), attach(2, 2), uses(2), attach(3, 2, {0, -7}), uses(3),
                   attach(4, 2, {INT32_MAX, INT32_MAX}), uses(4), attach(5, 2, {-3, 50}), uses(5)})) ==
        All{{1, 100'003'000}, {3, 0}, {4, 20'001'000'000}});
  const auto again = told(step(engine, 1000, {PolicyChanged{"teller plus=9"}}));
  CHECK(again == All{{1, 100'003'009}, {3, 9}, {4, 20'001'000'009}});
}

TEST_CASE("A policy within the rules stays") {
  EngineOptions options = with("rogue rule=50");
  options.policies = kRogueRows;
  Engine engine(options);
  step(engine, 0, {attach(1, 5), uses(1)});
  CHECK(only<Notice>(step(engine, 1, {held(1, 0, 1, 1)})).empty());
  CHECK(engine.status().policy == "rogue rule=50");
}

TEST_CASE("A launch that should fit is not held for ever by a grant that keeps changing") {
  EngineOptions options = with("waverer");
  options.policies = kWavererRows;
  Engine engine(options);
  CHECK(only<SetGate>(step(engine, 0, {attach(1, 5), uses(1)})).size() == 1);
  int changes = 0, epochs = 0;
  step(engine, 10, {held(1, 0, 1, 10)});
  for (int64_t us = 50; us <= 2500; us += 50) {
    for (const SetGate& gate : only<SetGate>(step(engine, us, {}))) {
      changes += 1;
      epochs += gate.new_epoch ? 1 : 0;
    }
  }
  CHECK(changes > 30);
  CHECK(epochs >= 1);
  CHECK(epochs <= 2);
}

// A grant is in effect up to the control latency after its step, and often sooner.
TEST_CASE("A launch right after a grant counts against it, unless an earlier one may still be spent") {
  EngineOptions options = with("waverer");
  options.policies = kWavererRows;
  options.control_latency = Duration{10'000};
  Engine engine(options);
  const auto launched = [](uint64_t sequence, int64_t at_us) {
    Launched launch{ClientId{1}, DeviceId{0}, StreamSlot{0}, sequence, KernelId{1}, Instant{at_us * 1000}};
    launch.charged = Duration{50'000};
    return launch;
  };
  step(engine, 0, {attach(1, 5), uses(1)});
  // 50 us are spent and 50 in flight of 180.
  auto gates = only<SetGate>(step(engine, 6, {launched(1, 5)}));
  REQUIRE(gates.size() == 1);
  CHECK_FALSE(gates[0].new_epoch);
  CHECK(gates[0].granted.ns / 1000 == 180);
  // A new epoch, while 130 us of the old one may be spent yet: one launch of them is.
  Instant now{6'000};
  step(engine, 7, {Progressed{ClientId{1}, StreamSlot{0}, 1}, held(1, 0, 1, 7)});
  for (gates.clear(); gates.empty() || !gates[0].new_epoch; now = now + Duration{50'000}) {
    REQUIRE(now.ns < 3'000'000);
    gates = only<SetGate>(step(engine, now.ns / 1000, {}));
  }
  now = now - Duration{50'000};
  gates = only<SetGate>(step(engine, now.ns / 1000 + 6, {launched(2, now.ns / 1000 + 5)}));
  REQUIRE(gates.size() == 1);
  CHECK(gates[0].granted.ns < 60'000);  // 180 less what is in flight and what may come of the old one
}

TEST_CASE("A first policy that is not understood becomes share, with a notice") {
  Engine engine(with("prority"));
  const auto out = step(engine, 0, {});
  REQUIRE(only<Notice>(out).size() == 1);
  CHECK(only<Notice>(out)[0].text ==
        "policy share: unknown policy 'prority': one of share, exclusive, time_slice, priority, fikit, guarded");
  CHECK(engine.status().policy == "share");
}

TEST_CASE("Clients beyond the bound are dropped and told about once") {
  EngineOptions options = with("exclusive");
  options.max_clients = 2;
  Engine engine(options);
  const auto out = step(engine, 0, {attach(1, 5), uses(1), attach(2, 5), uses(2), attach(3, 5),
                                    uses(3), attach(4, 5), attach(1, 0)});
  CHECK(only<Notice>(out).size() == 1);
  CHECK(only<SetGate>(out).size() == 1);
  CHECK(engine.status().clients.size() == 2);
  CHECK(engine.status().dropped_inputs == 4);
}

TEST_CASE("Time that runs backward or far ahead is clamped") {
  Engine engine;
  step(engine, 100, {attach(1, 2), uses(1), attach(2, 7), uses(2)});
  std::vector<Output> out;
  const std::vector<Input> launch{Launched{ClientId{1}, DeviceId{0}, StreamSlot{0}, 1, KernelId{1}, Instant{INT64_MIN}}};
  engine.step(Instant{-5}, launch, out);
  engine.step(kNever, {}, out);
  engine.step(kNever, launch, out);
  CHECK(engine.status().clients.size() == 2);
}

TEST_CASE("Streams hold a bounded number of units and lose none of the count") {
  Engine engine;
  std::vector<Input> inputs{attach(1, 2), uses(1), attach(2, 7), uses(2)};
  for (uint64_t i = 1; i <= 5000; ++i) {
    inputs.emplace_back(
        Launched{ClientId{1}, DeviceId{0}, StreamSlot{0}, i, KernelId{1}, Instant{}});
  }
  step(engine, 0, inputs);
  CHECK(engine.status().clients[0].devices[0].outstanding == 5000);
  CHECK(engine.status().clients[0].devices[0].in_flight.ns == 5000 * 50'000);
  step(engine, 1, {PolicyChanged{"fikit"}, PolicyChanged{"priority"}});
  step(engine, 2, {Progressed{ClientId{1}, StreamSlot{0}, 5000}});
  CHECK(engine.status().clients[0].devices[0].outstanding == 0);
  CHECK(engine.status().clients[0].devices[0].in_flight.ns == 0);
}

TEST_CASE("A launch without a report of its own is awaited with one close behind it") {
  const auto awaits = [](uint32_t every, std::vector<bool> tracked) {
    UnitQueue units;
    for (const bool one : tracked) units.push({.tracked = one, .every = every});
    return units.awaits_report();
  };
  CHECK(awaits(4, {true}));
  CHECK(awaits(4, {false, false, false, true}));
  CHECK_FALSE(awaits(4, {false, false, false, false, true}));
  CHECK_FALSE(awaits(4, {false, false}));
  CHECK(awaits(1, {false, true}));
  CHECK_FALSE(awaits(1, {false, false, true}));
  CHECK_FALSE(awaits(0, {false, true}));
}

TEST_CASE("Few launches lie between two markers at first, more when a thousand have been seen") {
  Engine engine;
  step(engine, 0, {attach(1, 2), uses(1), attach(2, 7), uses(2), PolicyChanged{"priority"},
                   Timed{ClientId{1}, KernelId{1}, Duration{90'000}},
                   Timed{ClientId{1}, KernelId{2}, Duration{10'000'000}}});
  std::vector<std::pair<uint64_t, uint32_t>> told;  // behind which launch, and one in how many
  int64_t at = 0;
  const auto launch = [&](uint64_t n, uint64_t kernel, int64_t us) {
    at += 100;
    const auto outputs =
        step(engine, at, {Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{0},
                                   .sequence = n, .kernel = KernelId{kernel}, .at = Instant{at * 1000}}});
    for (const SetProgress& progress : only<SetProgress>(outputs)) {
      if (progress.client == ClientId{1}) told.emplace_back(n, progress.every);
    }
    at += us;
    step(engine, at, {Progressed{ClientId{1}, StreamSlot{0}, n}});
  };
  for (uint64_t n = 1; n <= 2'000; ++n) launch(n, 1, 90);
  REQUIRE(told.size() == 2);
  CHECK(told[0] == std::pair<uint64_t, uint32_t>{1, 4});
  CHECK(told[1] == std::pair<uint64_t, uint32_t>{1'024, 16});
  launch(2'001, 2, 10'000);  // of 10 ms: of usual ones 0.84 ms are fewer
  REQUIRE(told.size() == 3);
  CHECK(told[2] == std::pair<uint64_t, uint32_t>{2'001, 4});
}

// A short kernel waits for what another stream of its program does, which is reported later.
TEST_CASE("A client is not stuck before the next report of each of its streams is overdue") {
  Engine engine;
  step(engine, 0, {attach(1, 2), uses(1), attach(2, 7), uses(2), PolicyChanged{"priority"},
                   Timed{ClientId{1}, KernelId{1}, Duration{50'000}},
                   Timed{ClientId{1}, KernelId{2}, Duration{23'000'000}}});
  const auto launched = [](uint32_t stream, uint64_t sequence, uint64_t kernel, bool tracked) {
    return Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{stream},
                    .sequence = sequence, .kernel = KernelId{kernel}, .at = Instant{}, .tracked = tracked};
  };
  step(engine, 1, {launched(0, 1, 1, true)});  // from here on not every launch is reported
  step(engine, 2, {Progressed{ClientId{1}, StreamSlot{0}, 1}});
  step(engine, 3, {launched(1, 1, 2, false), launched(1, 2, 2, false), launched(1, 3, 2, true),
                   launched(0, 2, 1, true)});
  CHECK(only<Notice>(step(engine, 69'000, {})).empty());
  CHECK(only<Notice>(step(engine, 250'000, {})).empty());
  CHECK(only<Notice>(step(engine, 300'000, {})).size() == 1);
}

// It waits for a peer, say, that no report tells of; one that waits for lower work never goes on before.
TEST_CASE("A client that goes on is left for twice as long the next time, up to eight times; one that does not is not") {
  Engine engine;
  step(engine, 0, {attach(1, 2), uses(1), attach(2, 7), uses(2), PolicyChanged{"priority"}});
  int64_t now_us = 1'000;
  uint64_t sequence = 0;
  // A kernel is launched and goes on `late_us` later. Whether lower gates were opened meanwhile, and when.
  const auto opened_after = [&](int64_t late_us) {
    const int64_t began_us = now_us;
    int64_t opened_us = 0;
    step(engine, now_us, {Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{0},
                                   .sequence = ++sequence, .kernel = KernelId{1}, .at = Instant{now_us * 1'000}}});
    for (; now_us < began_us + late_us; now_us += 1'000) {
      for (const SetGate& gate : only<SetGate>(step(engine, now_us, {})))
        if (gate.client == ClientId{2} && gate.gate == Gate::kOpen && opened_us == 0) opened_us = now_us - began_us;
    }
    step(engine, now_us, {Progressed{ClientId{1}, StreamSlot{0}, sequence}});
    now_us += 1'000;
    return opened_us;
  };
  CHECK(opened_after(30'000) == 20'000);
  for (int n = 0; n < 5; ++n) CHECK(opened_after(30'000) == 0);
  CHECK(opened_after(500'000) == 40'000);
  CHECK(opened_after(500'000) == 80'000);
  for (int n = 0; n < 5; ++n) CHECK(opened_after(150'000) == 0);
  CHECK(opened_after(500'000) == 160'000);
  for (int n = 0; n < 5; ++n) CHECK(opened_after(500'000) == 20'000);
}

TEST_CASE("Until when a client works is told, though what nobody reports is settled with the next launch") {
  Engine engine;
  step(engine, 0, {attach(1, 2), uses(1)});
  CHECK(engine.status().clients[0].devices[0].works_until == Instant{});
  const auto launched = [](uint64_t sequence, bool tracked) {
    return Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{0},
                    .sequence = sequence, .kernel = KernelId{1}, .at = Instant{}, .tracked = tracked};
  };
  step(engine, 10, {launched(1, false), launched(2, false)});
  // A kernel of which nothing is known takes 50 us.
  CHECK(engine.status().clients[0].devices[0].works_until.ns == 100'000);
  step(engine, 1000, {});
  CHECK(engine.status().clients[0].devices[0].outstanding == 2);
  CHECK(engine.status().clients[0].devices[0].works_until.ns == 100'000);
  step(engine, 1000, {launched(3, true)});
  CHECK(engine.status().clients[0].devices[0].works_until == kNever);
  step(engine, 2000, {Progressed{ClientId{1}, StreamSlot{0}, 3}});
  CHECK(engine.status().clients[0].devices[0].works_until == Instant{});
}

TEST_CASE("Device time is the union of busy intervals, however many streams were busy") {
  Engine engine;
  std::vector<Input> inputs{attach(1, 2), uses(1), attach(2, 7), uses(2)};
  inputs.emplace_back(Timed{ClientId{1}, KernelId{1}, Duration{100'000}});
  for (uint32_t stream = 0; stream < 4; ++stream) {
    inputs.emplace_back(
        Launched{ClientId{1}, DeviceId{0}, StreamSlot{stream}, 1, KernelId{1}, Instant{}});
  }
  step(engine, 0, inputs);
  step(engine, 100, {Progressed{ClientId{1}, StreamSlot{0}, 1}, Progressed{ClientId{1}, StreamSlot{1}, 1}});
  step(engine, 120, {Progressed{ClientId{1}, StreamSlot{2}, 1}, Progressed{ClientId{1}, StreamSlot{3}, 1}});
  CHECK(engine.status().clients[0].devices[0].device_time.ns == 120'000);
}

TEST_CASE("A client beyond every bound of its own leaves the engine whole") {
  Engine engine;
  std::vector<Input> inputs{attach(1, 2)};
  for (uint32_t i = 0; i < 100; ++i) inputs.emplace_back(uses(1, i));
  for (uint32_t i = 0; i < 100; ++i) inputs.emplace_back(held(1, i, i + 1, 0));
  for (uint64_t i = 0; i < 20'000; ++i) {
    inputs.emplace_back(Launched{ClientId{1}, DeviceId{static_cast<uint32_t>(i % 20)},
                              StreamSlot{static_cast<uint32_t>(i)}, i, KernelId{i}, Instant{}});
    inputs.emplace_back(Timed{ClientId{1}, KernelId{i}, Duration{static_cast<int64_t>(i)}});
  }
  step(engine, 0, inputs);
  const EngineStatus status = engine.status();
  CHECK(status.clients[0].devices.size() == 16);
  CHECK(status.clients[0].kernels == 8192);
  CHECK(status.dropped_inputs > 0);
  step(engine, 1, {ClientDetached{ClientId{1}}});
  CHECK(engine.status().clients.empty());
}

TEST_CASE("A grant without the long bit lets nothing through that does not fit") {
  using namespace lull::channel;
  uint64_t spent = 0;
  const uint64_t even = pack_gate(GateState::kCredit, 3, 1000);
  CHECK_FALSE(try_spend(even, spent, 1001));
  CHECK(try_spend(even, spent, 600));
  CHECK_FALSE(try_spend(even, spent, 600));
  const uint64_t odd = pack_gate(GateState::kCredit, 4, 1001);
  CHECK(try_spend(odd, spent, 5000));  // the spent word of epoch 3 counts as nothing
  CHECK_FALSE(try_spend(odd, spent, 1));
  CHECK_FALSE(try_spend(pack_gate(GateState::kCredit, 5, 0), spent, 1));
}

// A gate that opens and closes faster than decisions travel has several grants under way: what is
// left of those that were taken back counts as in flight while it may still be spent.
TEST_CASE("Grants taken back count until taking back is in effect") {
  const auto granted = [](const std::vector<Output>& outputs) {
    const auto gates = only<SetGate>(outputs);
    REQUIRE(gates.size() == 1);
    return gates[0].gate == Gate::kCredit ? gates[0].granted.ns / 1000 : -1;
  };
  const auto launch = [](uint32_t id, uint64_t sequence, int64_t us, int64_t charged_us) {
    return Launched{.client = ClientId{id}, .device = DeviceId{0}, .stream = StreamSlot{0},
                    .sequence = sequence, .kernel = KernelId{1}, .at = Instant{us * 1000},
                    .charged = Duration{charged_us * 1000}};
  };
  const auto done = [](uint32_t id, uint64_t sequence) {
    return Progressed{ClientId{id}, StreamSlot{0}, sequence};
  };
  for (const bool spent : {false, true}) {
    EngineOptions options;
    options.policy = "priority in_flight_us=50 max_hold_ms=0";
    options.control_latency = Duration{30'000};
    Engine engine(options);
    step(engine, 0, {attach(1, 2), uses(1), attach(2, 7), uses(2)});
    CHECK(granted(step(engine, 100, {launch(1, 1, 100, 0)})) == -1);
    CHECK(granted(step(engine, 110, {done(1, 1)})) == 50);                   // in effect at 140
    CHECK(granted(step(engine, 112, {launch(1, 2, 112, 0)})) == -1);         // at 142
    CHECK(granted(step(engine, 114, {done(1, 2)})) == 0);
    CHECK(only<SetGate>(step(engine, 116, {})).empty());
    if (spent) {
      CHECK(only<SetGate>(step(engine, 141, {launch(2, 1, 141, 50)})).empty());
      CHECK(only<SetGate>(step(engine, 142, {})).empty());
      CHECK(granted(step(engine, 150, {done(2, 1)})) == 50);
    } else {
      CHECK(granted(step(engine, 142, {})) == 50);
    }
  }
}

// The grant stands unspent for as long as a unit runs that was launched before it. Both kernels are taken for 50 us.
TEST_CASE("A launch that no credit lets through is not given up, however long the credit stands") {
  for (const bool fits : {false, true}) {
    EngineOptions options;
    options.policies = kMiserRows;
    options.policy = fits ? "miser credit=20" : "miser credit=8";
    Engine engine(options);
    step(engine, 0, {attach(1, 7), uses(1)});
    step(engine, 10, {Launched{.client = ClientId{1}, .device = DeviceId{0}, .stream = StreamSlot{0}, .sequence = 1,
                               .kernel = KernelId{1}, .at = Instant{10'000}, .tracked = true}});
    step(engine, 20, {held(1, 0, 1, 20)});
    for (int64_t ms = 1; ms < 100; ++ms) step(engine, ms * 1'000, {});
    step(engine, 100'000, {Progressed{ClientId{1}, StreamSlot{0}, 1}});
    const EngineStatus status = engine.status(ClientId{0}, 10);
    REQUIRE(status.clients.size() == 1);
    CHECK(status.clients[0].held.empty() == fits);
  }
}

TEST_CASE("A policy is told which clients have peers in their job, also on other devices, as ranks come and go") {
  peers = {};
  EngineOptions options;
  options.policy = "census";
  options.policies = kCensusRows;
  Engine engine(options);
  const auto rank = [](uint32_t id) { return ClientAttached{ClientId{id}, JobId{7}, Priority{2}, "task"}; };
  step(engine, 0, {rank(1), uses(1), attach(3, 5), uses(3)});
  CHECK(peers == std::map<uint32_t, bool>{{1, false}, {3, false}});
  step(engine, 10, {rank(2), uses(2, 1)});
  CHECK(peers == std::map<uint32_t, bool>{{1, true}, {2, true}, {3, false}});
  step(engine, 20, {ClientDetached{ClientId{2}}});
  CHECK(peers == std::map<uint32_t, bool>{{1, false}, {2, true}, {3, false}});
  step(engine, 30, {rank(4), uses(4)});
  CHECK(peers[1]);
  CHECK(peers[4]);
}
