#include "policies/launch/floor_account.h"

#include <algorithm>

namespace lull::policies {
namespace {

// What a client has had beyond its floor counts against it up to this, or its last unit; what it
// did not take while it could counts for it up to this.
constexpr int64_t kMostCarriedNs = 10'000'000;
// A unit counts for at least such a part of what was expected of it.
constexpr int64_t kLeastPart = 8;

}  // namespace

FloorAccount::Account* FloorAccount::find(ClientId client) {
  const auto at = std::find_if(accounts_.begin(), accounts_.end(),
                               [&](const Account& account) { return account.client == client; });
  return at != accounts_.end() ? &*at : nullptr;
}

void FloorAccount::take(const Event& event) {
  if (per_mille_ == 0) return;
  if (const auto* joined = std::get_if<Joined>(&event)) {
    if (find(joined->client) == nullptr) accounts_.push_back({.client = joined->client});
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
  const int64_t passed = accrued_at_ == kNever ? 0 : std::max<int64_t>(0, (now - accrued_at_).ns);
  accrued_at_ = now;
  for (Account& account : accounts_) {
    const int64_t most = (kMostCarriedNs + account.in_flight_ns) * 1000;
    account.due_x1000 = std::min(account.due_x1000 + passed * per_mille_,
                                 std::max(account.due_x1000, most));
  }
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
  account.in_flight_ns -= unit.expected.ns;
  account.due_x1000 = std::max(account.due_x1000 - ran.ns * 1000,
                               -std::max(kMostCarriedNs, ran.ns) * 1000);
}

Duration FloorAccount::due(ClientId client) {
  const Account* account = find(client);
  if (account == nullptr) return {};
  return {account->due_x1000 / 1000 - account->in_flight_ns};
}

}  // namespace lull::policies
