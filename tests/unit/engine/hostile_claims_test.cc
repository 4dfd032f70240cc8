// What a client that lies about itself can cost others: the operator's floor holds against it. How
// long single claims are believed stands in tests/scenarios.
#include <catch2/catch.hpp>

#include "coordinator/engine/engine.h"

using namespace lull;
using namespace lull::engine;

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr ClientId kLiar{1};
constexpr ClientId kLow{2};

// A node of two: one that says it is always at work and uses nothing, and an honest low task of one
// thread, whose kernels take a millisecond each. A step a millisecond.
class Node {
 public:
  explicit Node(const std::string& policy)
      : engine_([&] {
          EngineOptions options;
          options.policy = policy;
          return options;
        }()) {
    tell(ClientAttached{kLiar, JobId{1}, Priority{0}, "liar"});
    tell(ClientAttached{kLow, JobId{2}, Priority{7}, "low"});
    tell(DeviceUsed{kLiar, DeviceId{0}});
    tell(DeviceUsed{kLow, DeviceId{0}});
  }

  // `lie(node, now_ms)` adds what the liar says. Returns the milliseconds of device time that the
  // low task had, until `end_ms`.
  template <typename Lie>
  int64_t run(int64_t end_ms, Lie&& lie) {
    int64_t had = 0;
    for (; now_ms_ < end_ms; ++now_ms_) {
      if (running_) {
        tell(Progressed{kLow, StreamSlot{0}, sequence_});
        running_ = false;
        had += 1;
      }
      lie(*this, now_ms_);
      step();
      while (!running_ && try_to_go()) step();
    }
    return had;
  }
  void tell(Input input) { inputs_.push_back(std::move(input)); }

  void launch(uint32_t stream, uint64_t sequence, bool tracked) {
    tell(Launched{.client = kLiar,
                  .device = DeviceId{0},
                  .stream = StreamSlot{stream},
                  .sequence = sequence,
                  .kernel = KernelId{7},
                  .at = Instant{now_ms_ * kMs},
                  .tracked = tracked,
                  .ticket = {},
                  .thread = {}});
  }

 private:
  void step() {
    std::vector<Output> out;
    engine_.step(Instant{now_ms_ * kMs}, inputs_, out);
    inputs_.clear();
    for (const Output& output : out) {
      if (const auto* gate = std::get_if<SetGate>(&output); gate && gate->client == kLow) {
        gate_ = *gate;
        if (gate->new_epoch) spent_ = 0;
      }
      const auto* release = std::get_if<Release>(&output);
      if (release && release->client == kLow) released_ = release->ticket == ticket_;
    }
  }
  // As a shim does: through an open gate, on credit, released, or not at all and held.
  bool try_to_go() {
    const bool odd = (gate_.granted.ns & 1) != 0 && spent_ == 0;
    const bool credit = gate_.gate == Gate::kCredit && (odd || spent_ + kMs <= gate_.granted.ns);
    if (!released_ && gate_.gate != Gate::kOpen && !credit) {
      if (ticket_.value != 0) return false;
      ticket_ = Ticket{++tickets_};
      tell(Held{kLow, DeviceId{0}, ThreadSlot{0}, StreamSlot{0}, ticket_, KernelId{1}, now()});
      return true;
    }
    if (!released_ && credit) spent_ += kMs;
    tell(Launched{.client = kLow,
                  .device = DeviceId{0},
                  .stream = StreamSlot{0},
                  .sequence = ++sequence_,
                  .kernel = KernelId{1},
                  .at = now(),
                  .ticket = ticket_,
                  .thread = {},
                  .charged = released_ || !credit ? Duration{-1} : Duration{kMs}});
    tell(Timed{kLow, KernelId{1}, Duration{kMs}});
    ticket_ = {};
    released_ = false;
    running_ = true;
    return true;
  }
  Instant now() const { return Instant{now_ms_ * kMs}; }

  Engine engine_;
  std::vector<Input> inputs_;
  int64_t now_ms_ = 1;
  SetGate gate_{kLow, DeviceId{0}, Gate::kOpen, {}, false};
  int64_t spent_ = 0;
  uint64_t sequence_ = 0;
  Ticket ticket_;
  uint32_t tickets_ = 0;
  bool released_ = false;
  bool running_ = false;
};

// A launch that is told to have taken an hour, and one like it that never completes.
void silent(Node& node, int64_t ms) {
  if (ms > 2) return;
  node.launch(0, static_cast<uint64_t>(ms), /*tracked=*/true);
  if (ms == 2) return;
  node.tell(
      Timed{kLiar, KernelId{7}, Duration{3'600'000 * kMs}, Duration{-1}, kNever, StreamSlot{0}, 1});
  node.tell(Progressed{kLiar, StreamSlot{0}, 1});
}
// Something is always in flight, and moves.
void busy(Node& node, int64_t ms) {
  if (ms % 5 != 0) return;
  const auto n = static_cast<uint64_t>(ms / 5);
  node.launch(0, n + 1, /*tracked=*/true);
  node.tell(Progressed{kLiar, StreamSlot{0}, n});
}
// As many untracked launches as there can be, and a few more now and then.
void flood(Node& node, int64_t ms) {
  const int launches = ms == 1 ? 20'000 : 5;
  for (int n = 0; n < launches; ++n) {
    node.launch(static_cast<uint32_t>(n % 60), static_cast<uint64_t>(ms) * 100'000, false);
  }
  if (ms == 1) node.tell(Timed{kLiar, KernelId{7}, Duration{90 * kMs}});
}

}  // namespace

TEST_CASE("work that never completes holds a low task no longer than it takes to notice") {
  for (const char* policy :
       {"priority max_hold_ms=0", "fikit max_hold_ms=0", "guarded max_hold_ms=0"}) {
    INFO(policy);
    Node node(policy);
    CHECK(node.run(2'000, silent) > 1'900);
  }
}

TEST_CASE("max_hold lets a launch go each time, whatever others say") {
  for (const auto& lie : {busy, flood}) {
    Node node("priority max_hold_ms=100");
    const int64_t had = node.run(5'000, lie);
    CHECK(had >= 5'000 / 101 - 1);
  }
}

TEST_CASE("the operator's floor holds against a client that is always at work, as it says") {
  int lies = 0;
  for (const auto& lie : {busy, flood}) {
    INFO("lie " << ++lies);
    Node node("guarded floor_per_mille=100 max_hold_ms=0");
    node.run(2'000, lie);
    CHECK(node.run(12'000, lie) >= 1'000);
  }
}
