// What a guard that rests is told afterwards: the same as if it had been told of each launch.
#include "policies/launch/guarded/observe/lower_work.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "policies/launch/guarded/task_guard.h"

using namespace lull;
using namespace lull::policies;

namespace {

constexpr ClientId kOwn{1};
constexpr Priority kOwnLevel{2};
Instant us(int64_t us) { return Instant{us * 1000}; }
Duration long_us(int64_t us) { return Duration{us * 1000}; }

// What happens to an important client, of requests of three launches of 400 us: the host waits for
// them and pauses. Tells each guard the same.
class Host {
 public:
  explicit Host(std::vector<TaskGuard*> guards) : guards_(std::move(guards)) {}

  // `behind_others`: a kernel of theirs has ended just before each request, and the device changes
  // hands; `in_the_way_us`: one runs so long before the request does.
  void serve(int requests, bool behind_others = false, int64_t in_the_way_us = 0) {
    for (int request = 0; request < requests; ++request) {
      const int64_t late_us = behind_others ? 150 : 0;
      for (TaskGuard* guard : guards_) {
        if (behind_others) {
          guard->disturbed(/*copy=*/false, us(now_us));
          guard->lower_ended(1, 0, us(now_us - 10));
        }
        for (uint32_t position = 0; position < 3; ++position) submit(*guard, position);
        if (in_the_way_us > 0) {
          guard->disturbed(/*copy=*/false, us(now_us));
          guard->lower_ran(us(now_us + 20), us(now_us + 20 + in_the_way_us));
          guard->lower_ended(1, 0, us(now_us + 20 + in_the_way_us));
        }
        const int64_t begins_us = now_us + late_us + in_the_way_us;
        for (int64_t done = 1; done <= 3; ++done) {
          guard->completed({kOwn, 1, long_us(400), {}}, us(begins_us + 400 * done), false);
        }
        guard->synced({kOwn, us(begins_us + 1200), {}});
        guard->settle(false);
      }
      served_ += 1;
      now_us += 3'000 + served_ % 7;
    }
  }
  int64_t now_us = 1'000;

 private:
  void submit(TaskGuard& guard, uint32_t position) const {
    Submitted launch{
        .client = kOwn, .thread = {}, .kernel = KernelId{position + 1}, .predicted = long_us(400)};
    launch.at = us(now_us + 10 * position);
    launch.expected = long_us(400);
    launch.place = {.in_step = served_ > 0,
                    .started = position == 0,
                    .position = position,
                    .length = 3,
                    .generation = 1};
    guard.submitted(launch, /*lower_in_flight=*/false);
  }
  std::vector<TaskGuard*> guards_;
  int served_ = 0;
};

}  // namespace

TEST_CASE("a guard that has rested answers as one that was told of every lower launch") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    TaskGuard told({}), rested({});
    LowerWork lower;
    struct Low {
      ClientId client;
      Priority level;
      bool busy = false;
      bool copy = false;
    };
    std::vector<Low> lows = {
        {ClientId{7}, Priority{5}}, {ClientId{8}, Priority{7}}, {ClientId{9}, Priority{2}}};
    // A change of hands is learnt, and an unforeseen request over the bound makes the guard
    // careful.
    Host host({&told, &rested});
    host.serve(60);
    host.serve(10, /*behind_others=*/true);
    host.serve(10);
    host.serve(1, false, /*in_the_way_us=*/150);
    int64_t& now_us = host.now_us;
    for (int round = 0; round < 3; ++round) {
      now_us += 2'000'000;
      REQUIRE(rested.may_rest(us(now_us)));
      const LowerWork::Mark mark = lower.mark(kOwnLevel);
      uint32_t kernels = static_cast<uint32_t>(std::ranges::count_if(
          lows, [](const Low& l) { return l.busy && !l.copy && l.level > kOwnLevel; }));
      for (int64_t i = pick(0, 60); i > 0; --i) {
        now_us += pick(1, 700);
        Low& low = lows[static_cast<size_t>(pick(0, 2))];
        const bool below = low.level > kOwnLevel;  // of its own level: nobody's business
        const KernelCosts::Unit unit{low.client,
                                     {},
                                     KernelId{static_cast<uint64_t>(pick(100, 103))},
                                     long_us(pick(100, 4000))};
        if (!low.busy) {
          low.busy = true;
          low.copy = pick(0, 4) == 0;
          kernels += below && !low.copy ? 1 : 0;
          if (below && !low.copy) told.lower_kernels().began(unit, us(now_us));
          if (!low.copy) lower.began(low.level, unit, us(now_us));
          if (below) told.disturbed(low.copy, us(now_us));
          lower.came(low.level, low.copy);
          continue;
        }
        if (pick(0, 3) == 0) {
          if (below) told.refused(unit.predicted);
          lower.refused(low.level, unit.predicted);
          continue;
        }
        if (pick(0, 5) == 0) {
          if (below) told.spend({}, unit.predicted, long_us(5), us(now_us));
          lower.spent(low.level);
          continue;
        }
        low.busy = false;
        if (below) told.lower_kernels().ended(low.client, {}, us(now_us));
        lower.through(low.client, {});
        if (low.copy) continue;
        kernels -= below ? 1 : 0;
        if (below) {
          told.lower_ran(us(now_us - 50), us(now_us));
          told.lower_ended(1, kernels, us(now_us));
        }
        lower.ended(low.level, us(now_us));
      }
      now_us += pick(1, 100);
      rested.catch_up(lower.since(kOwnLevel, mark), kOwnLevel, kernels, us(now_us));
      CHECK(rested == told);
      // A unit that is there while own work runs teaches what it costs.
      host.serve(1);
      for (Low& low : lows) {
        if (low.busy && low.level > kOwnLevel) {
          for (TaskGuard* guard : {&told, &rested}) {
            guard->lower_kernels().ended(low.client, {}, us(now_us));
            if (!low.copy) guard->lower_ended(1, 0, us(now_us));
          }
        }
        lower.through(low.client, {});
        low.busy = false;
      }
      CHECK(rested == told);
      host.serve(4);
      CHECK(rested == told);
    }
  }
}

TEST_CASE("only what happened below a level after a mark is told") {
  LowerWork lower;
  lower.came(Priority{5}, false);
  lower.refused(Priority{7}, long_us(900));
  const LowerWork::Mark mark = lower.mark(kOwnLevel);
  CHECK_FALSE(lower.since(kOwnLevel, mark).came);
  CHECK(lower.since(kOwnLevel, mark).refused == Duration{});
  lower.came(Priority{2}, false);  // not below
  CHECK(lower.since(kOwnLevel, mark).kernels == 0);
  lower.came(Priority{9}, false);
  lower.came(Priority{3}, true);
  lower.ended(Priority{9}, us(70));
  const LowerWork::Since since = lower.since(kOwnLevel, mark);
  CHECK((since.came && since.kernels == 1 && since.ended == us(70) && since.spends == 0));
}

TEST_CASE("a unit that is let go makes earlier refusals forgotten, also another level's") {
  LowerWork lower;
  const LowerWork::Mark mark = lower.mark(kOwnLevel);
  lower.refused(Priority{5}, long_us(900));
  lower.refused(Priority{5}, long_us(400));
  lower.refused(Priority{7}, long_us(600));
  CHECK(lower.since(kOwnLevel, mark).refused == long_us(900));
  CHECK(lower.since(Priority{5}, mark).refused == long_us(600));
  lower.spent(Priority{7});
  CHECK(lower.since(kOwnLevel, mark).refused == Duration{});
  lower.refused(Priority{5}, long_us(100));
  CHECK(lower.since(kOwnLevel, mark).refused == long_us(100));
  CHECK(lower.since(kOwnLevel, mark).spends == 1);
}
