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
// one has launched once, before the important one came or after, and may again.
class Device {
 public:
  explicit Device(Duration pause, bool low_was_first = false) : pause_(pause) {
    PolicyChoice choice = parse_policy("guarded").value();
    // No request begins as an exception: each may lose its limit at most.
    choice.values[kGuardedWithout] = int64_t{1} << static_cast<int>(Part::kUnused);
    policy_ = choice.row->make(choice.values);
    const Joined high{.client = kHigh, .job = JobId{1}, .priority = Priority{2}, .arrival = 1};
    const Joined low{.client = kLow, .job = JobId{2}, .priority = Priority{5}, .arrival = 2};
    tell(low_was_first ? low : high);
    if (low_was_first) low_launches();
    tell(low_was_first ? high : low);
    if (!low_was_first) low_launches();
    low_completes();
  }
  void low_launches() { launch(low_, KernelId{9}, us(50)); }
  void low_completes(bool reported = true) {
    now = now + us(50);
    tell(Completed{.client = low_, .units = 1, .predicted = us(50), .reported = reported});
  }
  void another_important_one_joins() {
    tell(Joined{.client = ClientId{3}, .job = JobId{3}, .priority = Priority{2}, .arrival = 3});
  }
  // Another one like the low one has joined and launched, and the first one leaves.
  void low_is_replaced() {
    tell(Joined{.client = ClientId{3}, .job = JobId{3}, .priority = Priority{5}, .arrival = 3});
    low_ = ClientId{3};
    low_launches();
    low_completes();
    tell(Left{.client = kLow});
  }
  // By so much longer than usual, of which nothing is told.
  void request(Duration longer = {}) {
    for (uint64_t n = 1; n <= 4; ++n) launch(kHigh, KernelId{n}, kUnit);
    for (int n = 0; n < 4; ++n) {
      now = now + kUnit + Duration{longer.ns / 4};
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
        if (told->client == low_) credit = told->bound;
      } else if (const auto* closed = std::get_if<Close>(&decision)) {
        if (closed->client == low_) credit = {};
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
  ClientId low_ = kLow;
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

constexpr Duration kShortPause{100'000};
// Each third takes 200 us longer: so others seem to be harmless as long as they take no more than that.
void slow_requests(Device& device) {
  for (int n = 0; n < 60; ++n) {
    device.request(n % 3 == 0 ? us(200) : us(0));
    device.pause();
  }
}
// Whether others may go far beyond the pause.
bool slow_ones_count(Device& device) {
  Duration most;
  for (int n = 0; n < 12; ++n) {
    device.request();
    most = std::max(most, device.credit);
    device.pause();
  }
  return most > kShortPause + us(50);
}
void later_work(Device& device, bool reported) {
  device.low_launches();
  device.low_completes(reported);
}

TEST_CASE("What slow requests took beside work that was there before counts until later work is reported through") {
  for (const bool low_was_first : {false, true}) {
    CAPTURE(low_was_first);
    Device device(kShortPause, low_was_first);  // what was there before is reported through
    slow_requests(device);
    CHECK(slow_ones_count(device));
    later_work(device, /*reported=*/false);
    CHECK(slow_ones_count(device));
    later_work(device, /*reported=*/true);
    CHECK(slow_ones_count(device) == !low_was_first);
    slow_requests(device);  // by themselves
    later_work(device, /*reported=*/true);
    CHECK(slow_ones_count(device));

    Device left(kShortPause, low_was_first);
    slow_requests(left);
    left.low_is_replaced();
    CHECK(slow_ones_count(left) == !low_was_first);

    Device rested(kShortPause, low_was_first);
    slow_requests(rested);
    rested.pass(us(60'000'000));
    later_work(rested, /*reported=*/true);
    CHECK(slow_ones_count(rested) == !low_was_first);
  }
}

TEST_CASE("Where others report already what is through, slow requests count, also when another important client joins") {
  for (const bool joins : {false, true}) {
    CAPTURE(joins);
    Device device(kShortPause, /*low_was_first=*/true);
    later_work(device, /*reported=*/true);
    if (joins) device.another_important_one_joins();
    slow_requests(device);
    later_work(device, /*reported=*/true);
    CHECK(slow_ones_count(device));
  }
}
