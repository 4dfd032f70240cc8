// How many requests may yet exceed the p99 bound.
#include "policies/launch/guarded/budget/error_budget.h"

#include <catch2/catch.hpp>
#include <deque>

using namespace lull::policies;

TEST_CASE("Of a thousand requests one in a hundred at most is over, however early they are") {
  for (const int first : {0, 1, 300, 2'500}) for (const bool seen : {true, false}) {
    INFO(first << " on whatever may be, seen " << seen);
    ErrorBudget account;
    std::deque<bool> last;
    int over = 0, most = 0, all = 0;
    for (int n = 0; n < 6'000; ++n) {
      const bool is = n >= first && account.affords();
      account.ended(is, false, seen);
      last.push_back(is);
      over += is ? 1 : 0;
      all += is ? 1 : 0;
      if (last.size() > 1'000) over -= last.front() ? 1 : 0, last.pop_front();
      most = std::max(most, over);
    }
    CHECK(most <= 10);
    CHECK(all >= (6'000 - first) * (seen ? 9 : 8) / 1'000);
    CHECK((all <= 2 + (6'000 - first) * 17 / 2'000) != seen);
  }
}

TEST_CASE("What exceeds it with a chance of a half may after half as many requests") {
  ErrorBudget account;
  account.ended(true, false);
  int half = 0, all = 0;
  for (; !account.affords(); ++all) {
    half += account.affords(500) ? 0 : 1;
    account.ended(false, false);
  }
  CHECK(half * 2 >= all - 1);
  CHECK(half * 2 <= all + 1);
}

TEST_CASE("One may be at the start, and then one more in a hundred requests or a few more") {
  ErrorBudget account;
  CHECK(account.affords());
  CHECK_FALSE(account.affords(ErrorBudget::kSurely_x1000, /*uncounted=*/true));
  account.ended(true, false);
  CHECK_FALSE(account.affords());
  CHECK_FALSE(account.owes());
  int requests = 0;
  for (; requests < 1'000 && !account.affords(); ++requests) account.ended(false, false);
  CHECK(requests >= 100);
  CHECK(requests <= 120);
  while (!account.owes()) account.ended(true, false);
  CHECK_FALSE(account.broken());
  account.ended(true, false);
  account.ended(true, false);
  CHECK(account.broken());
}

TEST_CASE("Beside requests that were over and no exceptions fewer are, for a thousand requests each") {
  // In so many requests, from so many after the unmeant ones on.
  const auto exceptions = [](int unmeant, int behind) {
    ErrorBudget account;
    for (int n = 0; n < unmeant; ++n) {
      account.ended(true, false);
      account.aim_after(true);
      while (account.owes()) account.ended(false, false);
    }
    int all = 0;
    for (int n = 0; n < behind + 1'000; ++n) {
      const bool is = account.affords();
      account.ended(is, false);
      all += is && n >= behind ? 1 : 0;
    }
    return all;
  };
  CHECK(exceptions(0, 200) == 9);
  CHECK(exceptions(1, 0) == 8);
  CHECK(exceptions(1, 1'000) == 9);
  CHECK(exceptions(2, 0) == 7);
  CHECK(exceptions(2, 1'000) == 8);
  CHECK(exceptions(2, 2'000) == 9);
  CHECK(exceptions(6, 0) == 7);
  CHECK(exceptions(6, 2'000) == 9);
}

TEST_CASE("There is plenty where for long fewer were over than may") {
  ErrorBudget account;
  CHECK_FALSE(account.has_plenty());
  for (int n = 0; n < 30; ++n) account.ended(false, false);
  CHECK_FALSE(account.has_plenty());
  for (int n = 0; n < 50; ++n) account.ended(false, false);
  CHECK(account.has_plenty());
  account.ended(true, false);
  CHECK_FALSE(account.has_plenty());
}

TEST_CASE(
    "Requests that are over and no exceptions take a quarter of the aim, others give it back") {
  ErrorBudget account;
  const auto unspent = [&](bool over) {
    account.ended(over, false);
    account.aim_after(over);
    return account.aim_x1000();
  };
  const int64_t most = account.aim_x1000();
  CHECK(unspent(false) == most);
  const int64_t less = unspent(true);
  CHECK(less == most * 3 / 4);
  CHECK(unspent(false) > less);
  // As much as five of a thousand take.
  for (int n = 0; n < 180; ++n) unspent(false);
  CHECK(account.aim_x1000() < most);
  for (int n = 0; n < 50; ++n) unspent(false);
  CHECK(account.aim_x1000() == most);
  // Not where more than a thousand requests bear are over.
  while (!account.broken()) unspent(true);
  const int64_t least = account.aim_x1000();
  CHECK(unspent(false) == least);
}

namespace {

// Of every thousand services so many are over by themselves.
ErrorBudget over_by_itself(int per_mille, int services = 6'000) {
  ErrorBudget account;
  for (int n = 0; n < services; ++n) account.alone(n % 1'000 * per_mille % 1'000 < per_mille);
  return account;
}
// Whether so many of a thousand may be over for long.
bool bears(ErrorBudget account, int per_mille, bool undisturbed = false) {
  for (int n = 0; n < 6'000; ++n) {
    account.ended(n % 1'000 * per_mille % 1'000 < per_mille, undisturbed);
  }
  return !account.owes();
}

}  // namespace

TEST_CASE("Services that are over by themselves are forgiven beside others, as far as p99 has room") {
  for (const int by_itself : {0, 2, 40}) {
    INFO("by itself " << by_itself << " of a thousand");
    const ErrorBudget account = over_by_itself(by_itself);
    CHECK(bears(account, std::min(by_itself, 2) + 7));
    CHECK(bears(account, 10) == (by_itself > 0));
    CHECK_FALSE(bears(account, 11));
  }
}

TEST_CASE(
    "Requests that nobody was in the way of earn nothing for those that are over by themselves") {
  CHECK_FALSE(bears(over_by_itself(40), 10, /*undisturbed=*/true));
  CHECK(bears(over_by_itself(40), 6, /*undisturbed=*/true));
}

TEST_CASE("That services were over by themselves is forgotten") {
  ErrorBudget account = over_by_itself(40);
  for (int n = 0; n < 4'000; ++n) account.alone(false);
  CHECK_FALSE(bears(account, 10));
}

// It counts as one in a thousand, which is all that is kept back, until it is forgotten.
TEST_CASE("One service that was over by itself is not taken for the rule", "[!shouldfail]") {
  ErrorBudget account;
  account.alone(true);
  CHECK_FALSE(bears(account, 10));
}

// In a strange while all services are kept undisturbed, after it one in 128.
TEST_CASE("A few services of a busy while are not taken for how all others are") {
  ErrorBudget account;
  for (int n = 0; n < 6; ++n) account.alone(true);
  int over = 0;
  for (int n = 0; n < 1'000; ++n) {
    const bool is = account.affords();
    account.ended(is, false);
    over += is ? 1 : 0;
    if (n % 128 == 0) account.alone(false);
  }
  CHECK(over <= 10);
}
