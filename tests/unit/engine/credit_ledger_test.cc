#include "coordinator/engine/credit_ledger.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::engine;

namespace {

Instant us(int64_t n) { return Instant{n * 1000}; }
Duration d_us(int64_t n) { return Duration{n * 1000}; }
// Without the bit that lets one launch through however long.
int64_t granted_us(const CreditLedger::Grant& grant) {
  return (grant.granted.ns & ~int64_t{1}) / 1000;
}

}  // namespace

TEST_CASE("a grant is topped up as work completes, and what is spent stays spent") {
  CreditLedger credit;
  const auto first = credit.grant({.bound = d_us(100)}, us(0), {});
  REQUIRE(first);
  CHECK(first->new_epoch);
  CHECK(granted_us(*first) == 100);
  CHECK((first->granted.ns & 1) == 1);  // nothing is in flight: one of any length
  credit.launched(d_us(60), us(1), {});
  CHECK(credit.fits(d_us(40)));
  CHECK_FALSE(credit.fits(d_us(41)));
  CHECK_FALSE(credit.grant({.bound = d_us(100), .in_flight = d_us(60), .units = 1}, us(2), {}));
  const auto more = credit.grant({.bound = d_us(100)}, us(3), {});
  REQUIRE(more);
  CHECK_FALSE(more->new_epoch);
  CHECK(granted_us(*more) == 160);
}

TEST_CASE("in steps it is topped up when there is a step to give, or nothing is in flight") {
  CreditLedger credit;
  CreditLedger::Ask ask{.bound = d_us(100), .step = d_us(10)};
  credit.grant(ask, us(0), {});
  credit.launched(d_us(50), us(1), {});
  ask.units = 1;
  ask.in_flight = d_us(41);
  CHECK_FALSE(credit.grant(ask, us(2), {}));
  ask.in_flight = d_us(39);
  REQUIRE(credit.grant(ask, us(3), {}));
  // Less, and another bound, are news however small.
  ask.in_flight = d_us(40);
  CHECK(credit.grant(ask, us(4), {}));
  ask.bound = d_us(101);
  CHECK(credit.grant(ask, us(5), {}));
  ask.in_flight = d_us(0);
  ask.units = 0;
  CHECK(credit.grant(ask, us(6), {}));
}

TEST_CASE("a launch longer than an untouched grant spends all of it") {
  CreditLedger credit;
  credit.grant({.bound = d_us(100)}, us(0), {});
  CHECK(credit.is_untouched());
  credit.launched(d_us(5'000), us(1), {});
  CHECK_FALSE(credit.is_untouched());
  CHECK_FALSE(credit.fits(Duration{2}));
  // The next such one takes a new epoch.
  const auto next = credit.grant({.bound = d_us(100), .long_launch = true}, us(9), {});
  REQUIRE(next);
  CHECK(next->new_epoch);
}

TEST_CASE("what was taken back counts until that is in effect") {
  constexpr Duration kLatency{10'000};
  CreditLedger credit;
  credit.grant({.bound = d_us(100)}, us(0), kLatency);
  credit.take_back(us(20), kLatency);
  CHECK_FALSE(credit.stands());
  CHECK(credit.granted() == Duration{});
  CHECK(granted_us(*credit.grant({.bound = d_us(100)}, us(25), kLatency)) == 0);
  CHECK(credit.settles_at() == us(30));
  // A launch of before then was let through by the old grant.
  credit.launched(d_us(30), us(26), kLatency);
  CHECK(granted_us(*credit.grant({.bound = d_us(100), .in_flight = d_us(30), .units = 1}, us(27),
                                 kLatency)) == 0);
  CHECK(granted_us(*credit.grant({.bound = d_us(100), .in_flight = d_us(30), .units = 1}, us(30),
                                 kLatency)) == 70);
  CHECK(credit.settles_at() == kNever);
}
