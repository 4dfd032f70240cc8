#include "policies/launch/guarded/budget/floor_account.h"

#include <algorithm>

namespace lull::policies {
namespace {

// What a client has had beyond its floor counts against it up to this, or up to its last unit. What it could have taken
// and did not counts for it up to this.
constexpr int64_t kMostCarriedNs = 10'000'000;
// A unit counts for at least an eighth of its expected length.
constexpr int64_t kLeastPart = 8;

}  // namespace

FloorAccount::Account* FloorAccount::find(ClientId client) {
  const auto at = std::ranges::lower_bound(accounts_, client, {}, &Account::client);
  return at != accounts_.end() && at->client == client ? &*at : nullptr;
}

// Adds what is due until accrued_at_. How often this is called does not change the sum.
void FloorAccount::accrue(Account& account) const {
  const int64_t passed = std::max<int64_t>(0, (accrued_at_ - account.accrued_at).ns);
  account.accrued_at = accrued_at_;
  const int64_t most = (kMostCarriedNs + account.in_flight_ns) * 1000;
  account.due_x1000 = std::min(account.due_x1000 + passed * per_mille_,
                               std::max(account.due_x1000, most));
}

void FloorAccount::take(const Event& event) {
  if (per_mille_ == 0) return;
  if (const auto* joined = std::get_if<Joined>(&event)) {
    const auto at = std::ranges::lower_bound(accounts_, joined->client, {}, &Account::client);
    if (at != accounts_.end() && at->client == joined->client) return;
    accounts_.insert(at, {.client = joined->client, .accrued_at = accrued_at_});
  } else if (const auto* left = std::get_if<Left>(&event)) {
    std::erase_if(accounts_, [&](const Account& account) { return account.client == left->client; });
    std::erase_if(units_, [&](const Unit& unit) {
      if (unit.client != left->client) return false;
      computing_ -= unit.copy ? 0 : 1;
      done_ -= unit.done ? 1 : 0;
      return true;
    });
  } else if (const auto* launch = std::get_if<Submitted>(&event)) {
    Account* account = find(launch->client);
    if (account == nullptr) return;
    accrue(*account);
    account->in_flight_ns += launch->expected.ns;
    if (!launch->copy && computing_++ == 0) moved_at_ = std::max(moved_at_, launch->at);
    units_.push_back({launch->client, launch->stream, launch->expected, launch->copy});
  } else if (const auto* completed = std::get_if<Completed>(&event)) {
    uint32_t left_over = completed->units;
    for (auto unit = units_.begin(); unit != units_.end() && left_over > 0; ++unit) {
      if (unit->done || unit->client != completed->client || unit->stream != completed->stream) {
        continue;
      }
      unit->done = true;
      done_ += 1;
      left_over -= 1;
    }
  }
}

void FloorAccount::settle(Instant now) {
  if (per_mille_ == 0) return;
  if (accrued_at_ == kNever) {
    for (Account& account : accounts_) account.accrued_at = now;
  }
  accrued_at_ = now;
  Duration rest = std::max(Duration{}, now - moved_at_);
  for (auto unit = units_.begin(); done_ > 0; ) {
    if (!unit->done) {
      ++unit;
      continue;
    }
    Duration ran = unit->expected;
    if (!unit->copy) {
      ran = std::clamp(rest, Duration{ran.ns / kLeastPart}, ran);
      rest -= std::min(rest, ran);
      computing_ -= 1;
      moved_at_ = now;
    }
    charge(*unit, ran);
    unit = units_.erase(unit);
    done_ -= 1;
  }
}

void FloorAccount::charge(const Unit& unit, Duration ran) {
  Account& account = *find(unit.client);
  accrue(account);
  account.in_flight_ns -= unit.expected.ns;
  account.due_x1000 = std::max(account.due_x1000 - ran.ns * 1000,
                               -std::max(kMostCarriedNs, ran.ns) * 1000);
}

Duration FloorAccount::due(ClientId client) {
  Account* account = find(client);
  if (account == nullptr) return {};
  accrue(*account);
  return {account->due_x1000 / 1000 - account->in_flight_ns};
}

}  // namespace lull::policies
