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
    choice.values.set(kPartsKey, int64_t{1} << static_cast<int>(Part::kUnused));
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

// An important client that is always at work: requests of four units of 250 us, 20 us apart. Others' launches are far
// longer than what such a request may lose. The device runs one unit at a time, and what is there first goes first.
class HeldPair {
 public:
  explicit HeldPair(Part without) : HeldPair(int64_t{1} << static_cast<int>(without)) {}
  explicit HeldPair(int64_t without = 0, bool has_peers = false) {
    PolicyChoice choice = parse_policy("guarded").value();
    choice.values.set(kPartsKey, without);
    policy_ = choice.row->make(choice.values);
    tell(Joined{.client = kHigh, .job = JobId{1}, .priority = Priority{2}, .arrival = 1, .has_peers = has_peers});
    tell(Joined{.client = kLow, .job = JobId{2}, .priority = Priority{5}, .arrival = 2});
  }
  // One request of the important client. Returns for how long its first launch was held.
  Duration request() {
    pass(kPause);
    const Instant came = now_;
    std::vector<Event> at_once;
    if (!high_open_) at_once.push_back(high_waits());
    at_once.insert(at_once.end(), told_late_.begin(), told_late_.end());
    told_late_.clear();
    if (!at_once.empty()) tell(at_once);
    high_waits_ = !high_open_;
    bool withdrawn = false;
    while (!high_open_ && now_ - came < us(1'000'000)) {
      pass(us(10));
      if (!withdraws || withdrawn || high_open_ || now_ - came < us(1'500)) continue;
      withdrawn = true;
      tell(Withdrawn{.client = kHigh, .thread = ThreadSlot{0}});
      if (!high_open_) tell(high_waits());
    }
    high_waits_ = false;
    const Duration held = now_ - came;
    if (held.ns > 0) launches_when_held_ = low_launches;
    longest = std::max(longest, held);
    for (uint64_t n = 1; n <= 4; ++n)
      tell(Submitted{.client = kHigh, .thread = ThreadSlot{0}, .kernel = KernelId{n}, .predicted = kUnit, .at = now_});
    for (int n = 0; n < 4; ++n) {
      if (low_until_ != kNever) pass(low_until_ - now_);  // the units take turns
      pass(kUnit);
      if (n < 3 || !ends_are_told_late) tell(Completed{.client = kHigh, .units = 1, .predicted = kUnit});
    }
    if (ends_are_told_late)
      told_late_ = {Completed{.client = kHigh, .units = 1, .predicted = kUnit}, Synced{.client = kHigh, .at = now_}};
    else
      tell(Synced{.client = kHigh, .at = now_});
    return held;
  }
  // Requests until one is held; how many, or -1.
  int until_held(int most) {
    for (int n = 0; n < most; ++n) {
      if (request().ns > 0) return n;
    }
    return -1;
  }
  // How many launches the other client made after the last hold, in the request that was held.
  int launches_by_turns() const { return low_launches - launches_when_held_; }
  void low_leaves() {
    low_until_ = kNever;
    low_wants = false;
    tell(Left{.client = kLow});
  }

  Duration longest;             // that a launch of the important client was held
  int low_launches = 0;
  Duration low_length = us(400);
  bool low_wants = true;        // the other client always has another launch, unless this is false
  bool low_ends = true;         // if not: what it launches while the important one is held does not end
  bool low_leaves_when_held = false;
  bool withdraws = false;           // a launch of the important one that is held for 1.5 ms is another one from then on
  bool ends_are_told_late = false;  // of requests: together with the next one's first launch that waits

 private:
  static constexpr ClientId kHigh{1}, kLow{2};
  static constexpr Duration kUnit{250'000}, kPause{20'000};
  Waiting high_waits() {
    return {.client = kHigh, .thread = ThreadSlot{0}, .ticket = Ticket{++ticket_}, .kernel = KernelId{1},
            .predicted = kUnit, .since = now_};
  }
  void tell(const Event& event) { tell(std::vector{event}); }
  void tell(const std::vector<Event>& events) {
    if (std::holds_alternative<TimerDue>(events.front())) wake_ = kNever;
    out_.clear();
    policy_->step(now_, events, out_);
    bool released = false;
    for (const Decision& decision : out_) {
      if (const auto* asked = std::get_if<WakeAt>(&decision)) wake_ = asked->at;
      if (const auto* open = std::get_if<Open>(&decision)) high_open_ = high_open_ || open->client == kHigh;
      if (const auto* close = std::get_if<Close>(&decision)) {
        high_open_ = high_open_ && close->client != kHigh;
        if (close->client == kLow) credit_ = {};
      }
      if (const auto* pending = std::get_if<ReleaseLaunch>(&decision))
        released = released || pending->client == kLow;
      if (const auto* credit = std::get_if<Credit>(&decision)) credit_ = credit->bound;
    }
    if (low_waits_ && (released || low_length <= credit_)) {
      low_waits_ = false;
      low_launches += 1;
      endless_ = !low_ends && !high_open_;
      low_until_ = endless_ ? kNever : now_ + low_length;
      tell(Submitted{.client = kLow, .thread = ThreadSlot{0}, .kernel = KernelId{9}, .predicted = low_length, .at = now_});
    }
  }
  // Time passes: timers are due, the other client's unit ends, and that client wants to launch again.
  void pass(Duration time) {
    const Instant until = now_ + time;
    while (true) {
      if (low_wants && !low_waits_ && low_until_ == kNever && !endless_) {
        low_waits_ = true;
        tell(Waiting{.client = kLow, .thread = ThreadSlot{0}, .ticket = Ticket{++ticket_}, .kernel = KernelId{9},
                     .predicted = low_length, .since = now_});
      }
      const Instant next = std::min(wake_, low_until_);
      if (next > until) break;
      now_ = std::max(now_, next);
      if (low_until_ > now_) {
        tell(TimerDue{});
      } else {
        low_until_ = kNever;
        tell(Completed{.client = kLow, .units = 1, .predicted = low_length});
      }
      if (low_leaves_when_held && !high_open_ && high_waits_) low_leaves();
    }
    now_ = until;
  }

  std::unique_ptr<LaunchPolicy> policy_;
  std::vector<Decision> out_;
  std::vector<Event> told_late_;
  Instant now_{1'000'000}, wake_ = kNever, low_until_ = kNever;
  Duration credit_;  // of the other client, which has nothing in flight when it launches
  uint32_t ticket_ = 0;
  bool high_open_ = true, high_waits_ = false, low_waits_ = false, endless_ = false;
  int launches_when_held_ = 0;
};

TEST_CASE("An exception holds the important client while lower work runs in a row, within its budget") {
  HeldPair pair;
  HeldPair unheld(Part::kHolding);
  for (int n = 0; n < 2'000; ++n) {
    pair.request();
    unheld.request();
  }
  CHECK(pair.longest > us(1'000));
  CHECK(unheld.longest.ns == 0);
  // A hundred requests may lose 100 * 30 us, and the unit that is under way ends.
  CHECK(pair.longest <= us(3'000) + pair.low_length);
  CHECK(pair.low_launches > 3 * unheld.low_launches / 2);
}

TEST_CASE("When a hold ends the exception goes on: lower launches take turns with the request's own units") {
  HeldPair pair;
  int holds = 0, by_turns = 0;
  for (int n = 0; n < 2'000; ++n) {
    if (pair.request().ns == 0) continue;
    holds += 1;
    by_turns += pair.launches_by_turns();
  }
  CHECK(holds > 10);
  CHECK(by_turns >= 2 * holds);
}

TEST_CASE("A held client goes on when its budget is spent, though the lower work never ends") {
  HeldPair pair;
  pair.low_ends = false;
  REQUIRE(pair.until_held(2'000) >= 0);
  CHECK(pair.longest <= us(3'200));
}

TEST_CASE("A held client goes on when the lower client leaves") {
  HeldPair pair;
  pair.low_leaves_when_held = true;
  REQUIRE(pair.until_held(2'000) >= 0);
  CHECK(pair.longest <= pair.low_length + us(200));
  for (int n = 0; n < 500; ++n) CHECK(pair.request().ns == 0);
}

TEST_CASE("Nobody is held where lower launches fit into the pauses") {
  HeldPair pair;
  pair.low_length = us(10);
  CHECK(pair.until_held(2'000) == -1);
  CHECK(pair.low_launches > 1'000);
}

TEST_CASE("A client is held within its budget when its launch, and the end of what was before, are told at once") {
  HeldPair pair;
  pair.low_length = us(1'000);
  pair.until_held(2'000);
  pair.ends_are_told_late = true;
  for (int n = 0; n < 1'000; ++n) pair.request();
  CHECK(pair.longest <= us(3'000) + pair.low_length);
}

TEST_CASE("A client whose job has other ranks is not held") {
  HeldPair pair(0, /*has_peers=*/true);
  CHECK(pair.until_held(2'000) == -1);
  CHECK(pair.low_launches > 20);
}

TEST_CASE("The time until a held launch is withdrawn counts for the exception that held it") {
  HeldPair pair;
  pair.withdraws = true;
  for (int n = 0; n < 2'000; ++n) pair.request();
  CHECK(pair.longest >= us(1'500));
  CHECK(pair.longest <= us(3'000) + pair.low_length);
}
