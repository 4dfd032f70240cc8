#include "policies/launch/guarded/admission.h"

#include <algorithm>

namespace lull::policies {
namespace {

constexpr Duration kLargestCredit{1'000'000};
constexpr int64_t kUnits = 3;      // usual launches that keep the device busy
constexpr int64_t kReactions = 5;  // ... and times that the host takes to react
// A credit is told in steps, so that it is not published anew with every event.
constexpr int64_t kCreditStep = 4'096;
constexpr int64_t kSmallStep = 1'024;

}  // namespace

Duration almost_surely(Duration p95, Duration mean) {
  // Three in a thousand lie beyond 1.7 times the distance from the mean to p95 in a normal
  // distribution, beyond 2.1 times in a log-normal one whose deviation is a third of its mean.
  return p95 + std::max(Duration{}, p95 - mean);
}

Duration usual_credit(Duration reaction, Duration usual_launch) {
  return {std::clamp(std::max(kReactions * reaction.ns, kUnits * usual_launch.ns), kUsualCredit.ns,
                     kLargestCredit.ns)};
}

Allowance allow(const Room& room, const LaunchHabits& habits, Duration in_flight) {
  const int64_t usable = (room.room - habits.reaction).ns;
  int64_t most = habits.usual.ns;
  // Half of a large room, so that few launches have to be let go by name and the device stays busy.
  while (4 * most <= usable && 2 * most <= kLargestCredit.ns) most *= 2;
  // All of it in a request that is over anyway: what the low host launches meanwhile has its turns
  // between the important client's launches, and a long launch behind them is reached.
  if (room.over) most = std::max(most, in_flight.ns + usable);
  int64_t credit = std::min(most, in_flight.ns + usable / room.sharers - habits.beyond_charge.ns);
  credit = credit >= most ? most : credit / kCreditStep * kCreditStep;
  credit = std::max(credit, room.borne.ns / room.sharers / kSmallStep * kSmallStep);
  return {{usable}, {most}, {credit}};
}

}  // namespace lull::policies
