// What an important client may yet lose: the two budgets, and the price of what is foretold.
#include "policies/launch/guarded/budget/budgets.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

using namespace lull;
using namespace lull::policies;

namespace {

Duration us(int64_t us) { return Duration{us * 1000}; }

}  // namespace

TEST_CASE(
    "The mean budget holds what was earned and not cost, and neither grows nor sinks for ever") {
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

TEST_CASE("The mean budget holds a launch that waits, however long it is, and as long as it waits") {
  MeanBudget budget;
  for (int n = 0; n < 1'000; ++n) {
    budget.earn(us(30), us(30));
    budget.save_for(us(20'000));
  }
  CHECK(budget.left() == us(21'875));  // a quarter more than it costs, less an eighth of that
  for (int n = 0; n < 100; ++n) budget.earn(us(30), us(30));
  CHECK(budget.wanted() < us(1));
  CHECK(budget.left() == us(280 * 30));
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
  CHECK((budget.left_x1000(/*uncounted=*/0) >= 1'000));
  CHECK(budget.left_x1000(/*uncounted=*/1) < 1'000);
}

TEST_CASE("A request that holds two exceptions counts as two") {
  RequestBudget one, two;
  one.ended(/*over=*/true, /*meant=*/true);
  two.ended(/*over=*/true, /*meant=*/true, 2);
  CHECK((one.left_x1000(0) - two.left_x1000(0) == 1'000));
  one.ended(/*over=*/true, /*meant=*/false);
  two.ended(/*over=*/true, /*meant=*/false, 2);
  CHECK((one.left_x1000(0) - two.left_x1000(0) == 2'500));
}

// Of a limit of 1 ms and a slack of 5 requests use what is aimed at, and believed in, and take an error longer, unless
// nothing goes: so many in a thousand are over at most.
template <typename Error>
int most_over(Error error, bool excepts) {
  const Duration limit = us(1'000), slack = us(5'000);
  RequestBudget budget;
  std::vector<bool> over;
  int most = 0;
  for (int n = 0; n < 8'000; ++n) {
    const bool meant = excepts && budget.left_x1000(/*uncounted=*/0) >= 1'000;
    const Duration work = budget.believed(slack, limit) + budget.aimed(limit), by = error(n);
    const Duration foretold = std::max(us(0), work - slack);
    const Duration lost = work.ns > 0 ? std::max(us(0), work + by - slack) : us(0);
    over.push_back(meant || lost > limit);
    budget.ended(over.back(), meant);
    budget.missed(meant ? us(0) : lost - (lost > limit ? std::min(foretold, budget.meant(limit)) : foretold), limit);
    if (n >= 999) most = std::max(most, static_cast<int>(std::count(over.end() - 1'000, over.end(), true)));
  }
  return most;
}

// Where errors are longer than slack and limit, or begin when eight exceptions have gone, a few more.
TEST_CASE("However often errors come, of a thousand requests ten are over, or three more") {
  for (const bool excepts : {false, true}) {
    for (const int64_t error_us : {100, 300, 900, 1'500, 3'000, 9'000}) {
      for (const int every : {1, 3, 10, 50, 250}) {
        for (const int from : {0, 500, 864}) {
          CAPTURE(excepts, error_us, every, from);
          const auto comes = [&](int n) { return n >= from && n % every == 0 ? us(error_us) : us(0); };
          CHECK(most_over(comes, excepts) <= (from > 0 ? 13 : error_us > 5'000 ? 11 : 10));
        }
      }
    }
    std::mt19937 random{7};
    std::exponential_distribution<> size{1.0 / 100};
    CHECK(most_over([&](int) { return Duration{static_cast<int64_t>(1'000 * size(random))}; }, excepts) <= 10);
  }
}

TEST_CASE("Of the limit the largest error of late is kept free, and a 32nd, an eighth at least") {
  RequestBudget budget;
  CHECK(budget.aimed(us(800)) == us(700));
  budget.missed(us(70), us(800));
  CHECK(budget.aimed(us(800)) == us(700));
  budget.missed(us(300), us(800));
  CHECK(budget.aimed(us(800)) == us(475));
  for (int n = 0; n < 355; ++n) budget.missed(us(100), us(800));
  CHECK(budget.aimed(us(800)) > us(624));  // half of it is forgotten
  CHECK(budget.aimed(us(800)) < us(626));
  for (int n = 0; n < 10'000; ++n) budget.missed(us(0), us(800));
  CHECK(budget.aimed(us(1)) == Duration{875});  // nothing is left of it
  budget.missed(us(700), us(800));
  budget.missed(us(0), us(100));  // requests are shorter now
  CHECK(budget.aimed(us(400)) == Duration{187'500});
}

TEST_CASE("What is kept free and the limit does not hold is taken off the slack") {
  RequestBudget budget;
  budget.missed(us(775), us(800));
  CHECK(budget.aimed(us(800)) == us(0));
  CHECK(budget.believed(us(500), us(800)) == us(500));
  budget.missed(us(1'000), us(800));
  CHECK(budget.believed(us(500), us(800)) == us(275));
  budget.missed(us(9'000), us(800));  // counts as two limits
  CHECK(budget.believed(us(500), us(800)) == us(-325));
  for (int n = 0; n < 400; ++n) budget.missed(us(0), us(800));
  CHECK(budget.believed(us(500), us(800)) == us(500));
}

TEST_CASE("While more than three requests are owed less goes, and while six are, nothing") {
  RequestBudget budget;
  const auto used = [&] { return budget.aimed(us(800)) + budget.believed(us(500), us(800)); };
  for (int n = 0; n < 2; ++n) budget.ended(/*over=*/true, /*meant=*/false);
  CHECK(used() == us(700 + 500));
  for (int n = 0; n < 2; ++n) budget.ended(/*over=*/true, /*meant=*/false);
  CHECK(used() < us(500));
  CHECK(used() > us(300));
  budget.ended(/*over=*/true, /*meant=*/false);
  CHECK(used() == us(0));
  CHECK(budget.believed(us(-500), us(800)) == us(-500));
  for (int n = 0; n < 500; ++n) budget.ended(/*over=*/false, /*meant=*/false);
  CHECK(used() == us(700 + 500));
}

TEST_CASE("Requests that are over unmeant, as often as can be borne, leave some for exceptions") {
  RequestBudget budget;
  int exceptions = 0;
  for (int n = 0; n < 10'000; ++n) {
    const bool meant = budget.left_x1000(/*uncounted=*/false) >= 1'000;
    exceptions += meant ? 1 : 0;
    budget.ended(meant || n % 250 == 249, meant);
  }
  CHECK(exceptions >= 10);
  CHECK(exceptions <= 30);
}

TEST_CASE("The price is what nearly all of the last 96 requests have lost of what was foretold") {
  Price price;
  for (int n = 0; n < 96 + 8; ++n) price.learn(us(100), us(20));
  CHECK(price.x1024() == 204);
  price.learn(us(100), us(90));
  CHECK(price.x1024() == 204);  // one may be chance
  price.learn(us(100), us(50));
  CHECK(price.x1024() == 512);
  for (int n = 0; n < 94; ++n) price.learn(us(100), us(20));
  CHECK(price.x1024() == 512);
  price.learn(us(100), us(20));
  CHECK(price.x1024() == 204);
}

TEST_CASE(
    "The price is 1 until eight requests are known; of fewer than 96 half as much again as the "
    "largest") {
  Price price;
  CHECK(price.x1024() == 1'024);
  for (int n = 0; n < 7; ++n) price.learn(us(100), us(20));
  CHECK(price.x1024() == 1'024);
  price.learn(us(100), us(20));
  CHECK(price.x1024() == 307);
  price.learn(us(100), us(80));
  CHECK(price.x1024() == 1'024);  // not more than 1, for that
  price.learn(us(100), us(120));
  CHECK(price.x1024() == 1'024);  // nor for what was not foretold
  for (int n = 10; n < 95; ++n) price.learn(us(100), us(20));
  CHECK(price.x1024() == 1'024);
  price.learn(us(100), us(20));
  CHECK(price.x1024() == 819);  // the second largest of 96
}

TEST_CASE("The price is between 1/250 and 1") {
  Price price;
  for (int n = 0; n < 96; ++n) price.learn(us(1), us(1'000));
  CHECK(price.x1024() == 1'024);
  for (int n = 0; n < 96; ++n) price.learn(us(100), us(-50));  // shorter than usual
  CHECK(price.x1024() == 4);
}

TEST_CASE("The price is known to a quarter more than the longest delay that was foretold lately") {
  Price price;
  CHECK(price.known_to() == us(0));
  price.learn(us(300), us(20));
  price.learn(us(100), us(20));
  CHECK(price.known_to() == us(300 + 75));
  for (int n = 0; n < 95; ++n) price.learn(us(100), us(20));
  CHECK(price.known_to() == us(100 + 25));
}

TEST_CASE("Errors are forgiven once their cause is known, and what is owed but for three requests") {
  for (const int overs : {1, 5}) {
    RequestBudget budget;
    for (int n = 0; n < overs; ++n) budget.ended(/*over=*/true, /*meant=*/false, 1, us(100));
    const int64_t left = budget.left_x1000(0);
    budget.missed(us(500), us(800));
    budget.forgive_errors();
    CHECK(budget.aimed(us(800)) == us(700));
    CHECK(budget.believed(us(500), us(800)) == us(500));
    CHECK(budget.left_x1000(0) == std::max<int64_t>(-3'000, left));
    budget.slow_ones(us(200));  // what is forgiven is not given back, too
    CHECK(budget.left_x1000(0) == std::max<int64_t>(-3'000, left));
  }
}

TEST_CASE("A budget is ample while an exception may go; while half of it is there") {
  RequestBudget requests;
  CHECK(requests.is_ample());
  requests.ended(/*over=*/true, /*meant=*/false);
  CHECK_FALSE(requests.is_ample());
  MeanBudget mean;
  for (int n = 0; n < 139; ++n) mean.earn(us(1), us(1));
  CHECK_FALSE(mean.is_ample());
  mean.earn(us(1), us(1));
  CHECK(mean.is_ample());
}

TEST_CASE("Little more is saved than one request that may be over, and no exception goes while any is owed") {
  for (const bool meant : {true, false}) {
    RequestBudget budget;
    for (int n = 0; n < 1'000; ++n) budget.ended(/*over=*/false, /*meant=*/false);
    CHECK(budget.left_x1000(0) == 1'100);
    budget.ended(/*over=*/true, meant);
    int requests = 0;
    for (; !budget.is_ample(); ++requests) budget.ended(/*over=*/false, /*meant=*/false);
    CHECK(requests == (meant ? 112 : 174));
  }
}

TEST_CASE("A request that was over is owed until slow ones are known to take as much longer by themselves") {
  for (const bool meant : {true, false}) {
    RequestBudget budget;
    for (int n = 0; n < 3; ++n) budget.ended(/*over=*/true, meant, 1, us(100 + 100 * n));
    const int64_t owed = budget.left_x1000(0);
    budget.slow_ones(us(99));
    CHECK(budget.left_x1000(0) == owed);
    budget.slow_ones(us(200));
    const int64_t two = (meant ? 2'000 : 3'000) - 3 * 8;  // a part of the first has been paid
    CHECK(budget.left_x1000(0) == owed + two);
    budget.slow_ones(us(200));  // no request is given twice
    CHECK(budget.left_x1000(0) == owed + two);
  }
}

TEST_CASE("Only what is owed yet is given back for requests that were not over after all") {
  RequestBudget budget, none;
  const auto both = [&](bool over, Duration beyond) {
    budget.ended(over, /*meant=*/false, 1, beyond);
    none.ended(over && beyond > us(100), /*meant=*/false, 1, beyond);
  };
  for (int n = 0; n < 8 * 500; ++n) both(n % 500 == 0, us(50));  // long paid
  for (int n = 0; n < 4; ++n) both(true, us(200));
  both(true, us(50));
  CHECK(budget.left_x1000(0) < none.left_x1000(0));
  budget.slow_ones(us(100));
  CHECK(budget.left_x1000(0) == none.left_x1000(0));
  for (int n = 0; n < 20; ++n) both(true, us(200));  // more cannot be owed
  both(true, us(50));
  budget.slow_ones(us(150));
  CHECK(budget.left_x1000(0) < -9'900);
}

TEST_CASE("What is forgiven is not given back, too, nor what was before requests went otherwise") {
  for (const bool forgives : {false, true}) {
    RequestBudget budget;
    for (int n = 0; n < 3; ++n) budget.ended(/*over=*/true, /*meant=*/false, 1, us(100));
    budget.slow_ones(us(50));
    if (forgives)
      budget.forgive();
    else
      budget.slow_ones(us(0));
    for (int n = 0; n < 3; ++n) budget.ended(/*over=*/true, /*meant=*/false, 1, us(300));
    const int64_t left = budget.left_x1000(0);
    budget.slow_ones(us(200));
    CAPTURE(forgives);
    CHECK(budget.left_x1000(0) == left);
  }
}

TEST_CASE("What slow requests take longer by themselves was no loss, once that is known") {
  Price price;
  for (int n = 0; n < 96; ++n) price.learn(us(100), us(90));
  CHECK(price.x1024() == 921);
  price.slow_ones(us(40));
  CHECK(price.x1024() == 512);
  price.slow_ones(us(90));
  CHECK(price.x1024() == 4);
  price.slow_ones(us(0));  // requests go otherwise: those before were as they were
  CHECK(price.x1024() == 4);
}

TEST_CASE("The mean budget wants a quarter more than the dearest launch that waits costs, until one goes") {
  MeanBudget budget;
  CHECK(budget.wanted() == us(0));
  budget.save_for(us(20'000));
  budget.save_for(us(4'000));
  CHECK(budget.wanted() == us(25'000));
  budget.spent();
  CHECK(budget.wanted() == us(0));
}
