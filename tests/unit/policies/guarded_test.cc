// guarded as the engine calls it: what the gate of a less important client is told, and when it asks to be called.
#include "policies/launch/guarded/guarded.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "policies/launch/guarded/admission.h"
#include "policies/launch/guarded/request_guard.h"

using namespace lull;
using namespace lull::policies;

namespace {

Duration us(int64_t us) { return Duration{us * 1000}; }

// The important client launches four units of 250 us, waits for them, and pauses for as long each time. The other
// one has launched once, and may again.
class Device {
 public:
  explicit Device(Duration pause) : pause_(pause) {
    PolicyChoice choice = parse_policy("guarded").value();
    // No request begins as an exception: each may lose its limit at most.
    choice.values[kGuardedWithout] = int64_t{1} << static_cast<int>(Part::kUnused);
    policy_ = choice.row->make(choice.values);
    tell(Joined{.client = kHigh, .job = JobId{1}, .priority = Priority{2}, .arrival = 1});
    tell(Joined{.client = kLow, .job = JobId{2}, .priority = Priority{5}, .arrival = 2});
    launch(kLow, KernelId{9}, us(50));
    now = now + us(50);
    tell(Completed{.client = kLow, .units = 1, .predicted = us(50)});
  }
  void request() {
    for (uint64_t n = 1; n <= 4; ++n) launch(kHigh, KernelId{n}, kUnit);
    for (int n = 0; n < 4; ++n) {
      now = now + kUnit;
      tell(Completed{.client = kHigh, .units = 1, .predicted = kUnit});
    }
    tell(Synced{.client = kHigh, .at = now});
  }
  // Nothing happens but that it calls when it was asked to. How often it did.
  int pass(Duration time) {
    const Instant until = now + time;
    int wakes = 0;
    while (wake != kNever && wake <= until && wakes < 1'000) {
      now = wake;
      tell(TimerDue{});
      wakes += 1;
    }
    now = until;
    return wakes;
  }
  void tell(const Event& event) {
    if (std::holds_alternative<TimerDue>(event)) wake = kNever;
    out_.clear();
    policy_->step(now, std::span(&event, 1), out_);
    for (const Decision& decision : out_) {
      if (const auto* asked = std::get_if<WakeAt>(&decision)) {
        CHECK(asked->at > now);
        wake = asked->at;
      } else if (const auto* told = std::get_if<Credit>(&decision)) {
        if (told->client == kLow) credit = told->bound;
      } else if (const auto* closed = std::get_if<Close>(&decision)) {
        if (closed->client == kLow) credit = {};
      }
    }
    if (watch) credits.emplace_back(now, credit);
  }
  void pause() { pass(pause_); }

  static constexpr Duration kUnit{250'000};
  Instant now{1'000'000};
  Instant wake = kNever;
  Duration credit;  // as the gate of the other one was told last
  bool watch = false;
  std::vector<std::pair<Instant, Duration>> credits;  // told it while watched

 private:
  static constexpr ClientId kHigh{1}, kLow{2};
  void launch(ClientId client, KernelId kernel, Duration length) {
    tell(Submitted{.client = client, .thread = ThreadSlot{0}, .kernel = kernel, .predicted = length, .at = now});
  }

  const Duration pause_;
  std::unique_ptr<LaunchPolicy> policy_;
  std::vector<Decision> out_;
};

}  // namespace

TEST_CASE("While the important client pauses, the credit of others falls with what is left of the pause") {
  constexpr Duration kRequest{4 * Device::kUnit.ns};
  const Duration limit{kRequest.ns * 50 / 1000};
  for (const int64_t pause_us : {2'000, 6'000, 12'000}) {
    CAPTURE(pause_us);
    const Duration pause = us(pause_us);
    Device device(pause);
    for (int n = 0; n < 60; ++n) {
      device.request();
      device.pause();
    }
    for (int n = 0; n < 4; ++n) {  // of which one may be kept undisturbed
      device.request();
      const Instant back = device.now + pause;
      device.credits.clear();
      device.credits.emplace_back(device.now, device.credit);
      device.watch = true;
      const int wakes = device.pass(pause);
      device.watch = false;
      if (device.credits.front().second.ns == 0) continue;
      CHECK(wakes > 3);
      CHECK(wakes < 60);
      CHECK(device.credits.size() == static_cast<size_t>(wakes) + 1);
      for (size_t i = 0; i < device.credits.size(); ++i) {
        const auto [at, credit] = device.credits[i];
        const Instant until = i + 1 < device.credits.size() ? device.credits[i + 1].first : back;
        CAPTURE(i, (back - until).ns, credit.ns);
        CHECK(credit <= back - until + limit);
        if (i > 0) CHECK(credit <= device.credits[i - 1].second);
      }
      CHECK(device.credits.back().second < Duration{device.credits.front().second.ns / 4});
    }
  }
}

TEST_CASE("Once the important client should be back nobody is to be called again, however long it pauses") {
  Device device(us(6'000));
  for (int n = 0; n < 60; ++n) {
    device.request();
    device.pause();
  }
  device.request();
  device.pass(us(6'000));
  CHECK(device.pass(us(1'000)) <= 1);  // the last one that was asked for before
  CHECK(device.pass(us(500'000)) == 0);
}
