// What an important client may yet lose: the two budgets, and the price of what is foretold.
#include "policies/launch/guarded/budget/budgets.h"

#include <algorithm>
#include <catch2/catch.hpp>
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
  CHECK(two.trusted(us(8'000)) < one.trusted(us(8'000)));
}

TEST_CASE("However often requests are over unmeant, what is aimed at falls until they are seldom") {
  RequestBudget budget;
  for (int n = 0; n < 10'000; ++n) budget.ended(n % 250 == 249, /*meant=*/false);
  const Duration four = budget.aimed(us(1'000));  // in a thousand
  CHECK(four > us(600));
  CHECK(four <= us(875));
  for (int n = 0; n < 10'000; ++n) budget.ended(n % 50 == 49, /*meant=*/false);
  CHECK(budget.aimed(us(1'000)) < us(10));
  CHECK(budget.trusted(us(1'000)) < us(20));
  for (int n = 0; n < 1'500; ++n) budget.ended(/*over=*/false, /*meant=*/false);
  CHECK(budget.aimed(us(1'000)) == us(875));
}

TEST_CASE("Whatever the aim, of a thousand requests ten at most are over unmeant") {
  for (const int64_t over_from_us : {100, 300, 600, 800}) {  // aimed at, of a limit of 1 ms
    RequestBudget budget;
    int over = 0;
    for (int n = 0; n < 1'000; ++n) {
      const bool is = budget.aimed(us(1'000)) >= us(over_from_us);
      over += is ? 1 : 0;
      budget.ended(is, /*meant=*/false);
    }
    CHECK(over <= 10);
  }
}

TEST_CASE("Of a thousand requests ten at most are over, by exception or unmeant") {
  for (const int64_t over_from_us : {100, 300, 500, 700, 860}) {  // aimed at, of a limit of 1 ms
    CAPTURE(over_from_us);
    RequestBudget budget;
    std::vector<bool> over;
    for (int n = 0; n < 6'000; ++n) {
      const bool meant = budget.left_x1000(/*uncounted=*/false) >= 1'000;
      over.push_back(meant || budget.aimed(us(1'000)) >= us(over_from_us));
      budget.ended(over.back(), meant);
      if (n >= 999) CHECK(std::count(over.end() - 1'000, over.end(), true) <= 10);
    }
  }
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

TEST_CASE("The slack is trusted as far as requests bear it out") {
  RequestBudget budget;
  CHECK(budget.trusted(us(80)) == us(80));
  budget.ended(/*over=*/true, /*meant=*/true);
  CHECK(budget.trusted(us(80)) == us(80));
  budget.ended(/*over=*/true, /*meant=*/false);
  CHECK(budget.trusted(us(80)) < us(71));
  CHECK(budget.trusted(us(80)) > us(69));
}

TEST_CASE("What is owed for requests that were over unmeant is given once the cause is known") {
  RequestBudget budget;
  for (int n = 0; n < 3; ++n) budget.ended(/*over=*/true, /*meant=*/false);
  const int64_t left = budget.left_x1000(0);
  CHECK(budget.trusted(us(8'000)) < us(4'000));
  budget.forgive_unmeant();
  CHECK(budget.trusted(us(8'000)) == us(8'000));
  CHECK(budget.left_x1000(0) == left);  // they were over all the same
}

TEST_CASE("A budget is ample while an exception may go and nothing is owed; while half of it is there") {
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
    CHECK(requests == (meant ? 112 : 237));
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
    CHECK((budget.trusted(us(800)) == us(800)) == meant);
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
  CHECK(budget.trusted(us(8'000)) == none.trusted(us(8'000)));
  for (int n = 0; n < 20; ++n) both(true, us(200));  // more cannot be owed
  both(true, us(50));
  budget.slow_ones(us(150));
  CHECK(budget.left_x1000(0) < -9'900);
}

TEST_CASE("What is forgiven is not given back, too, nor what was before requests went otherwise") {
  for (const int how : {0, 1, 2}) {
    RequestBudget budget;
    for (int n = 0; n < 3; ++n) budget.ended(/*over=*/true, /*meant=*/false, 1, us(100));
    budget.slow_ones(us(50));
    if (how == 0) budget.forgive_unmeant();
    if (how == 1) budget.forgive();
    if (how == 2) budget.slow_ones(us(0));
    for (int n = 0; n < 3; ++n) budget.ended(/*over=*/true, /*meant=*/false, 1, us(300));
    const Duration trusted = budget.trusted(us(8'000));
    budget.slow_ones(us(200));
    CAPTURE(how);
    CHECK(budget.trusted(us(8'000)) == trusted);
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
