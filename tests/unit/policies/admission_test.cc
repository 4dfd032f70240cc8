// How much credit a lower client gets of a room, worked out by hand.
#include "policies/launch/guarded/admission.h"

#include <catch2/catch.hpp>

using namespace lull;
using namespace lull::policies;

namespace {

Duration us(int64_t us) { return Duration{us * 1000}; }
// Reacts within 15 us; 0.2 ms keep the device busy; launches take what they are charged.
const LaunchHabits kSteady{us(15), us(200), {}};

}  // namespace

TEST_CASE("A launch that always takes the same is reckoned with at that") {
  CHECK(almost_surely(us(100), us(100)) == us(100));
}

TEST_CASE("A launch of varying length is reckoned with twice as far from its mean as its p95") {
  CHECK(almost_surely(us(150), us(100)) == us(200));
  // A p95 below the mean is an error of prediction, and shortens nothing.
  CHECK(almost_surely(us(90), us(100)) == us(90));
}

TEST_CASE("The usual credit covers three launches, or five reactions, from 0.2 to 1 ms") {
  CHECK(usual_credit(us(15), us(10)) == us(200));
  CHECK(usual_credit(us(15), us(100)) == us(300));
  CHECK(usual_credit(us(60), us(10)) == us(300));
  CHECK(usual_credit(us(15), us(900)) == us(1'000));
}

TEST_CASE(
    "What is usable is the room less the reaction, and a credit covers what is in flight too") {
  const Allowance allowed = allow({.room = us(115)}, kSteady, us(50));
  CHECK(allowed.usable == us(100));
  // In steps of 4,096 ns, downwards: 150 us.
  CHECK(allowed.credit.ns == 147'456);
}

TEST_CASE("No room, no credit; but for short launches while the important client is idle") {
  CHECK(allow({.room = us(-50)}, kSteady, {}).credit.ns <= 0);
  CHECK(allow({.room = us(-50), .borne = us(50)}, kSteady, {}).credit.ns == 49'152);
}

TEST_CASE("A large room is not given at once, and shared by those who launch") {
  CHECK(allow({.room = us(500)}, kSteady, {}).credit == us(200));
  CHECK(allow({.room = us(1'000)}, kSteady, {}).credit == us(400));
  CHECK(allow({.room = us(100'000)}, kSteady, {}).credit == us(800));
  CHECK(allow({.room = us(135), .sharers = 2}, kSteady, {}).credit.ns == 57'344);
}

TEST_CASE("In a request that is over anyway all of the room is given") {
  CHECK(allow({.room = us(3'015), .over = true}, kSteady, us(500)).credit == us(3'500));
}

// The gate lets a launch of 330 us through that it charges 100: beside 462 us in flight and in a
// room of 576 - 462 it would run for 216 us longer than there is room.
TEST_CASE("A launch that takes longer than its charge fits in the room all the same") {
  const LaunchHabits habits{{}, us(1'000), us(230)};
  const Duration in_flight = us(462), room = us(114), charge = us(100), takes = us(330);
  const Allowance allowed = allow({.room = room}, habits, in_flight);
  CHECK(in_flight + charge > allowed.credit);  // the gate holds it
  CHECK(takes > allowed.usable);               // and it is not let go by name
  const Allowance large = allow({.room = us(2'000)}, habits, in_flight);
  CHECK(in_flight + charge <= large.credit);
}

TEST_CASE("Whatever a credit lets through ends within the room") {
  for (int64_t room = 0; room <= 1'000; room += 7) {
    for (int64_t beyond = 0; beyond <= 300; beyond += 50) {
      for (int64_t in_flight = 0; in_flight <= 400; in_flight += 100) {
        const LaunchHabits habits{us(15), us(1'000), us(beyond)};
        const Allowance allowed = allow({.room = us(room)}, habits, us(in_flight));
        // The longest launch that still fits the credit takes `beyond` more than it is charged.
        const Duration charge = allowed.credit - us(in_flight);
        if (charge.ns > 0) CHECK(charge + us(beyond) <= us(room - 15));
      }
    }
  }
}
