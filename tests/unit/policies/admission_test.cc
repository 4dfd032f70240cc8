// guarded's rule, worked out by hand: what may go now.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <utility>

#include "policies/launch/guarded/admission.h"

using namespace lull;
using namespace lull::policies;

namespace {

Duration us(int64_t us) { return Duration{us * 1000}; }
// It always costs so much.
Cost sure(Duration cost) { return {cost, cost}; }
// Reacts within 15 us; launches of 50 us take what they are charged.
const LowHost kSteady{us(15), us(50), {}};
// The important task of the README's worked examples.
Moment worked(Duration ahead = {}) {
  return {.slack = us(2'000), .ahead = ahead, .budget = us(8'000), .tail = us(440), .exceptions_x1000 = 100};
}
// A task of shorter requests.
Moment small(Duration ahead = {}) {
  return {.slack = us(20), .ahead = ahead, .budget = us(40), .tail = us(5)};
}
Moment worked_exception(Duration ahead = {}) {
  Moment moment = worked(ahead);
  moment.exceptions_x1000 = 1'000;
  return moment;
}

}  // namespace

TEST_CASE("Worked example 1: the slack takes a launch") {
  CHECK(delay(worked(), us(1'500)) == us(0));
  CHECK(admit(worked(), sure(us(1'500))) == Verdict::kGoes);
  CHECK(admit({.slack = us(2'000)}, sure(us(1'500))) == Verdict::kGoes);  // whatever the budgets hold
}

TEST_CASE("Worked example 2: the mean budget pays for what is beyond the slack") {
  CHECK(delay(worked(), us(2'200)) == us(200));
  CHECK(admit(worked(), sure(us(2'200))) == Verdict::kGoes);
}

TEST_CASE("Worked example 3: a launch behind another is over the limit") {
  CHECK(delay(worked(us(2'200)), us(2'200)) == us(2'400));
  CHECK(admit(worked(us(2'200)), sure(us(2'200))) == Verdict::kWaits);
  CHECK(admit(worked_exception(us(2'200)), sure(us(2'200))) == Verdict::kException);
  Moment slack_is_used = worked();
  slack_is_used.slack = us(-200);
  CHECK(delay(slack_is_used, us(2'200)) == us(2'400));
  CHECK(admit(slack_is_used, sure(us(2'200))) == Verdict::kWaits);
}

TEST_CASE("Worked example 4: a launch of varying length goes by chance") {
  CHECK(almost_surely({us(2'100), us(2'500)}) == us(2'900));
  const Cost cost{us(2'115), us(2'515)};  // with the reaction
  CHECK(more_x1000(cost, us(2'440)) == 93);  // one in 11
  CHECK(admit(worked(), cost) == Verdict::kByChance);
  Moment fewer = worked();
  fewer.exceptions_x1000 = 80;
  CHECK(admit(fewer, cost) == Verdict::kWaits);
}

TEST_CASE("A launch of varying length takes a request over its limit as often as it is longer than the room") {
  const Cost cost{us(20), us(24)};
  CHECK(more_x1000(cost, us(10)) == 1'000);
  CHECK(more_x1000(cost, us(20)) == 1'000);
  CHECK(more_x1000(cost, us(22)) == 229);  // 0.05 ^ 0.5 is 224
  CHECK(more_x1000(cost, us(24)) == 52);   // 50
  CHECK(more_x1000(cost, us(25)) == 24);   // 24
  CHECK(more_x1000(cost, us(26)) == 11);   // 11
  CHECK(more_x1000(cost, us(28)) == 0);    // 2.5
  CHECK(more_x1000(sure(us(20)), us(20)) == 0);
  CHECK(more_x1000(sure(us(20)), us(19)) == 1'000);
  for (int64_t t = 0; t < 40; ++t) CHECK(more_x1000(cost, us(t)) >= more_x1000(cost, us(t + 1)));

  Moment moment = small();  // a room of 25 us
  for (const auto& [holds, goes] : {std::pair{23, false}, std::pair{24, true}}) {
    moment.exceptions_x1000 = holds;
    CHECK((admit(moment, cost) == Verdict::kByChance) == goes);
  }
  moment.exceptions_x1000 = 1'000;
  CHECK(admit(moment, {us(18), us(20)}) == Verdict::kGoes);           // at most 22
  CHECK(admit(moment, {us(26), us(27)}) == Verdict::kException);      // its mean is longer
  moment.alone = false;
  CHECK(admit(moment, cost) == Verdict::kWaits);
  // Where the client is away, too, only if it is back as well: one in four within 3 us.
  moment = {.budget = us(40), .tail = us(25), .exceptions_x1000 = 1'000, .back_in = us(12)};
  CHECK(admit(moment, cost) == Verdict::kByChance);
  moment.exceptions_x1000 = 5;  // 250 x 24 / 1000 is 6
  CHECK(admit(moment, cost) == Verdict::kWaits);
  moment.exceptions_x1000 = 6;
  CHECK(admit(moment, cost) == Verdict::kByChance);
}

TEST_CASE("Worked example 5: the mean budget does not hold it") {
  CHECK(delay(worked(), us(16'000)) == us(14'000));
  CHECK(admit(worked(), sure(us(16'000))) == Verdict::kWaits);
  CHECK(admit(worked_exception(), sure(us(16'000))) == Verdict::kWaits);
}

TEST_CASE("The room is what goes without an exception") {
  CHECK(room(small()) == us(25));
  CHECK(room(small(us(10))) == us(15));
  CHECK(room({.slack = us(-7), .budget = us(40), .tail = us(-3)}) == us(-7));
  for (int64_t cost = 1; cost < 80; ++cost) {
    CAPTURE(cost);
    CHECK((admit(small(us(10)), sure(us(cost))) == Verdict::kGoes) ==
          (us(cost) <= room(small(us(10)))));
  }
}

TEST_CASE(
    "While the client is away at random, a launch costs the chance that it is back too early") {
  Moment moment{.budget = us(40), .tail = us(5), .exceptions_x1000 = 200, .back_in = us(1'000)};
  CHECK(chance_x1000(moment, us(0)) == 0);
  CHECK(chance_x1000(moment, us(100)) == 100);
  CHECK(chance_x1000(moment, us(5'000)) == 1'000);
  CHECK(admit(moment, sure(us(5))) == Verdict::kGoes);
  CHECK(admit(moment, sure(us(105))) == Verdict::kByChance);  // 11 us in the mean
  CHECK(admit(moment, sure(us(305))) == Verdict::kWaits);     // 93 us in the mean
  moment.budget = us(400);
  CHECK(admit(moment, sure(us(305))) == Verdict::kWaits);  // one request in three
  moment.exceptions_x1000 = 1'000;
  CHECK(admit(moment, sure(us(305))) == Verdict::kByChance);
  // What the limit allows goes however little is saved.
  CHECK(admit({.budget = us(1), .tail = us(50), .back_in = us(10'000)}, sure(us(50))) == Verdict::kGoes);
}

TEST_CASE("Beside pauses however long, nothing is free that may make a request be late, or be over") {
  for (const int64_t pause : {1'000, 100'000, 10'000'000}) {
    Moment moment{.budget = us(40), .tail = us(44), .exceptions_x1000 = 100, .back_in = us(pause)};
    CHECK(chance_x1000(moment, us(1)) >= 1);
    CHECK(admit(moment, sure(us(40))) == Verdict::kGoes);
    CHECK(admit(moment, sure(us(80))) == Verdict::kByChance);
    moment.exceptions_x1000 = 0;
    CHECK(admit(moment, sure(us(40))) == Verdict::kGoes);
    CHECK(admit(moment, sure(us(80))) == Verdict::kWaits);
    moment = {.tail = us(44), .exceptions_x1000 = 100, .back_in = us(pause)};
    CHECK(admit(moment, sure(us(40))) == Verdict::kWaits);
  }
}

TEST_CASE("Behind other lower work nothing goes by chance") {
  for (const bool alone : {true, false}) {
    Moment moment{.budget = us(40), .tail = us(5), .exceptions_x1000 = 200, .back_in = us(1'000)};
    moment.alone = alone;
    CHECK(admit(moment, sure(us(105))) == (alone ? Verdict::kByChance : Verdict::kWaits));
    CHECK(admit(moment, sure(us(5))) == Verdict::kGoes);
  }
}

// It takes 100 us in the mean, more than 120 in one of twenty cases, and never more than 140.
TEST_CASE("By chance a launch goes where it is at least half as likely to be too long at the best moment, or surely fits") {
  const Cost cost{us(100), us(120)};
  Moment moment{.slack = us(100), .budget = us(400), .tail = us(15), .exceptions_x1000 = 500};
  const int64_t now = more_x1000(cost, us(115));
  for (int64_t best = 0; best < 200; ++best) {
    moment.best_slack = us(best);
    const int64_t there = more_x1000(cost, us(std::max<int64_t>(best, 100) + 15));
    CAPTURE(best, now, there);
    CHECK(admit(moment, cost) == (there == 0 || now <= 2 * there ? Verdict::kByChance : Verdict::kWaits));
  }
  // None better, hardly better, better, and so large that it would surely be through.
  for (const auto& [best, goes] :
       {std::pair{0, true}, std::pair{103, true}, std::pair{115, false}, std::pair{130, true}}) {
    moment.best_slack = us(best);
    CAPTURE(best);
    CHECK(admit(moment, cost) == (goes ? Verdict::kByChance : Verdict::kWaits));
  }
  // The client is late already, and no moment is known to be better.
  moment.slack = moment.best_slack = us(-20);
  moment.tail = us(135);
  CHECK(admit(moment, cost) == Verdict::kByChance);
}

// More than 115 us is every ninth or so.
TEST_CASE("No launch goes by chance where an exception would let more go for its part of the error budget") {
  const Cost cost{us(100), us(120)};
  Moment moment{.slack = us(100), .budget = us(400), .tail = us(15), .exceptions_x1000 = 500, .best_slack = us(100)};
  const int64_t over = more_x1000(cost, us(115));
  REQUIRE(over > 50);
  for (const int64_t price : {512, 1'024}) {
    moment.price_x1024 = price;
    moment.priced = us(1'000);
    moment.tail = Duration{15'000 * price / 1'024};
    const int64_t as_much_us = 100 * 1'000 * price / 1'024 / over;
    moment.exceptions_x1000 = 500;
    moment.exception_takes = us(as_much_us);
    CHECK(admit(moment, cost) == Verdict::kByChance);
    moment.exception_takes = us(as_much_us + 1);
    CHECK(admit(moment, cost) == Verdict::kWaits);
    CHECK(admit(moment, sure(us(110))) == Verdict::kGoes);
    // It goes as one as soon as that is there.
    moment.exceptions_x1000 = 999;
    CHECK(admit(moment, cost) == Verdict::kWaits);
    moment.exceptions_x1000 = 1'000;
    CHECK(admit(moment, cost) == Verdict::kException);
  }
  // What goes behind each counts, too: that favours the launch, which can go more often.
  moment.exceptions_x1000 = 500;
  moment.follows = us(100);
  CHECK(admit(moment, cost) == Verdict::kWaits);
  moment.follows = us(200);
  CHECK(admit(moment, cost) == Verdict::kByChance);
  moment.follows = us(0);
  // What is beyond the delays whose price is known lets no more go than it takes.
  moment.price_x1024 = 4;
  moment.priced = moment.tail = us(0);
  moment.exceptions_x1000 = 500;
  moment.exception_takes = us(100);
  CHECK(admit(moment, {us(80), us(100) + us(10)}) == Verdict::kByChance);
}

TEST_CASE("Where requests lose half of what is foretold, twice as much goes beyond the slack") {
  Moment moment = small(us(10));
  moment.price_x1024 = 512;
  moment.priced = us(1'000);
  CHECK(delay(moment, us(30)) == us(10));
  CHECK(room(moment) == us(20));
}

TEST_CASE("A delay that is longer than any that was foretold costs all that is beyond that") {
  Moment moment = small(us(10));
  moment.price_x1024 = 512;
  moment.priced = us(8);
  CHECK(delay(moment, us(18)) == us(4));
  CHECK(delay(moment, us(30)) == us(16));
}

TEST_CASE("The room is what makes the request lose just what it may") {
  for (const int64_t price : {4, 64, 512, 1'024})
    for (const int64_t priced : {-5, 0, 3, 40}) {
      Moment moment = small(us(10));
      moment.price_x1024 = price;
      moment.priced = us(priced);
      CAPTURE(price, priced);
      const Duration given = std::min(moment.budget, moment.tail);
      CHECK(std::abs((delay(moment, room(moment)) - given).ns) <= 4);
    }
}

TEST_CASE("Lower work is as deep as the mean budget bears, more where it costs less of its length") {
  Moment moment{.slack = us(100), .budget = us(800)};
  CHECK(depth(moment) == us(200));
  moment.price_x1024 = 256;
  CHECK(depth(moment) == us(500));
  moment.price_x1024 = 1'024;
  moment.slack = us(-100);
  CHECK(depth(moment) == us(100));
  moment.budget = us(1'000'000);
  CHECK(depth(moment) == us(4'000));
  moment.price_x1024 = 256;
  CHECK(depth(moment) == us(16'000));
  moment.deepest = us(8'000);
  CHECK(depth(moment) == us(32'000));
  moment.deepest = us(1'000);
  CHECK(depth(moment) == us(16'000));
}

TEST_CASE("An exception is paid in full beyond what the price is known of") {
  Moment moment{.budget = us(100), .tail = us(5), .exceptions_x1000 = 1'000, .price_x1024 = 512};
  moment.priced = us(10);
  CHECK(admit(moment, sure(us(100))) == Verdict::kException);
  CHECK(admit(moment, sure(us(150))) == Verdict::kWaits);
  CHECK(admit(moment, sure(us(10))) == Verdict::kGoes);
}

TEST_CASE("More of anything never lets less go") {
  for (int64_t slack : {0, 10, 40})
    for (int64_t budget : {0, 20})
      for (int64_t tail : {-5, 0, 20}) {
        for (int64_t cost : {1, 15, 30, 60})
          for (const bool exception : {false, true}) {
            const Moment moment{us(slack), us(5), us(budget), us(tail), exception ? 1'000 : 0};
            const auto goes = [&](Moment m) { return admit(m, sure(us(cost))) != Verdict::kWaits; };
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

TEST_CASE(
    "The busy credit covers three launches, or five reactions, from 0.2 to 1 ms, and at least "
    "half of a large room") {
  const Duration deep = us(1'000);
  CHECK(busy_credit(kSteady, us(100), deep) == us(200));
  CHECK(busy_credit({us(15), us(100), {}}, us(100), deep) == us(300));
  CHECK(busy_credit({us(60), us(10), {}}, us(100), deep) == us(300));
  CHECK(busy_credit({us(15), us(900), {}}, us(100), deep) == us(1'000));
  CHECK(busy_credit(kSteady, us(1'000), deep) == us(800));
  CHECK(busy_credit(kSteady, us(100'000), deep) == us(800));
}

TEST_CASE("The busy credit is as deep as can be borne, 50 us at least") {
  CHECK(busy_credit(kSteady, us(100'000), us(0)) == us(50));
  CHECK(busy_credit(kSteady, us(100'000), us(120)) == us(120));
  CHECK(busy_credit(kSteady, us(100'000), us(2'000)) == us(1'600));
  CHECK(busy_credit(kSteady, us(100'000), us(4'000)) == us(3'200));
  CHECK(busy_credit(kSteady, us(1'000), us(100'000)) == us(800));
}

TEST_CASE("While the room falls a credit holds for an eighth of it, 5 us at least") {
  CHECK(credit_holds(us(800)) == us(100));
  CHECK(credit_holds(us(8'000)) == us(1'000));
  CHECK(credit_holds(us(48)) == us(6));
  for (const int64_t room : {40, 39, 1, 0, -1, -40, -100'000}) CHECK(credit_holds(us(room)) == us(5));
}

TEST_CASE("A credit covers what is in flight, and is shared by those who launch") {
  const Duration deep = us(1'000);
  CHECK(credit(us(115), deep, 1, kSteady, us(50)).ns == 147'456);  // 150 us in steps of 4,096 ns
  CHECK(credit(us(135), deep, 2, kSteady, {}).ns == 57'344);
  CHECK(credit(us(-50), deep, 1, kSteady, {}).ns == 0);
  CHECK(credit(us(500), deep, 1, kSteady, {}) == us(400));
}

// The gate lets a launch of 330 us through that it charges 100: beside 462 us in flight and in a
// room of 576 - 462 it would run for 216 us longer than there is room.
TEST_CASE("A launch of 330 us that is charged 100 goes by name") {
  const LowHost host{us(15), us(330), us(230)};
  CHECK(credit(us(576 - 462), us(1'000), 1, host, us(462)) < us(462));
}
