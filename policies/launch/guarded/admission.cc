#include "policies/launch/guarded/admission.h"

#include <algorithm>

#include "policies/launch/guarded/tuning.h"

namespace lull::policies {

Duration delay(const Moment& moment, Duration cost) {
  const Duration late = std::max({Duration{}, moment.back, moment.ahead + cost - moment.slack});
  return {late.ns * moment.price_x1024 / 1024};
}

int64_t chance_x1000(const Moment& moment, Duration within) {
  if (within.ns <= 0) return 0;
  // 1 - exp(-within / back_in) is less than this.
  return moment.back_in <= within ? 1'000 : 1'000 * within.ns / moment.back_in.ns;
}

Verdict admit(const Moment& moment, Duration cost) {
  const auto pays = [&](Duration late) {
    return late.ns / 1'000 * chance_x1000(moment, late) <= moment.budget.ns;
  };
  const Duration late = delay(moment, cost);
  if (late.ns == 0) return Verdict::kGoes;
  if (!pays(late)) return Verdict::kWaits;
  const int64_t over = chance_x1000(moment, late - std::max(Duration{}, moment.tail));
  if (over == 0) return Verdict::kGoes;
  const Duration full{late.ns * 1024 / std::min<int64_t>(1024, moment.price_x1024)};
  if (over > moment.exceptions_x1000 || !pays(full)) return Verdict::kWaits;
  if (over >= 1'000) return Verdict::kException;
  return moment.alone ? Verdict::kByChance : Verdict::kWaits;
}

Duration room(const Moment& moment) {
  const Duration given = std::max(Duration{}, std::min(moment.budget, moment.tail));
  if (delay(moment, moment.slack - moment.ahead) > given) return {};  // not even the change back
  return moment.slack + Duration{given.ns * 1024 / moment.price_x1024} - moment.ahead;
}

Duration reckoned_length(Duration p95, Duration mean) {
  // Three in a thousand lie beyond 1.7 times the distance from the mean to p95 in a normal
  // distribution, beyond 2.1 times in a log-normal one whose deviation is a third of its mean.
  return p95 + std::max(Duration{}, p95 - mean);
}

Duration busy_credit(const LowHost& host, Duration room, Duration depth) {
  int64_t most = std::clamp(
      std::max(tuning::kReactions * host.reaction.ns, tuning::kUnits * host.usual_launch.ns),
      tuning::kLeastCredit.ns, tuning::kMostCredit.ns);
  // Half of a large room, so that few launches have to be let go by name.
  const int64_t usable = (room - host.reaction).ns;
  const int64_t deepest = std::clamp(depth.ns, tuning::kMostCredit.ns, tuning::kDeepestCredit.ns);
  while (4 * most <= usable && 2 * most <= deepest) most *= 2;
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
