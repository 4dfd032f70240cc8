#include "coordinator/engine/credit_ledger.h"

#include <algorithm>

#include "policies/launch/launch_policy.h"

namespace lull::engine {

using policies::kMaxCreditBound;

bool CreditLedger::renews(const Ask& ask) const {
  const bool nearly_full = spent_.ns > kMaxCreditBound.ns / 2;
  return !stands_ ||
         (ask.units == 0 && (ask.stale || (spent_.ns > 0 && (ask.long_launch || nearly_full))));
}

std::optional<CreditLedger::Grant> CreditLedger::grant(const Ask& ask, Instant now,
                                                       Duration latency) {
  const bool renew = renews(ask);
  if (renew) {
    void_rest(now, latency);
    spent_ = Duration{};
    epoch_began_ = now;
  }
  if (now >= voided_until_) voided_ = Duration{};
  const Duration room = std::max(Duration{}, ask.bound - ask.in_flight - voided_);
  Duration granted = std::min(spent_ + room, kMaxCreditBound);
  // Once something is spent the bit means nothing. It stays, so that it alone causes no new grant.
  const bool any_length = ask.any_length && (spent_.ns == 0 ? ask.units == 0 && voided_.ns == 0
                                                            : !renew && is_for_any_length());
  granted.ns = any_length ? (granted.ns | 1) : (granted.ns & ~int64_t{1});
  const bool same_bound = limit_ == ask.bound;
  limit_ = ask.bound;
  if (!renew && granted == granted_) return std::nullopt;
  const bool little = granted >= granted_ && granted < granted_ + ask.step;
  if (!renew && same_bound && little && ask.units > 0) return std::nullopt;
  stands_ = true;
  granted_ = granted;
  granted_at_ = now;
  return Grant{granted, renew};
}

// Notes what may still be spent of a grant that is taken back. Taking back takes effect as late as
// giving does, so a gate that opens and closes faster than that has several grants under way.
void CreditLedger::void_rest(Instant now, Duration latency) {
  if (!stands_ || latency.ns <= 0) return;
  if (now >= voided_until_) voided_ = Duration{};
  voided_ += std::max(Duration{}, granted_ - spent_);
  voided_until_ = now + latency;
}

void CreditLedger::take_back(Instant now, Duration latency) {
  void_rest(now, latency);
  stands_ = false;
  granted_ = Duration{};
}

void CreditLedger::launched(Duration charged, Instant at, Duration latency) {
  // It was charged to this epoch's grant if that is surely in effect, or if no earlier one is.
  const Instant in_effect = epoch_began_ + (voided_.ns > 0 ? latency : Duration{});
  if (stands_ && charged.ns != 0 && at >= in_effect) {
    // As the channel's try_spend counts: a launch longer than an untouched grant spends it all.
    Duration after = spent_ + charged;
    if (after > granted_ && spent_.ns == 0) after = granted_;
    spent_ = std::min(after, kMaxCreditBound);
  } else if (at < voided_until_) {
    voided_ -= std::min(voided_, charged);
  }
}

}  // namespace lull::engine
