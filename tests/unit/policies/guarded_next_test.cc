// guarded's rule, worked out by hand: what may go, what the budgets hold, what a request lost.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "policies/launch/guarded_next/admission.h"
#include "policies/launch/guarded_next/budgets.h"
#include "policies/launch/guarded_next/request_times.h"

using namespace lull;
using namespace lull::policies;

namespace {

Duration us(int64_t us) { return Duration{us * 1000}; }
// Reacts within 15 us; launches of 50 us take what they are charged.
const LowHost kSteady{us(15), us(50), {}};
// The important task of the README's worked examples.
Moment worked(Duration ahead = {}) {
  return {.slack = us(20), .ahead = ahead, .budget = us(40), .tail = us(5)};
}
Moment worked_exception(Duration ahead = {}) {
  Moment moment = worked(ahead);
  moment.exceptions_x1000 = 1'000;
  return moment;
}

}  // namespace

// ---- admission ------------------------------------------------------------------------------

TEST_CASE("Worked example 1: the slack takes a launch") {
  CHECK(delay(worked(), us(15)) == us(0));
  CHECK(admit(worked(), us(15)) == Verdict::kGoes);
  CHECK(admit({.slack = us(20)}, us(15)) == Verdict::kGoes);  // whatever the budgets hold
}

TEST_CASE("Worked example 2: the mean budget pays for what is beyond the slack") {
  CHECK(delay(worked(), us(24)) == us(4));
  CHECK(admit(worked(), us(24)) == Verdict::kGoes);
}

TEST_CASE("Worked example 3: a launch behind another is over the limit") {
  CHECK(delay(worked(us(24)), us(24)) == us(28));
  CHECK(admit(worked(us(24)), us(24)) == Verdict::kWaits);
  CHECK(admit(worked_exception(us(24)), us(24)) == Verdict::kException);
}

TEST_CASE("Worked example 4: a launch of varying length is over the limit almost surely") {
  const Duration cost = reckoned_length(us(24), us(20));
  CHECK(cost == us(28));
  CHECK(admit(worked(), cost) == Verdict::kWaits);
  CHECK(admit(worked_exception(), cost) == Verdict::kException);
}

TEST_CASE("Worked example 5: the mean budget does not hold it") {
  CHECK(delay(worked(), us(80)) == us(60));
  CHECK(admit(worked(), us(80)) == Verdict::kWaits);
  CHECK(admit(worked_exception(), us(80)) == Verdict::kWaits);
}

TEST_CASE("The room is what goes without an exception") {
  CHECK(room(worked()) == us(25));
  CHECK(room(worked(us(10))) == us(15));
  CHECK(room({.slack = us(-7), .budget = us(40), .tail = us(-3)}) == us(-7));
  for (int64_t cost = 1; cost < 80; ++cost) {
    CAPTURE(cost);
    CHECK((admit(worked(us(10)), us(cost)) == Verdict::kGoes) == (us(cost) <= room(worked(us(10)))));
  }
}

TEST_CASE("While the client is away at random, a launch costs the chance that it is back too early") {
  Moment moment{.budget = us(40), .tail = us(5), .exceptions_x1000 = 200, .back_in = us(1'000)};
  CHECK(chance_x1000(moment, us(0)) == 0);
  CHECK(chance_x1000(moment, us(100)) == 100);
  CHECK(chance_x1000(moment, us(5'000)) == 1'000);
  CHECK(admit(moment, us(5)) == Verdict::kGoes);
  CHECK(admit(moment, us(105)) == Verdict::kByChance);  // 11 us in the mean
  CHECK(admit(moment, us(305)) == Verdict::kWaits);     // 93 us in the mean
  moment.budget = us(400);
  CHECK(admit(moment, us(305)) == Verdict::kWaits);  // one request in three
  moment.exceptions_x1000 = 1'000;
  CHECK(admit(moment, us(305)) == Verdict::kByChance);
  // What the limit allows goes however little is saved.
  CHECK(admit({.budget = us(1), .tail = us(50), .back_in = us(10'000)}, us(50)) == Verdict::kGoes);
}

TEST_CASE("Where requests lose half of what is foretold, twice as much goes beyond the slack") {
  Moment moment = worked(us(10));
  moment.price_x1024 = 512;
  CHECK(delay(moment, us(30)) == us(10));
  CHECK(room(moment) == us(20));
}

TEST_CASE("More of anything never lets less go") {
  for (int64_t slack : {0, 10, 40}) for (int64_t budget : {0, 20}) for (int64_t tail : {-5, 0, 20}) {
    for (int64_t cost : {1, 15, 30, 60}) for (const bool exception : {false, true}) {
      const Moment moment{us(slack), us(5), us(budget), us(tail), exception ? 1'000 : 0};
      const auto goes = [&](Moment m) { return admit(m, us(cost)) != Verdict::kWaits; };
      Moment more = moment;
      more.slack += us(10), more.budget += us(10), more.tail += us(10);
      CAPTURE(slack, budget, tail, cost, exception);
      CHECK((!goes(moment) || goes(more)));
    }
  }
}

TEST_CASE("A p95 below the mean shortens nothing") {
  CHECK(reckoned_length(us(100), us(100)) == us(100));
  CHECK(reckoned_length(us(90), us(100)) == us(90));
}

TEST_CASE("The busy credit covers three launches, or five reactions, from 0.2 to 1 ms, and half of a large room") {
  CHECK(busy_credit(kSteady, us(100)) == us(200));
  CHECK(busy_credit({us(15), us(100), {}}, us(100)) == us(300));
  CHECK(busy_credit({us(60), us(10), {}}, us(100)) == us(300));
  CHECK(busy_credit({us(15), us(900), {}}, us(100)) == us(1'000));
  CHECK(busy_credit(kSteady, us(1'000)) == us(400));
  CHECK(busy_credit(kSteady, us(100'000)) == us(800));
}

TEST_CASE("A credit covers what is in flight, and is shared by those who launch") {
  CHECK(credit(us(115), 1, kSteady, us(50)).ns == 147'456);  // 150 us in steps of 4,096 ns
  CHECK(credit(us(135), 2, kSteady, {}).ns == 57'344);
  CHECK(credit(us(-50), 1, kSteady, {}).ns == 0);
  CHECK(credit(us(500), 1, kSteady, {}) == us(200));
}

// The gate lets a launch of 330 us through that it charges 100: beside 462 us in flight and in a
// room of 576 - 462 it would run for 216 us longer than there is room.
TEST_CASE("A launch of 330 us that is charged 100 goes by name") {
  const LowHost host{us(15), us(330), us(230)};
  CHECK(credit(us(576 - 462), 1, host, us(462)) < us(462));
}

// ---- budgets --------------------------------------------------------------------------------

TEST_CASE("The mean budget holds what was earned and not cost, and neither grows nor sinks for ever") {
  MeanBudget budget;
  budget.earn(us(30), us(30));
  budget.cost(us(10));
  CHECK(budget.left() == us(20));
  CHECK(budget.beyond(0) == us(20));
  CHECK(budget.beyond(1).ns == 0);
  for (int n = 0; n < 1'000; ++n) budget.earn(us(30), us(30));
  CHECK(budget.left() == us(280 * 30));
  CHECK_FALSE(budget.overdrawn());
  budget.cost(us(1'000'000));
  CHECK(budget.left() == us(-64 * 30));
  CHECK(budget.overdrawn());
  while (budget.overdrawn()) budget.earn(us(30), us(30));
  CHECK(budget.left() == us(-4 * 30));
}

TEST_CASE("The mean budget holds a launch that waits, however long it is") {
  MeanBudget budget;
  budget.save_for(us(20'000));
  for (int n = 0; n < 1'000; ++n) budget.earn(us(30), us(30));
  CHECK(budget.left() == us(25'000));
}

TEST_CASE("Of a thousand requests ten at most are over, however early they are") {
  for (const int first : {0, 1, 300, 2'500}) {
    RequestBudget budget;
    std::vector<bool> over;
    int most = 0, all = 0;
    for (int n = 0; n < 6'000; ++n) {
      over.push_back(n >= first && (budget.left_x1000(/*uncounted=*/false) >= 1'000));
      all += over.back() ? 1 : 0;
      budget.ended(over.back(), /*meant=*/true);
      if (n < 999) continue;
      most = std::max(most, static_cast<int>(std::count(over.end() - 1'000, over.end(), true)));
    }
    CHECK(most <= 10);
    CHECK(all >= (6'000 - first) * 8 / 1'000);
  }
}

TEST_CASE("One request that may be over is not two") {
  RequestBudget budget;
  CHECK((budget.left_x1000(/*uncounted=*/false) >= 1'000));
  CHECK(budget.left_x1000(/*uncounted=*/true) < 1'000);
}

TEST_CASE("In equilibrium five requests in a thousand are over unmeant") {
  RequestBudget budget;
  for (int n = 0; n < 10'000; ++n) budget.ended(n % 200 == 199, /*meant=*/false);
  const int64_t five = budget.aim_x1e6();
  CHECK(five > 600'000);
  CHECK(five <= 875'000);
  for (int n = 0; n < 10'000; ++n) budget.ended(n % 50 == 49, /*meant=*/false);
  CHECK(budget.aim_x1e6() < five / 2);
  CHECK(budget.aimed(us(1'000)) < us(500));
}

TEST_CASE("The price rises at once to what requests lose, and falls slowly") {
  Price price;
  CHECK(price.x1024() == 1'024);
  price.learn(us(100), us(200));
  CHECK(price.x1024() == 2'048);
  price.learn(us(100), us(50));
  CHECK(price.x1024() > 2'040);
  for (int n = 0; n < 5'000; ++n) price.learn(us(100), us(50));
  CHECK(price.x1024() >= 512);
  CHECK(price.x1024() < 530);
  price.learn(us(1), us(1'000));
  CHECK(price.x1024() == 4'096);
  price.learn(us(100), us(-50));  // shorter than usual
  CHECK(price.x1024() > 4'080);
}

TEST_CASE("The slack is trusted as far as requests bear it out") {
  RequestBudget budget;
  CHECK(budget.trusted(us(80)) == us(80));
  budget.ended(/*over=*/true, /*meant=*/true);
  CHECK(budget.trusted(us(80)) == us(80));
  budget.ended(/*over=*/true, /*meant=*/false);
  CHECK(budget.trusted(us(80)) < us(61));
  CHECK(budget.trusted(us(80)) > us(59));
}

// ---- request times --------------------------------------------------------------------------

TEST_CASE("What others cost a request is its time less that of undisturbed ones, off by as much as they vary") {
  RequestTimes times;
  CHECK(times.cost(us(120), us(7)) == us(7));  // nothing is known yet: the waits' word
  for (int n = 0; n < 12; ++n) times.undisturbed(us(n % 2 == 0 ? 99 : 101), /*kept=*/true);
  CHECK(times.known());
  CHECK(times.well_known());
  CHECK(times.usual() == us(100));
  CHECK(times.cost(us(120), us(7)) == us(20));
  CHECK(times.cost(us(98), us(7)) == us(-2));
  CHECK(times.spread() == us(1));
}

TEST_CASE("Requests that nobody happened to disturb do not count for the mean") {
  RequestTimes times;
  for (int n = 0; n < 12; ++n) times.undisturbed(us(100), /*kept=*/true);
  for (int n = 0; n < 100; ++n) times.undisturbed(us(97), /*kept=*/false);
  CHECK(times.usual() == us(100));
}

TEST_CASE("Two undisturbed requests of another length are another phase of the program") {
  RequestTimes times;
  for (int n = 0; n < 12; ++n) times.undisturbed(us(100), /*kept=*/true);
  times.undisturbed(us(150), /*kept=*/true);
  CHECK(times.known());
  times.undisturbed(us(150), /*kept=*/true);
  CHECK_FALSE(times.known());
  CHECK(times.draw(us(1), /*whole=*/true));
}

TEST_CASE("Few requests are kept undisturbed once their mean is known") {
  RequestTimes times;
  int first = 0, then = 0;
  for (int n = 0; n < 10; ++n) first += times.draw(us(1), true) ? 1 : 0;
  CHECK(first == 10);
  for (int n = 0; n < 40; ++n) times.undisturbed(us(100), /*kept=*/true);
  for (int n = 0; n < 12'800; ++n) then += times.draw(us(1), true) ? 1 : 0;
  CHECK(then > 50);
  CHECK(then < 200);
}
