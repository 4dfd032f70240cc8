// What `guarded` keeps of an important task: how its iteration goes by itself, and its accounts.
#include "policies/launch/guarded/task_guard.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "policies/launch/guarded/model/iteration_model.h"

using namespace lull;
using namespace lull::policies;

namespace {

Instant us(int64_t us) { return Instant{us * 1000}; }
Duration long_us(int64_t us) { return Duration{us * 1000}; }
constexpr int64_t kForEver = 1'000'000'000'000;

// ---- IterationModel ------------------------------------------------------------------------------

// Two launches, at 0 and at 20 us, of 10 and 30 us; the host waits until `end_us`.
void iterate(IterationModel& timeline, int64_t start_us, int64_t end_us, int64_t delay_us = 0) {
  timeline.begin();
  timeline.launched(0, us(start_us), Duration{});
  timeline.worked(timeline.spot(0), long_us(10), /*seen=*/true);
  timeline.launched(1, us(start_us + 20), Duration{});
  timeline.worked(timeline.spot(1), long_us(30), /*seen=*/true);
  timeline.waited(us(start_us + end_us), long_us(delay_us), /*plain=*/delay_us == 0);
}

// So many of them, 100 us from one to the next, by themselves; the last of them ends at -40 us.
IterationModel learnt(const std::function<int64_t(int)>& end_us, int count = 20) {
  IterationModel timeline;
  timeline.restart(2);
  for (int n = -count; n < 0; ++n) iterate(timeline, 100 * n, end_us(n + count));
  timeline.begin();
  return timeline;
}
IterationModel steady() {
  return learnt([](int) { return 60; });
}

// One launch of 20 us of an iteration, `pause_us` after the last wait.
class PausingHost {
 public:
  PausingHost() { timeline.restart(1); }
  void serve(int64_t pause_us) {
    now_us_ += pause_us;
    timeline.begin();
    timeline.launched(0, us(now_us_), Duration{});
    now_us_ += 20;
    timeline.waited(us(now_us_), Duration{}, /*plain=*/true);
  }
  // After the last wait.
  bool is_away(int64_t since_us, int64_t length_us) const {
    return timeline.is_away(us(now_us_ + since_us), long_us(length_us));
  }

  IterationModel timeline;

 private:
  int64_t now_us_ = 0;
};

// Two stretches of two launches each, from the first of which the host waits so long. Whether the
// service has become another.
bool two_stretches(IterationModel& timeline, int64_t& now_us, int64_t first_us, int64_t second_us) {
  const bool other = timeline.begin();
  for (uint32_t position = 0; position < 4; position += 2) {
    timeline.launched(position, us(now_us), Duration{});
    timeline.launched(position + 1, us(now_us + 10), Duration{});
    now_us += position == 0 ? first_us : second_us;
    timeline.waited(us(now_us), Duration{}, /*plain=*/true);
    now_us += 5;
  }
  return other;
}

// ---- TaskGuard --------------------------------------------------------------------------------

// The protected program, lower work beside it and a serial device with a copy engine, told to the
// guard in the order of time. In us. With `length` its iteration is known from the start; with
// `switch_us` the device takes so long to change hands.
class World {
 public:
  explicit World(GuardLimits limits = {}, uint32_t length = 0, int64_t switch_us = 0)
      : guard(limits), length_(length), switch_us_(switch_us) {}

  void iteration() { position_ = 0; }
  void pause(int64_t us) { now += us; }
  void launch(int64_t length, uint32_t stream = 0, int64_t expected = -1) {
    submit(length, stream, expected < 0 ? length : expected, /*copy=*/false);
  }
  void copy(int64_t length, uint32_t stream, int64_t expected = -1) {
    submit(length, stream, expected < 0 ? length : expected, /*copy=*/true);
  }
  // A unit that came to the device `ago`.
  void lower(int64_t length, int64_t ago = 0) {
    const int64_t from = std::max(now - ago, free_) + hands_over(/*lower=*/true);
    catch_up(now - ago);
    free_ = from + length;
    guard.disturbed(/*copy=*/false, us(now));
    add({.from = from, .end = free_, .lower = true});
  }
  // Returns what it was delayed, as the guard has it: the difference to what it would have earned.
  void wait(std::vector<uint32_t> streams = {0}) {
    for (const Unit& unit : units_) {
      const bool its = std::find(streams.begin(), streams.end(), unit.stream) != streams.end();
      if (!unit.lower && its) now = std::max(now, unit.end);
    }
    catch_up(now);
    for (uint32_t stream : streams) {
      guard.synced({.client = ClientId{1}, .at = us(now), .stream = StreamSlot{stream}});
    }
    guard.settle(has_lower());
  }
  // The device has done so many of its units: where a full queue has a place again.
  int64_t done_at(size_t units_left) const {
    return units_.size() <= units_left ? 0 : units_[units_.size() - units_left - 1].end;
  }
  Duration room(uint32_t lower_units = 0) const { return guard.room(us(now), lower_units); }
  bool affords(Duration excess, Duration spare = {}) const {
    return guard.affords(excess, spare, us(now));
  }
  // Without a length it is not known how long the unit is.
  void spend(Duration excess, Duration length = {}, Duration spare = {}) {
    guard.spend(excess, length, spare, us(now));
  }
  bool has_better_moment(Duration length, Duration spare = {}) const {
    return guard.has_better_moment(us(now), length, spare);
  }
  int64_t account_ns() const { return guard.mean_account().ns; }

  TaskGuard guard;
  int64_t now = 1000;

 private:
  struct Unit {
    int64_t from, end;
    bool lower = false, copy = false;
    uint32_t stream = 0;
  };
  void submit(int64_t length, uint32_t stream, int64_t expected, bool copy) {
    catch_up(now);
    IterationPlace place;
    if (length_ > 0) {
      place = {.in_step = true, .started = position_ == 0, .position = position_,
               .length = length_, .generation = 1};
      position_ += 1;
    }
    guard.submitted({.client = ClientId{1}, .kernel = KernelId{++kernels_}, .predicted = long_us(expected),
                     .at = us(now), .place = place, .stream = StreamSlot{stream}, .copy = copy},
                    has_lower());
    int64_t& free = copy ? copy_free_ : free_;
    const int64_t from = std::max(now, free) + (copy ? 0 : hands_over(/*lower=*/false));
    free = from + length;
    add({.from = from, .end = free, .copy = copy, .stream = stream});
  }
  int64_t hands_over(bool lower) {
    return std::exchange(lower_has_it_, lower) == lower ? 0 : switch_us_;
  }
  void add(const Unit& unit) {
    units_.insert(std::upper_bound(units_.begin(), units_.end(), unit,
                                   [](const Unit& a, const Unit& b) { return a.end < b.end; }),
                  unit);
  }
  uint32_t lower_units() const {
    return static_cast<uint32_t>(
        std::count_if(units_.begin(), units_.end(), [](const Unit& unit) { return unit.lower; }));
  }
  bool has_lower() const { return lower_units() > 0; }
  void catch_up(int64_t until) {
    while (!units_.empty() && units_.front().end <= until) {
      const Unit unit = units_.front();
      units_.erase(units_.begin());
      if (unit.lower) {
        guard.lower_ran(us(unit.from), us(unit.end));
        guard.lower_ended(1, lower_units(), us(unit.end));
      } else {
        guard.completed({.client = ClientId{1}, .units = 1, .stream = StreamSlot{unit.stream}},
                        us(unit.end), has_lower());
      }
    }
  }

  uint32_t length_;
  uint64_t kernels_ = 0;  // no two are alike: nothing but `place` says what repeats
  int64_t switch_us_;
  bool lower_has_it_ = false;
  uint32_t position_ = 0;
  std::vector<Unit> units_;  // by end
  int64_t free_ = 0, copy_free_ = 0;
};

using Story = std::function<void(World&)>;

// 200 us, of which the device works 100, with a wait at the end. Lower work comes with the launch.
void serve(World& world, int64_t lower_us = 0) {
  world.iteration();
  world.pause(100);
  if (lower_us > 0) world.lower(lower_us);
  world.launch(100);
  world.wait();
}
void serve_many(World& world, int count, int64_t lower_us = 0) {
  for (int n = 0; n < count; ++n) serve(world, lower_us);
}
constexpr int64_t kEarned = 100 * 27;  // ns: 3 % from the launch to the wait's end, less a tenth

// What the guard charges for `disturbed` in ns, beside `alone`: the same without others.
int64_t charged(const Story& alone, const Story& disturbed, GuardLimits limits = {},
                uint32_t length = 0) {
  World one(limits, length), other(limits, length);
  for (World* world : {&one, &other}) world->guard.refused(long_us(1'000'000));  // no end of saving
  alone(one);
  disturbed(other);
  return one.account_ns() - other.account_ns();
}

// ... where the request after the first `count` is the one that `lower_us` of lower work disturbs.
using Request = std::function<void(World&, int n, int64_t lower_us)>;
int64_t charged_at_last(int count, const Request& request, int64_t lower_us, uint32_t length) {
  const auto story = [&](int64_t last_us) {
    return [&request, count, last_us](World& w) {
      for (int n = 0; n < count; ++n) request(w, n, 0);
      request(w, count, last_us);
    };
  };
  return charged(story(0), story(lower_us), {}, length);
}

}  // namespace

TEST_CASE("An iteration is known after two whole ones") {
  IterationModel timeline;
  timeline.restart(2);
  for (uint32_t n = 0; n < IterationModel::kEnough; ++n) {
    CHECK_FALSE(timeline.known());
    iterate(timeline, 100 * n, 60);
  }
  timeline.begin();
  CHECK(timeline.known());
  CHECK(timeline.length() == 2);
  timeline.restart(3);
  CHECK_FALSE(timeline.known());
  CHECK(timeline.length() == 3);
  CHECK(timeline.best_slack().ns == 0);
  // Of whole ones: what begins again in its first half does not count.
  IterationModel broken;
  broken.restart(4);
  for (int n = 0; n < 40; ++n) {
    broken.begin();
    broken.launched(0, us(100 * n), Duration{});
    broken.launched(1, us(100 * n + 20), Duration{});
    broken.waited(us(100 * n + 60), Duration{}, /*plain=*/true);
  }
  CHECK_FALSE(broken.known());
}

TEST_CASE("The next wait is due after the pauses until there, as seen before, in and behind them") {
  IterationModel timeline = steady();
  // The last wait has ended at -40; the pause before the first launch is 40.
  CHECK(timeline.due(us(-40)).ns == us(60).ns);
  CHECK(timeline.due(us(-10)).ns == us(60).ns);
  CHECK(timeline.due(us(15)).ns == us(75).ns);  // the host is late
  CHECK(timeline.next_position() == 0);
  timeline.launched(0, us(5), Duration{});
  CHECK(timeline.next_position() == 1);
  CHECK_FALSE(timeline.service_launched());
  CHECK(timeline.due(us(5)).ns == us(65).ns);
  CHECK(timeline.due(us(25)).ns == us(65).ns);
  CHECK(timeline.due(us(45)).ns == us(85).ns);  // the second is overdue, and takes 40 to the end
  timeline.launched(1, us(50), Duration{});
  CHECK(timeline.service_launched());
  CHECK(timeline.next_position() == 0);
  CHECK(timeline.due(us(50)).ns == us(90).ns);
  CHECK(timeline.due(us(200)).ns == us(90).ns);  // nothing more to come that could be late
}

TEST_CASE("Work is counted up to the next wait, wherever the waits are") {
  IterationModel timeline = steady();
  CHECK(timeline.work(timeline.spot(0)).ns == 40'000);
  CHECK(timeline.work(timeline.spot(1)).ns == 30'000);
  CHECK(timeline.work(timeline.spot(2)).ns == 0);
  // Behind the wait 100 us until the next one ends, of which the device works 40.
  CHECK(timeline.best_slack().ns == 60'000);
  // From now on the host waits after the first launch as well, and then not any more.
  const auto with_wait = [&](int64_t start_us) {
    timeline.begin();
    timeline.launched(0, us(start_us), Duration{});
    timeline.waited(us(start_us + 10), Duration{}, /*plain=*/true);
    timeline.launched(1, us(start_us + 20), Duration{});
    timeline.waited(us(start_us + 60), Duration{}, /*plain=*/true);
  };
  for (int n = 0; n < 100; ++n) with_wait(100 * n);
  const IterationModel::Spot first = timeline.spot(0), second = timeline.spot(1);
  timeline.begin();
  CHECK(timeline.work(timeline.spot(0)).ns == 10'000);
  CHECK(timeline.work(second).ns == 40'000);  // of the iteration before, still there
  CHECK(timeline.work(first).ns == 50'000);   // ... and so is its first, which has the place of the next
  timeline.launched(0, us(10'000), Duration{});
  CHECK(timeline.due(us(10'005)).ns == Approx(us(10'010).ns).margin(1'000));
  for (int n = 0; n < 20; ++n) iterate(timeline, 20'000 + 100 * n, 60);
  timeline.begin();
  CHECK(timeline.work(timeline.spot(0)).ns == 40'000);
}

// Of a round of so many: what each takes until its end, the device's work twice that of the first kind.
IterationModel learnt_by_turns(const std::vector<int64_t>& ends_us, size_t round, int count = 60) {
  IterationModel timeline;
  timeline.restart(2);
  for (int n = -count; n <= 0; ++n) {
    const size_t turn = static_cast<size_t>(n + count) % ends_us.size();
    timeline.begin(round, round == 0 ? 0 : turn);
    if (n == 0) break;
    timeline.launched(0, us(100 * n), Duration{});
    timeline.worked(timeline.spot(0), long_us(10), /*seen=*/true);
    timeline.launched(1, us(100 * n + 20), Duration{});
    timeline.worked(timeline.spot(1), long_us(turn == 0 ? 30 : 60), /*seen=*/true);
    timeline.waited(us(100 * n + ends_us[turn]), Duration{}, /*plain=*/true);
  }
  return timeline;
}

TEST_CASE("Where iterations go differently by turns each turn has its own course") {
  const std::vector<int64_t> ends_us{50, 80, 95};
  for (const int more : {0, 1, 2}) {  // which one is next
    INFO("turn " << more);
    IterationModel known = learnt_by_turns(ends_us, 3, 60 + more);
    IterationModel mixed = learnt_by_turns(ends_us, 0, 60 + more);
    const int64_t pause_us = 100 - ends_us[static_cast<size_t>(more + 2) % 3];
    CHECK(known.sure_pause().ns == long_us(pause_us).ns);
    CHECK(known.pause_of_all().ns == mixed.pause_of_all().ns);
    known.launched(0, us(0), Duration{});
    mixed.launched(0, us(0), Duration{});
    CHECK(known.due(us(0)).ns == us(ends_us[static_cast<size_t>(more)]).ns);
    CHECK(mixed.due(us(0)).ns < us(45).ns);  // as if the host's pace varied
    CHECK(known.work(known.spot(0)).ns == (more == 0 ? 40'000 : 70'000));
  }
}

TEST_CASE("What is in flight of the turn before is counted as that turn goes") {
  IterationModel timeline = learnt_by_turns({50, 80}, 2);
  timeline.launched(0, us(0), Duration{});
  const IterationModel::Spot first = timeline.spot(1);
  timeline.launched(1, us(20), Duration{});
  timeline.begin(2, 1);
  CHECK(timeline.work(first).ns == 30'000 + 70'000);
  CHECK(timeline.next_spot().turn == 1);
}

TEST_CASE("A round that is not known any more is forgotten, what is known of all iterations is not") {
  IterationModel timeline = learnt_by_turns({50, 80}, 2);
  CHECK(timeline.due(us(0)).ns == us(50).ns);
  timeline.begin();
  CHECK(timeline.known());
  CHECK(timeline.due(us(0)).ns > us(0).ns);
  CHECK(timeline.due(us(0)).ns < us(50).ns);
  // Another round starts from what is known of all.
  timeline.begin(3, 0);
  CHECK(timeline.due(us(0)).ns > us(0).ns);
  CHECK(timeline.due(us(0)).ns < us(50).ns);
}

TEST_CASE("An iteration that the host hardly ever waits in is none") {
  for (const int launches_a_wait : {1, 2, 10}) {
    IterationModel timeline;
    timeline.restart(1);
    for (int n = 0; n < 100; ++n) {
      timeline.begin();
      timeline.launched(0, us(100 * n), Duration{});
      if (n % launches_a_wait == 0) {
        timeline.waited(us(100 * n + 60), Duration{}, /*plain=*/true);
      }
    }
    timeline.begin();
    CHECK(timeline.has_waits() == (launches_a_wait <= 2));
  }
}

TEST_CASE("Work that was seen counts for more than what was predicted") {
  IterationModel timeline;
  timeline.restart(1);
  const auto once = [&](int64_t start_us) {
    timeline.begin();
    timeline.launched(0, us(start_us), Duration{});
    timeline.waited(us(start_us + 50), Duration{}, /*plain=*/true);
  };
  timeline.worked(timeline.spot(0), long_us(10), /*seen=*/false);
  CHECK(timeline.seen_work(0).ns < 0);
  for (int n = 0; n < 3; ++n) once(100 * n);
  CHECK(timeline.work(timeline.next_spot()).ns == 10'000);
  timeline.worked(timeline.spot(0), long_us(30), /*seen=*/true);
  timeline.worked(timeline.spot(0), long_us(12), /*seen=*/false);
  once(300);
  CHECK(timeline.seen_work(0).ns == 30'000);
  CHECK(timeline.work(timeline.next_spot()).ns == 30'000);
  // It follows a change within a few.
  for (int n = 0; n < 12; ++n) timeline.worked(timeline.spot(0), long_us(90), /*seen=*/true);
  CHECK(timeline.seen_work(0).ns > 85'000);
  CHECK(timeline.seen_work(1).ns < 0);
}

TEST_CASE("A host of varying pace has less slack, one of random pauses none") {
  const IterationModel even = steady();
  const IterationModel uneven = learnt([](int n) { return n % 2 == 0 ? 58 : 62; }, 40);
  const IterationModel wild = learnt([](int n) { return n % 2 == 0 ? 45 : 75; }, 40);
  CHECK(even.best_slack().ns == 60'000);
  CHECK(uneven.best_slack().ns < 56'000);
  CHECK(uneven.best_slack().ns > 45'000);
  CHECK(wild.best_slack().ns == 0);
  CHECK(uneven.due(us(-30)) < even.due(us(-30)));
  CHECK(wild.due(us(-30)) < uneven.due(us(-30)));
}

TEST_CASE("Own work that the device has yet to do at a launch is no slack") {
  IterationModel timeline;
  timeline.restart(1);
  for (int n = 0; n < 20; ++n) {
    timeline.begin();
    timeline.launched(0, us(100 * n), long_us(15));
    timeline.worked(timeline.spot(0), long_us(10), /*seen=*/true);
    timeline.waited(us(100 * n + 60), Duration{}, /*plain=*/true);
  }
  timeline.begin();
  CHECK(timeline.best_slack().ns == Approx(75'000).margin(100));  // with the 40 us before it
}

TEST_CASE("An iteration that others delayed does not change what is known of its own time") {
  IterationModel timeline = steady();
  for (int n = 0; n < 10; ++n) iterate(timeline, 100 * n, 90, /*delay=*/30);
  timeline.begin();
  timeline.launched(0, us(2000), Duration{});
  CHECK(timeline.due(us(2000)).ns == us(2060).ns);
  // Where nothing is known yet, it is the best there is.
  IterationModel fresh;
  fresh.restart(2);
  for (int n = 0; n < 3; ++n) iterate(fresh, 100 * n, 90, /*delay=*/30);
  fresh.begin();
  fresh.launched(0, us(2000), Duration{});
  CHECK(fresh.due(us(2000)).ns == us(2060).ns);
}

TEST_CASE("What was guessed from delayed iterations is forgotten at the first undisturbed one") {
  IterationModel timeline;
  timeline.restart(2);
  for (int n = 0; n < 3; ++n) iterate(timeline, 100 * n, 90, /*delay=*/10);
  iterate(timeline, 300, 60);
  timeline.begin();
  timeline.launched(0, us(2000), Duration{});
  CHECK(timeline.due(us(2000)).ns == us(2060).ns);
}

TEST_CASE("A task whose own time changes is learnt anew") {
  IterationModel timeline = steady();
  for (int n = 0; n < 200; ++n) iterate(timeline, 200 * n, 150);
  timeline.begin();
  timeline.launched(0, us(50'000), Duration{});
  CHECK(timeline.due(us(50'000)).ns == Approx(us(50'150).ns).margin(2'000));
}

TEST_CASE("A host that pauses regularly is away for what is much shorter only, or when it stays longer") {
  PausingHost host;
  CHECK_FALSE(host.is_away(1'000'000, 10));  // nothing is known
  for (int n = 0; n < 50; ++n) host.serve(1'000);
  CHECK_FALSE(host.is_away(0, 10'000));
  CHECK_FALSE(host.is_away(2'000, 10'000));
  CHECK(host.is_away(3'000, 10'000));  // it should be back long since
  CHECK(host.is_away(0, 400));
  CHECK_FALSE(host.is_away(0, 600));
  CHECK_FALSE(host.timeline.goes_away(long_us(600)));
  CHECK(host.timeline.goes_away(long_us(400)));
  // Without any pause.
  PausingHost busy;
  for (int n = 0; n < 50; ++n) busy.serve(2);
  CHECK_FALSE(busy.is_away(0, 10));
  CHECK_FALSE(busy.is_away(100, 10));
  CHECK(busy.is_away(200, 10));
  CHECK_FALSE(busy.timeline.goes_away(long_us(10)));
}

TEST_CASE("A host that waits for requests at random is away") {
  std::mt19937 random(3);
  const auto learn = [&](PausingHost& host, double mean_us) {
    std::exponential_distribution<double> pause(1 / mean_us);
    for (int n = 0; n < 200; ++n) host.serve(static_cast<int64_t>(pause(random)));
  };
  int away = 0, goes_away = 0, sure = 0;
  for (int n = 0; n < 100; ++n) {
    PausingHost host;
    learn(host, 100'000);
    away += host.is_away(0, 10'000) ? 1 : 0;
    goes_away += host.timeline.goes_away(long_us(10'000)) ? 1 : 0;
    CHECK(host.is_away(500'000, 10'000));
    CHECK_FALSE(host.is_away(0, 1'000'000));
    sure += host.timeline.sure_pause().ns > 0 ? 1 : 0;
  }
  CHECK(away >= 90);
  CHECK(goes_away >= 90);
  CHECK(sure <= 10);  // hardly ever a pause to count on
}

TEST_CASE("A host pauses at random where its pauses are as often short as long") {
  PausingHost regular, random;
  std::mt19937 seed(5);
  std::exponential_distribution<double> pause(1.0 / 100);
  for (int n = 0; n < 100; ++n) {
    regular.serve(n % 2 == 0 ? 90 : 110);
    random.serve(static_cast<int64_t>(pause(seed)));
  }
  CHECK_FALSE(regular.timeline.pauses_at_random());
  CHECK(random.timeline.pauses_at_random());
}

TEST_CASE("A host that is away for long now and then is known by what is usual") {
  PausingHost host;
  for (int n = 0; n < 400; ++n) host.serve(n % 10 == 9 ? 100'000 : 1'000);
  CHECK_FALSE(host.is_away(0, 5'000));
  CHECK_FALSE(host.is_away(1'900, 5'000));
  CHECK(host.is_away(5'000, 5'000));
  CHECK(host.timeline.goes_away(long_us(5'000)));  // now and then
  CHECK_FALSE(host.timeline.goes_away(long_us(10'000)));
  // A change is followed within a few.
  for (int n = 0; n < 40; ++n) host.serve(100'000);
  CHECK(host.is_away(0, 5'000));
  for (int n = 0; n < 40; ++n) host.serve(1'000);
  CHECK_FALSE(host.is_away(0, 5'000));
}

TEST_CASE("A service starts behind the wait of the longest stretch") {
  for (const bool first_longer : {true, false}) {
    IterationModel timeline;
    timeline.restart(4);
    int64_t now_us = 0;
    for (int n = 0; n < 20; ++n) {
      two_stretches(timeline, now_us, first_longer ? 500 : 100, first_longer ? 100 : 500);
    }
    timeline.begin();
    CHECK(timeline.service_start() == (first_longer ? 2 : 0));
    CHECK(timeline.service_launched() == !first_longer);  // the last one has been, whole
    for (uint32_t position = 0; position < 4; ++position) {
      timeline.launched(position, us(now_us + 10 * position), Duration{});
      CHECK(timeline.service_launched() == (position == (first_longer ? 1U : 3U)));
    }
  }
}

TEST_CASE("Where two stretches take about the same the service does not flap") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    IterationModel timeline;
    timeline.restart(4);
    int64_t now_us = 0;
    int others = 0;
    const auto one = [&](int64_t first_us, int64_t second_us) {
      const uint32_t before = timeline.service_start();
      const bool other = two_stretches(timeline, now_us, first_us, second_us);
      CHECK(other == (timeline.service_start() != before));
      others += other ? 1 : 0;
    };
    const auto about = [&](int64_t us) {
      return us * 9 / 10 + static_cast<int64_t>(random() % static_cast<uint32_t>(us / 5));
    };
    for (int n = 0; n < 500; ++n) one(about(100), about(100));
    INFO("seed " << seed);
    CHECK(others <= 1);
    // One that has become much longer is followed, once each.
    others = 0;
    const uint32_t kept = timeline.service_start();
    for (int n = 0; n < 50; ++n) one(about(kept == 0 ? 200 : 100), about(kept == 0 ? 100 : 200));
    CHECK(others == 1);
    CHECK(timeline.service_start() == 2 - kept);
  }
}

TEST_CASE("How late a wait is can be said of a host of steady pace only") {
  IterationModel timeline = steady();
  CHECK(timeline.lateness(us(0), long_us(1)).ns > kForEver);  // nothing launched
  timeline.launched(0, us(0), Duration{});
  timeline.launched(1, us(20), Duration{});
  CHECK(timeline.lateness(us(75), Duration{}).ns == 15'000);
  CHECK(timeline.lateness(us(60), Duration{}).ns == 0);
  CHECK(timeline.lateness(us(50), Duration{}).ns == 0);
  IterationModel wild = learnt([](int n) { return n % 2 == 0 ? 45 : 75; });
  wild.launched(0, us(0), Duration{});
  wild.launched(1, us(20), Duration{});
  CHECK(wild.lateness(us(75), long_us(1)).ns > kForEver);
  CHECK(wild.lateness(us(75), long_us(100)).ns < kForEver);
}

TEST_CASE("A pause of the host is longer than usual by what it exceeds it") {
  IterationModel timeline = steady();
  timeline.launched(0, us(0), Duration{});
  CHECK(timeline.longer_pause(1, us(27)).ns == 7'000);
  CHECK(timeline.longer_pause(1, us(15)).ns == 0);
  CHECK(timeline.longer_pause(0, us(27)).ns == 0);  // not the one that comes next
  CHECK(timeline.longer_pause(7, us(27)).ns == 0);
}

// ---- what is charged --------------------------------------------------------------------------

TEST_CASE("Lower work in front of a wait is charged exactly") {
  for (const uint32_t length : {0, 1}) {
    for (const int64_t lower_us : {1, 7, 40, 300, 6'000}) {
      // Late enough that it is known how long services take; from then on more is aimed at.
      const auto cost = charged([](World& w) { serve_many(w, 53); },
                                [&](World& w) {
                                  serve_many(w, 40);
                                  serve(w, lower_us);
                                  serve_many(w, 12);
                                },
                                {.mean_per_mille = 1000, .tail_per_mille = 1000}, length);
      CHECK(cost == lower_us * 1000);
    }
  }
  // Of one that has run for a while when the launch comes, what is left of it.
  const auto half = charged([](World& w) { serve_many(w, 11); },
                            [](World& w) {
                              serve_many(w, 10);
                              w.pause(100);
                              w.lower(40, /*ago=*/30);
                              w.launch(100);
                              w.wait();
                            });
  CHECK(half == 10'000);
}

TEST_CASE("Lower work that a later pause of the host makes up for costs nothing") {
  const auto request = [](World& w, int64_t lower_us) {
    w.iteration();
    w.pause(100);
    if (lower_us > 0) w.lower(lower_us);
    w.launch(20);
    w.pause(80);
    w.launch(20);
    w.wait();
  };
  for (const uint32_t length : {0, 2}) {
    const auto cost = [&](int64_t lower_us) {
      return charged_at_last(
          10, [&](World& w, int, int64_t lower) { request(w, lower); }, lower_us, length);
    };
    CHECK(cost(30) == 0);
    CHECK(cost(60) == 0);
    CHECK(cost(75) == 15'000);
  }
}

TEST_CASE("A clean stretch costs nothing, however long the device takes") {
  World world;
  serve_many(world, 10);
  CHECK(world.account_ns() == 10 * kEarned);
  world.pause(100);
  world.launch(300, 0, /*expected=*/100);
  world.wait();
  CHECK(world.account_ns() == 13 * kEarned);  // it earns by its own length
}

TEST_CASE("No more is charged than lower work ran") {
  // The launch takes 50 us longer than ever, and a lower unit of 5 us was before it.
  const auto cost = charged(
      [](World& w) {
        serve_many(w, 10);
        w.pause(100);
        w.launch(150, 0, 100);
        w.wait();
      },
      [](World& w) {
        serve_many(w, 10);
        w.pause(100);
        w.lower(5);
        w.launch(150, 0, 100);
        w.wait();
      });
  CHECK(cost == 5'000);
}

TEST_CASE("A host that comes long after the device was through was not delayed") {
  const auto late = [](World& w, int64_t lower_us) {
    w.pause(100);
    if (lower_us > 0) w.lower(lower_us);
    w.launch(100);
    w.pause(500);
    w.wait();
  };
  const auto cost = charged(
      [&](World& w) {
        serve_many(w, 10);
        late(w, 0);
        serve(w);
      },
      [&](World& w) {
        serve_many(w, 10);
        late(w, 40);
        serve(w);
      });
  CHECK(cost == 0);
}

TEST_CASE("Lengths that are predicted wrong by a factor are calibrated") {
  // Ten launches, each so long and predicted `expected`; the first of them 100 us before the rest.
  const auto request = [](World& w, int64_t expected, int64_t lower_us) {
    w.iteration();
    w.pause(100);
    if (lower_us > 0) w.lower(lower_us);
    w.launch(60, 0, expected);
    w.pause(100);
    for (int k = 0; k < 10; ++k) w.launch(60, 0, expected);
    w.wait();
  };
  for (const uint32_t length : {0, 11}) {
    for (const int64_t expected : {20, 180}) {
      const auto cost = [&](int64_t lower_us) {
        return charged_at_last(
            1200, [&](World& w, int, int64_t lower) { request(w, expected, lower); }, lower_us,
            length);
      };
      INFO("predicted " << expected << " us, iteration of " << length);
      CHECK(cost(30) == Approx(0).margin(1'000));
      CHECK(cost(90) == Approx(50'000).margin(1'000));
    }
  }
}

// The host comes sooner or later after the device is through, so that only the shadow can tell.
TEST_CASE("What lengths were taken for before the iteration was known is not held against it") {
  const auto request = [](World& w, int n, int64_t lower_us) {
    w.iteration();
    w.pause(100);
    if (lower_us > 0) w.lower(lower_us);
    w.launch(20, 0, /*expected=*/200);
    w.pause(80);
    w.launch(20, 0, /*expected=*/200);
    w.pause(n % 2 == 0 ? 30 : 90);
    w.wait();
  };
  const auto cost = [&](int64_t lower_us) {
    return charged_at_last(20, request, lower_us, /*length=*/2);
  };
  CHECK(cost(30) == 0);
  CHECK(cost(75) == Approx(15'000).margin(1'000));
}

TEST_CASE("Copies have engines of their own: lower kernels do not delay them") {
  const auto cost = charged(
      [](World& w) {
        serve_many(w, 10);
        w.copy(100, 1);
        w.wait({1});
        w.copy(100, 1);
        w.launch(30);
        w.wait({0, 1});
      },
      [](World& w) {
        serve_many(w, 10);
        w.lower(40);
        w.copy(100, 1);
        w.wait({1});
        // The kernel is late, but done before the copy.
        w.copy(100, 1);
        w.lower(40);
        w.launch(30);
        w.wait({0, 1});
      });
  CHECK(cost == 0);
  // Not even one that takes longer than ever.
  const auto slow_copy = [](World& w, int64_t lower_us) {
    serve_many(w, 10);
    if (lower_us > 0) w.lower(lower_us);
    w.copy(150, 1, /*expected=*/100);
    w.wait({1});
  };
  CHECK(charged([&](World& w) { slow_copy(w, 0); }, [&](World& w) { slow_copy(w, 40); }) == 0);
  // And a kernel does not wait for the copy on another stream.
  const auto beside_copy = [](World& w, int64_t lower_us) {
    serve_many(w, 10);
    w.copy(100, 1);
    if (lower_us > 0) w.lower(lower_us);
    w.launch(30);
    w.wait({0});
    w.pause(100);
    w.wait({1});
  };
  CHECK(charged([&](World& w) { beside_copy(w, 0); }, [&](World& w) { beside_copy(w, 40); }) ==
        40'000);
}

// Two streams, the host waiting for one and then for the other; lower work before each launch.
int64_t two_waits_cost(int64_t before_us, int64_t between_us) {
  const auto request = [](World& w, int64_t before, int64_t between) {
    w.pause(100);
    if (before > 0) w.lower(before);
    w.launch(20, 0);
    if (between > 0) w.lower(between);
    w.launch(200, 1);
    w.wait({0});
    w.wait({1});
  };
  return charged(
      [&](World& w) {
        serve_many(w, 10);
        request(w, 0, 0);
        serve_many(w, 2);
      },
      [&](World& w) {
        serve_many(w, 10);
        request(w, before_us, between_us);
        serve_many(w, 2);
      });
}

TEST_CASE("With several streams a wait is charged for what it waited for, and nothing twice") {
  CHECK(two_waits_cost(30, 0) == 30'000);
  CHECK(two_waits_cost(7, 0) == 7'000);
}

// A wait without a launch since the one before is not looked at.
TEST_CASE("A second wait is charged for what the first did not wait for", "[!shouldfail]") {
  CHECK(two_waits_cost(0, 30) == 30'000);
  CHECK(two_waits_cost(20, 30) == 50'000);
}

TEST_CASE("A host held up by a full queue is not taken for one that pauses") {
  constexpr int kLaunches = 600;
  constexpr size_t kPlaces = 300;
  const auto request = [](World& w, int64_t lower_us) {
    w.iteration();
    w.pause(100);
    for (int k = 0; k < kLaunches; ++k) {
      if (k == kLaunches - 10 && lower_us > 0) w.lower(lower_us, /*ago=*/0);
      w.now = std::max(w.now + 1, w.done_at(kPlaces));
      w.launch(10);
    }
    w.wait();
  };
  const auto cost = charged(
      [&](World& w) {
        for (int n = 0; n < 11; ++n) request(w, 0);
      },
      [&](World& w) {
        for (int n = 0; n < 10; ++n) request(w, 0);
        request(w, 200);
      },
      {}, kLaunches);
  CHECK(cost == Approx(200'000).margin(1'000));
}

// ---- accounts ---------------------------------------------------------------------------------

TEST_CASE("A guard wants to see its task by itself first, and again once in a while") {
  World world;
  CHECK(world.guard.wants_clean());
  serve_many(world, 1);
  CHECK(world.guard.wants_clean());
  serve_many(world, 1);
  CHECK_FALSE(world.guard.wants_clean());
  int served = 0;
  for (; served < 2000 && !world.guard.wants_clean(); ++served) {
    serve(world, 1);
  }
  CHECK(served < 2000);
  CHECK(served > 100);
  CHECK(world.account_ns() > 0);
  serve(world);
  CHECK_FALSE(world.guard.wants_clean());
}

TEST_CASE("The mean account earns by every service and is spent by delays") {
  World world;
  serve_many(world, 20);
  CHECK(world.account_ns() == 20 * kEarned);
  serve(world, 50);
  CHECK(world.account_ns() == 21 * kEarned - 50'000);
  // What is earned is borne without end.
  World steady;
  serve_many(steady, 2);
  for (int n = 0; n < 100; ++n) {
    serve(steady, 2);
    CHECK(steady.account_ns() >= 0);
    CHECK_FALSE(steady.guard.wants_clean());
  }
}

TEST_CASE("An overdrawn account turns everything away until it has recovered") {
  for (const uint32_t length : {0, 1}) {
    World world({}, length);
    serve_many(world, 5);
    int served = 0;
    for (; served < 80 && world.account_ns() >= -5 * kEarned; ++served) {
      serve(world, world.guard.wants_clean() ? 0 : 15);  // some are kept undisturbed
    }
    CHECK(served > 1);
    CHECK(served < 80);
    int clean = 0;
    for (; clean < 200 && world.guard.wants_clean(); ++clean) serve(world);
    CHECK(clean > 0);
    CHECK_FALSE(world.guard.wants_clean());
  }
  // One long unit is owed as a limited number of services.
  World world;
  serve_many(world, 5);
  serve(world, 100'000);
  int clean = 0;
  for (; clean < 200 && world.guard.wants_clean(); ++clean) serve(world);
  CHECK(clean > 20);
  CHECK(clean < 100);
}

TEST_CASE("The account does not grow for ever, unless a unit waits for it") {
  World world;
  serve_many(world, 1000);
  const int64_t most = world.account_ns();
  serve_many(world, 100);
  CHECK(world.account_ns() == most);
  CHECK(most < 200 * kEarned);
  world.guard.refused(long_us(4'000));
  serve_many(world, 2000);
  CHECK(world.account_ns() == 5'000'000);
}

TEST_CASE("A unit longer than every slack is afforded once the account holds it, not before") {
  World world;
  serve_many(world, 10);
  const Duration excess = long_us(100);
  int served = 0;
  for (; served < 1000 && !world.affords(excess); ++served) serve(world);
  CHECK(served < 1000);
  CHECK(world.account_ns() >= excess.ns);
  CHECK_FALSE(world.affords(long_us(100'000)));
  // Where nothing may be lost it never is.
  World strict({.mean_per_mille = 0, .tail_per_mille = 0});
  serve_many(strict, 1000);
  CHECK_FALSE(strict.affords(Duration{1}));
}

TEST_CASE("What surely costs is paid from less than what may cost nothing") {
  World world;
  serve_many(world, 60);
  const Duration excess{world.account_ns() - 20'000};  // a service earns 6'000
  CHECK(world.guard.idle());
  CHECK(world.affords(excess));
  world.pause(100);
  world.launch(100);
  CHECK_FALSE(world.guard.idle());
  CHECK_FALSE(world.affords(excess));
  CHECK(world.affords(excess - long_us(40)));
}

TEST_CASE("A service over the tail bound uses up what a hundred earn") {
  World world;
  world.guard.refused(long_us(10'000));
  serve_many(world, 400);
  const Duration excess = long_us(50);
  CHECK(world.affords(excess));
  serve(world, 15);  // 15 %, where 5 % are allowed
  serve(world);      // that one has ended
  CHECK(world.account_ns() > 10 * excess.ns);
  CHECK_FALSE(world.affords(excess));
  int served = 0;
  for (; served < 1000 && !world.affords(excess); ++served) serve(world);
  CHECK(served >= 100);
  CHECK(served <= 150);
  // A service within the bound costs none.
  serve(world, 4);
  serve(world);
  CHECK(world.affords(excess));
}

TEST_CASE("A unit that may be far shorter than is reckoned with needs less than a whole one to exceed the tail") {
  const Duration excess = long_us(50);
  const auto waits_for = [&](Duration spare) {  // services, after one that exceeded it
    World world;
    world.guard.refused(long_us(10'000));
    serve_many(world, 400);
    serve(world, 15);
    serve(world);
    int served = 0;
    for (; served < 1000 && !world.affords(excess, spare); ++served) serve(world);
    return served;
  };
  const int surely = waits_for(Duration{});
  CHECK(surely >= 100);
  CHECK(waits_for(long_us(45)) == surely);  // at its mean it exceeds the room, too
  CHECK(waits_for(long_us(60)) < surely / 2);
  CHECK(waits_for(long_us(60)) > surely / 4);
}

// ---- room -------------------------------------------------------------------------------------

// An iteration of two launches: 100 us before the first, 80 between them.
void two_launches(World& world) {
  world.iteration();
  world.pause(100);
  world.launch(20);
  world.pause(80);
  world.launch(20);
  world.wait();
}

TEST_CASE("A service over the tail bound counts from its end, though its account is settled by the next") {
  for (const uint32_t length : {0, 2}) {
    World world({}, length);
    world.guard.refused(long_us(10'000));
    for (int n = 0; n < 600; ++n) two_launches(world);
    const Duration excess = long_us(100);
    const auto affords_behind = [&](int64_t lower_us) {
      world.iteration();
      world.pause(100);
      world.lower(lower_us);
      world.launch(20);
      world.pause(80);
      world.launch(20);
      world.wait();
      return world.affords(excess);
    };
    CHECK(affords_behind(0));
    CHECK_FALSE(affords_behind(400));  // the one that was saved
  }
}

TEST_CASE("A service that is excepted takes what the account has plenty of, one that is only late does not") {
  for (const bool excepted : {true, false}) {
    World world({}, /*length=*/2);
    for (int n = 0; n < 600; ++n) two_launches(world);
    const int64_t saved = world.account_ns();
    world.iteration();
    world.pause(100);
    world.launch(20);
    CHECK_FALSE(world.guard.over_anyway(us(world.now)));
    const Duration excess = excepted ? long_us(200) : Duration{};
    CHECK(world.affords(excess));
    world.spend(excess);
    world.lower(400);
    world.pause(200);  // its host should have been back
    CHECK(world.guard.over_anyway(us(world.now)) == excepted);
    CHECK((world.room().ns > saved / 2) == excepted);
    CHECK(world.room().ns < saved);
    world.launch(20);
    world.wait();
    CHECK_FALSE(world.guard.over_anyway(us(world.now)));  // the next one is another
  }
}

// An iteration of 40 launches of 5 us, ahead of the device.
TEST_CASE("A service that is excepted is filled as long as its launches outnumber lower units, however short they are") {
  World world({}, /*length=*/40);
  const auto serve_forty = [&](int launches) {
    for (int n = 0; n < launches; ++n) {
      world.launch(5);
      world.pause(1);
    }
  };
  for (int n = 0; n < 600; ++n) {
    world.iteration();
    world.pause(100);
    if (n % 4 == 0) world.lower(2);  // so short that as much as is left of own work leaves it no time
    serve_forty(40);
    world.wait();
  }
  const int64_t saved = world.account_ns();
  world.iteration();
  world.pause(100);
  world.spend(long_us(200));
  world.lower(400);
  serve_forty(20);
  REQUIRE(world.guard.over_anyway(us(world.now)));
  CHECK(world.room(1).ns > saved / 2);  // 40 launches are left, 20 of them to come
  CHECK(world.room(20).ns > saved / 2);
  CHECK(world.room(40).ns <= 0);  // these would be there when it ends
}

TEST_CASE("The exception that the request at hand will have been is not there for the next one") {
  for (const bool late : {false, true}) {
    World world({}, /*length=*/2);
    world.guard.refused(long_us(10'000));
    for (int n = 0; n < 600; ++n) two_launches(world);
    const Duration excess = long_us(100);
    REQUIRE(world.affords(excess));  // one
    world.iteration();
    world.pause(100);
    if (late) world.lower(400);
    world.launch(20);
    world.pause(80);
    world.launch(20);
    world.pause(late ? 345 : 10);
    world.lower(0);  // it has one launch left, and has not waited yet
    CHECK(world.affords(excess) != late);
  }
}

TEST_CASE("What is let go between two services excepts the one that it delays") {
  for (const bool excepted : {true, false}) {
    World world({}, /*length=*/2);
    for (int n = 0; n < 600; ++n) two_launches(world);
    const Duration excess = excepted ? long_us(200) : Duration{};
    world.spend(excess);
    CHECK_FALSE(world.guard.over_anyway(us(world.now)));
    world.lower(400);
    world.iteration();
    world.pause(100);
    world.launch(20);
    world.pause(80);
    world.launch(20);
    world.pause(100);
    CHECK(world.guard.over_anyway(us(world.now)) == excepted);
    world.wait();
    two_launches(world);
    world.iteration();
    world.pause(100);
    world.launch(20);
    CHECK_FALSE(world.guard.over_anyway(us(world.now)));  // the next one is another
    world.pause(80);
    world.launch(20);
    world.wait();
  }
}

TEST_CASE("A service that a unit made exceed the tail unforeseen is one to spend in, while these are few") {
  World world({}, /*length=*/2);
  for (int n = 0; n < 600; ++n) two_launches(world);
  std::vector<bool> over;
  for (int n = 0; n < 6; ++n) {
    world.iteration();
    world.pause(100);
    world.lower(400);  // foretold to fit
    world.launch(20);
    world.pause(80);
    world.launch(20);
    CHECK_FALSE(world.guard.over_anyway(us(world.now)));  // it is not complete yet
    world.pause(325);
    world.lower(0);  // what has happened until now is told
    over.push_back(world.guard.over_anyway(us(world.now)));
    world.wait();
    two_launches(world);
  }
  CHECK(over.front());
  CHECK_FALSE(over.back());
}

TEST_CASE("Beside random requests the accounts give nothing in one while a unit waits for a pause") {
  World world({}, /*length=*/2);
  std::mt19937 random(5);
  std::exponential_distribution<double> pause(1.0 / 100);
  const auto request = [&] {
    world.iteration();
    world.pause(static_cast<int64_t>(pause(random)));
    world.launch(20);
    world.pause(80);
    world.launch(20);
    world.wait();
  };
  for (int n = 0; n < 600; ++n) request();
  const auto room_in_one = [&] {
    world.iteration();
    world.pause(100);
    world.launch(20);
    const Duration room = world.room();
    world.pause(80);
    world.launch(20);
    world.wait();
    return room;
  };
  const Duration before = room_in_one();
  world.guard.refused(long_us(300));
  const Duration meanwhile = room_in_one();
  CHECK(meanwhile < before);
  request();
  request();
  CHECK(room_in_one() > meanwhile);  // nobody asks any more
}

TEST_CASE("Between random requests a unit may cost what p99 allows, less where units have cost more than foretold") {
  World world({}, /*length=*/2);
  std::mt19937 random(5);
  std::exponential_distribution<double> pause(1.0 / 1'000);
  const auto serve = [&](int64_t lower_us) {
    world.iteration();
    world.pause(static_cast<int64_t>(pause(random)));
    if (lower_us > 0) world.lower(lower_us);
    world.launch(200);
    world.pause(10);
    world.launch(800);
    world.wait();
  };
  for (int n = 0; n < 600; ++n) serve(0);
  const Duration left = long_us(40);  // 4 of the 5 % that are allowed
  CHECK(world.affords(left - world.room()));
  for (int n = 0; n < 4; ++n) serve(200);  // foretold to fit
  serve(0);
  CHECK_FALSE(world.affords(left - world.room()));
  for (int n = 0; n < 600; ++n) serve(0);
  CHECK(world.affords(left - world.room()));
}

TEST_CASE("Where a request is several services p99 is about the whole, whether their iteration is known or not") {
  for (const auto& [services, length] : {std::pair(1, 2U), {4, 2U}, {1, 0U}, {4, 0U}}) {
    CAPTURE(services, length);
    World world({}, length);
    std::mt19937 random(5);
    std::exponential_distribution<double> pause(1.0 / 20'000);
    const auto requests = [&](int count, int64_t lower_us) {
      world.pause(static_cast<int64_t>(pause(random)) + 2'000);
      if (lower_us > 0) world.lower(lower_us);
      for (int n = 0; n < count * services; ++n) {
        world.iteration();
        world.pause(20);
        world.launch(200);
        world.pause(80);
        world.launch(700);
        world.wait();
      }
    };
    // Some find another one waiting.
    for (int n = 0; n < 200; ++n) requests(n % 3 == 0 ? 2 : 1, 0);
    world.pause(10'000);
    // In a pause, nearly four times what one service of 1 ms may lose.
    const auto affords = [&] {
      return world.affords(long_us(160) - world.room());
    };
    CHECK(affords());
    // So many of them that none may exceed p99 any more.
    for (int n = 0; n < 12; ++n) requests(1, 160);
    for (int n = 0; n < 40; ++n) requests(n % 3 == 0 ? 2 : 1, 0);
    world.pause(10'000);
    CHECK(affords() == (services == 4));
  }
}

TEST_CASE("A task without a known iteration has no slack, only what its account allows") {
  World world;
  CHECK(world.room().ns == 0);
  serve_many(world, 4);
  CHECK_FALSE(world.guard.in_step());
  const int64_t allowed = 100'000 * 5 / 100 * 875 / 1000;  // a service within the tail bound
  CHECK(world.room().ns == allowed);
  world.pause(70);
  CHECK(world.room().ns == allowed);
  world.pause(30);
  world.launch(100);
  CHECK(world.room().ns == 0);  // the reserve
}

TEST_CASE("A known iteration has room for the pauses of its host") {
  World world({.mean_per_mille = 0, .tail_per_mille = 0}, /*length=*/2);
  for (int n = 0; n < 20; ++n) two_launches(world);
  CHECK(world.guard.in_step());
  // 100 us until the first launch, and 60 between the two.
  CHECK(world.room().ns == Approx(160'000).margin(200));
  CHECK_FALSE(world.has_better_moment(long_us(50)));
  world.pause(100);
  CHECK(world.room().ns == Approx(60'000).margin(200));
  world.iteration();
  world.launch(20);
  CHECK(world.room().ns == Approx(60'000).margin(200));
  world.pause(10);
  CHECK(world.room().ns == Approx(50'000).margin(200));
  CHECK_FALSE(world.affords(Duration{1}));
  world.pause(70);
  world.launch(20);
  CHECK(world.room().ns == Approx(0).margin(200));
  CHECK(world.has_better_moment(long_us(50)));
  world.spend(long_us(600));
  CHECK_FALSE(world.has_better_moment(long_us(50)));
  world.wait();
}

TEST_CASE("What a wait leaves to do for another stream is no work before it") {
  World world({.mean_per_mille = 0, .tail_per_mille = 0}, /*length=*/2);
  const auto step = [&](int64_t lower_us) {
    world.iteration();
    world.pause(100);
    if (lower_us > 0) world.lower(lower_us);
    world.launch(20, /*stream=*/0);
    world.launch(60, /*stream=*/1);
    world.pause(50);
    world.wait({0});
  };
  for (int n = 0; n < 20; ++n) step(0);
  // 150 us until the next wait ends, 60 there and 80 to come; 30 us of them are left then.
  CHECK(world.room().ns == Approx(40'000).margin(200));
  // Where lower work has been in the way more is left, which is not its own doing.
  for (int n = 0; n < 40; ++n) step(30);
  CHECK(world.room().ns == Approx(40'000).margin(200));
}

TEST_CASE("The end of a unit that began with its launch may have been seen late") {
  // 20 us to look at; what was foretold is believed, as far as a look may be late.
  for (const auto& [foretold_us, takes_us] : {std::pair{20, 20}, {17, 17}, {5, 15}, {30, 20}}) {
    World world({.mean_per_mille = 0, .tail_per_mille = 0}, /*length=*/2);
    for (int n = 0; n < 20; ++n) {
      world.iteration();
      for (const int64_t pause_us : {100, 80}) {
        world.pause(pause_us);
        world.launch(20, 0, foretold_us);
      }
      world.wait();
    }
    CHECK(world.room().ns == Approx(200'000 - 2 * takes_us * 1'000).margin(200));
  }
  // Behind another it is the time between two ends, each as late as the other.
  World world({.mean_per_mille = 0, .tail_per_mille = 0}, /*length=*/2);
  for (int n = 0; n < 20; ++n) {
    world.iteration();
    world.pause(100);
    world.launch(20, 0, 17);
    world.launch(20, 0, 17);
    world.wait();
  }
  CHECK(world.room().ns == Approx(140'000 - (17 + 20) * 1'000).margin(200));
}

TEST_CASE("A unit that exceeds p99 wherever it goes opens a request, if its length is sure") {
  World world({}, /*length=*/2);
  for (int n = 0; n < 600; ++n) two_launches(world);
  REQUIRE(world.account_ns() > 600'000);
  REQUIRE(world.account_ns() < 1'400'000);
  world.pause(60);  // of the best slack, 160 us, 100 are left
  CHECK_FALSE(world.has_better_moment(long_us(300)));
  CHECK(world.has_better_moment(long_us(300), /*spare=*/long_us(100)));
  CHECK(world.has_better_moment(long_us(150)));  // it fits where the slack is best
  CHECK(world.has_better_moment(long_us(700)));  // nothing would be left for a second one
  for (const bool sure : {true, false}) {
    World one({}, /*length=*/2);
    for (int n = 0; n < 600; ++n) two_launches(one);
    one.spend(long_us(200), long_us(300), sure ? Duration{} : long_us(100));
    one.iteration();
    one.pause(100);
    one.launch(20);
    CHECK(one.guard.over_anyway(us(one.now)) == sure);
    CHECK((one.room().ns > one.account_ns() / 2) == sure);
    // What was let go in vain, as far as is known, buys nothing for others.
    if (!sure) CHECK(one.has_better_moment(long_us(50)));
  }
}

// Behind each wait as much of another stream is left to do, until after the next iteration has begun.
TEST_CASE("A task that always has work on the device begins requests all the same") {
  for (const int left : {1, 2, 5}) {
    INFO(left << " launches left at each wait");
    World world({}, /*length=*/static_cast<uint32_t>(left) + 2);
    const auto step = [&] {
      world.iteration();
      world.pause(40);
      world.launch(20);
      world.pause(80);
      world.launch(20);
      for (int n = 0; n < left; ++n) world.launch(100 / left, /*stream=*/1);
      world.wait({0});
    };
    for (int n = 0; n < 600; ++n) step();
    REQUIRE_FALSE(world.guard.idle());
    REQUIRE(world.affords(long_us(300)));
    CHECK_FALSE(world.has_better_moment(long_us(300)));
    world.iteration();
    world.pause(40);
    world.launch(20);
    CHECK(world.has_better_moment(long_us(300)));  // the next request, then
  }
}

TEST_CASE("Half of the slack that is guessed at goes with a request that exceeds p99 for it") {
  World world({}, /*length=*/2);
  for (int n = 0; n < 600; ++n) two_launches(world);
  const int64_t known = world.room().ns;
  for (int n = 0; n < 100; ++n) {
    world.guard.refused(long_us(1'000));
    two_launches(world);
  }
  const int64_t guessed = world.room().ns - known;
  REQUIRE(guessed == 50'000);  // half of a service
  world.lower(174);  // 160 us fit
  two_launches(world);
  two_launches(world);
  const int64_t left = world.room().ns - known;
  CHECK(left < guessed / 2);
  CHECK(left > guessed / 3);
}

TEST_CASE("Slack that is only guessed at is lent as far as the account holds it") {
  World world;
  for (int n = 0; n < 300; ++n) {
    world.guard.refused(long_us(10));
    serve(world);
  }
  const int64_t allowed = 100'000 * 5 / 100 * 875 / 1000;
  CHECK(world.room().ns > allowed + 20'000);  // plenty was saved, and yet units were turned away
  world.spend(long_us(600));
  serve(world, 20'000);
  CHECK(world.account_ns() < 0);
  CHECK(world.room().ns == 0);
}

TEST_CASE("A host of random pauses leaves no room") {
  World world({.mean_per_mille = 0, .tail_per_mille = 0}, /*length=*/2);
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> pause(5, 150);
  for (int n = 0; n < 60; ++n) {
    world.iteration();
    world.pause(pause(random));
    world.launch(20);
    world.pause(pause(random));
    world.launch(20);
    world.wait();
  }
  CHECK(world.room().ns < 20'000);
  world.iteration();
  world.pause(100);
  world.launch(20);
  CHECK(world.room().ns <= 0);
}

// ---- that the device changes hands -------------------------------------------------------------

namespace {

// As two_launches(), with lower work that begins 980 us before the first of them.
void two_launches_behind(World& world, int64_t lower_us) {
  world.iteration();
  world.pause(20);
  world.lower(lower_us);
  world.pause(980);
  world.launch(20);
  world.pause(80);
  world.launch(100);
  world.wait();
}
void two_launches_alone(World& world) {
  world.iteration();
  world.pause(1'000);
  world.launch(20);
  world.pause(80);
  world.launch(100);
  world.wait();
}
// Knows what it costs that the device changes hands.
World switching(int64_t switch_us, GuardLimits limits = {}, int64_t lower_us = 50) {
  World world(limits, /*length=*/2, switch_us);
  for (int n = 0; n < 20; ++n) two_launches_alone(world);
  std::mt19937 random(5);
  for (int n = 0; n < 600; ++n) {
    if (random() % 6 == 0 && !world.guard.wants_clean()) two_launches_behind(world, lower_us);
    two_launches_alone(world);
  }
  return world;
}

}  // namespace

TEST_CASE("That the device changes hands is learnt, and counted as often as it has to") {
  World world = switching(150);
  const auto cost_us = [&] { return static_cast<double>(world.guard.switch_cost().ns) / 1'000; };
  CHECK(cost_us() == Approx(300).margin(6));  // to others, and back
  world.lower(50);
  CHECK(cost_us() == Approx(150).margin(3));  // they have it
  world.pause(300);
  CHECK(cost_us() == Approx(150).margin(3));
  world.iteration();
  world.launch(20);
  CHECK(cost_us() == Approx(450).margin(9));  // and it is on its way to own work
  world.wait();
  CHECK(cost_us() == Approx(300).margin(6));
  world.launch(100);
  CHECK(cost_us() == Approx(300).margin(6));
}

// 20 us behind the first launch.
TEST_CASE("What others still run when own work comes is no switch") {
  CHECK(switching(150, {}, /*lower_us=*/850).guard.switch_cost().ns ==
        Approx(300'000).margin(6'000));
}

TEST_CASE("Where the device does not change hands others cost what their work takes") {
  World world = switching(0);
  CHECK(world.guard.switch_cost().ns == 0);
  world.lower(50);
  world.launch(20);
  CHECK(world.guard.switch_cost().ns == 0);
}

// The second launch waits for 70 us of the first, of which its host has made up for none.
TEST_CASE("What services wait for the device to change hands is charged") {
  for (const int64_t switch_us : {0, 150}) {
    INFO(switch_us);
    World world = switching(switch_us);
    world.guard.refused(long_us(1'000'000));
    World other = world;
    constexpr int kServices = 400;
    int behind = 0;
    for (int n = 0; n < kServices; ++n) {
      const bool comes = n % 8 == 1 && !other.guard.wants_clean();
      behind += comes ? 1 : 0;
      two_launches_alone(world);
      comes ? two_launches_behind(other, 50) : two_launches_alone(other);
    }
    REQUIRE(behind > kServices / 20);
    const int64_t late = switch_us == 0 ? 0 : switch_us + 20 - 80;
    const int64_t charged = (world.account_ns() - other.account_ns()) / behind;
    CHECK(charged == Approx(late * 1000).margin(20'000));
  }
}

TEST_CASE("Own work behind a switch does not say how long own work takes") {
  World world = switching(150, {.mean_per_mille = 0, .tail_per_mille = 0});
  World other = world;
  for (int n = 0; n < 40; ++n) {
    two_launches_alone(world);
    two_launches_behind(other, 50);
  }
  two_launches_alone(other);
  world.iteration();
  other.iteration();
  world.pause(1'000), world.launch(20);
  other.pause(1'000), other.launch(20);
  CHECK(other.room().ns == Approx(world.room().ns).margin(2'000));
}

// As long as no iteration is known it is not known how long a launch takes by itself, either; lower
// work comes in the pause before the long ones.
TEST_CASE("Own work of unknown length is no switch") {
  World world;
  for (int n = 0; n < 40; ++n) {
    world.pause(1'000);
    if (n >= 20) world.lower(50);
    world.pause(1'000);
    world.launch(1'000);
    world.wait();
    for (int short_one = 0; short_one < 3; ++short_one) {
      world.pause(5);
      world.launch(10);
      world.wait();
    }
  }
  CHECK(world.guard.switch_cost().ns == 0);
}
