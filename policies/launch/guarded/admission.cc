#include "policies/launch/guarded/admission.h"

#include <algorithm>

#include "policies/launch/guarded/tuning.h"

namespace lull::policies {
namespace {

constexpr int64_t kInFull = 1'024;  // a price of 1
// log2(20): the chance of a longer launch falls to a twentieth from the mean to p95, and again in the same distance
// beyond.
constexpr int64_t kHalvings_x1024 = 4'425;

// The lower work that delays the request by `given` at most.
Duration room_for(const Moment& moment, Duration given) {
  if (delay(moment, moment.slack - moment.ahead) > given) return {};  // the change back alone takes more
  const Duration all{given.ns * kInFull / moment.price_x1024};
  const Duration priced = std::clamp(moment.priced, Duration{}, all);
  const Duration paid{priced.ns * moment.price_x1024 / kInFull};
  return moment.slack + priced + (given - paid) - moment.ahead;
}

// Whether an exception would let more lower work go for each request of the error budget than this launch does. An
// exception takes one request of it, the launch `over` thousandths. The work that follows either counts too.
bool is_worth_an_exception(const Moment& moment, const Cost& cost, int64_t over) {
  if (delay(moment, moment.slack - moment.ahead) >= moment.exception_takes) return false;  // the change back takes it
  const Duration work = room_for(moment, moment.exception_takes) - (moment.slack - moment.ahead);
  return std::max(cost.mean, moment.follows).ns * 1'000 < over * (work + moment.follows).ns;
}

// `more`: the chance that the launch is too long now, times 1000. That is at most twice the chance at the best moment,
// or the launch surely fits at the best moment: then such launches need no error budget there.
bool is_good_chance(Moment moment, const Cost& cost, Duration given, int64_t more) {
  moment.slack = std::max(moment.slack, moment.best_slack);
  const int64_t at_best = more_x1000(cost, room_for(moment, given));
  return at_best == 0 || more <= tuning::kGoodChance * at_best;
}

}  // namespace

Duration delay(const Moment& moment, Duration cost) {
  const Duration late = std::max({Duration{}, moment.back, moment.ahead + cost - moment.slack});
  const Duration priced = std::clamp(moment.priced, Duration{}, late);
  return Duration{priced.ns * moment.price_x1024 / kInFull} + (late - priced);
}

int64_t chance_x1000(const Moment& moment, Duration within) {
  if (within.ns <= 0) return 0;
  if (moment.back_in <= within) return 1'000;
  // At least 1 - exp(-within / back_in). Rounded up: else launches that are short beside long pauses would go whatever
  // is owed.
  return (1'000 * within.ns + moment.back_in.ns - 1) / moment.back_in.ns;
}

int64_t more_x1000(const Cost& cost, Duration than) {
  if (than >= almost_surely(cost)) return 0;
  if (than <= cost.mean) return 1'000;
  const int64_t halvings_x1024 = (than - cost.mean).ns * kHalvings_x1024 / (cost.p95 - cost.mean).ns;
  return (1'000 * (2'048 - halvings_x1024 % 1'024) / 2'048) >> (halvings_x1024 / 1'024);
}

Verdict admit(const Moment& moment, const Cost& cost) {
  const Duration late = delay(moment, almost_surely(cost));
  if (late.ns == 0) return Verdict::kGoes;
  if (late.ns / 1'000 * chance_x1000(moment, late) > moment.budget.ns) return Verdict::kWaits;
  const Duration tail = std::max(Duration{}, moment.tail);
  const int64_t back = chance_x1000(moment, late - tail), more = more_x1000(cost, room_for(moment, tail));
  const int64_t over = (back * more + 999) / 1'000;
  if (over == 0) return Verdict::kGoes;
  if (over > moment.exceptions_x1000) return Verdict::kWaits;
  if (over >= 1'000) return Verdict::kException;
  if (is_worth_an_exception(moment, cost, over))
    return moment.exceptions_x1000 >= 1'000 ? Verdict::kException : Verdict::kWaits;
  return moment.alone && is_good_chance(moment, cost, tail, more) ? Verdict::kByChance : Verdict::kWaits;
}

Duration room(const Moment& moment) {
  return room_for(moment, std::max(Duration{}, std::min(moment.budget, moment.tail)));
}

Duration depth(const Moment& moment) {
  const int64_t price = moment.price_x1024;
  const Duration borne{moment.budget.ns / tuning::kBorne * kInFull / price};
  const Duration deepest = std::max(tuning::kDeepestCredit, moment.deepest);
  const Duration most{deepest.ns * kInFull / price};
  return std::min(most, std::max(Duration{}, moment.slack) + borne);
}

Duration reckoned_length(Duration p95, Duration mean) {
  // Twice the distance from the mean to p95. Three in a thousand lie beyond 1.7 times that distance in a normal
  // distribution, and beyond 2.1 times in a log-normal one whose deviation is a third of its mean.
  return p95 + std::max(Duration{}, p95 - mean);
}

Duration credit_holds(Duration room) {
  return std::max(Duration{room.ns / tuning::kCreditPart}, tuning::kLeastHeld);
}

Duration busy_credit(const LowHost& host, Duration room, Duration depth) {
  int64_t most = std::clamp(
      std::max(tuning::kReactions * host.reaction.ns, tuning::kUnits * host.usual_launch.ns),
      tuning::kLeastCredit.ns, tuning::kMostCredit.ns);
  // In a large room the credit is at least half of it, so that few launches have to be let go by name.
  const int64_t usable = (room - host.reaction).ns;
  while (2 * most <= usable && 2 * most <= depth.ns) most *= 2;
  return {std::min(most, std::max(tuning::kIdleCredit.ns, depth.ns))};
}

Duration credit(Duration room, Duration depth, int64_t sharers, const LowHost& host,
                Duration in_flight) {
  const Duration most = busy_credit(host, room, depth);
  const Duration part{(room - host.reaction).ns / sharers};
  const Duration all = in_flight + part - host.beyond_charge;
  if (all >= most) return most;
  return {std::max<int64_t>(0, all.ns / tuning::kCreditStep * tuning::kCreditStep)};
}

}  // namespace lull::policies
