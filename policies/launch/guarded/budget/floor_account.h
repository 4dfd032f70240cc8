// The operator's floor: how much of the device each client has had, and whether that is less than
// its share. Guarded feeds it every event and asks it for each client that is held. Pure.
//
// A client is due `per_mille` of all time, and a sixteenth more, so that what is lost at the edges
// of a window does not count. What it has had is the time that its work really took, not what was
// expected, which is too much for a task that has never run alone: the device's time from
// completion to completion goes to what has completed, in the order in which it was launched, to
// each no more than expected. Exact on a serial device, as closely as completions are seen; where
// kernels overlap they are charged for less than they took, but for an eighth of what was expected.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "policies/launch/launch_policy.h"

namespace lull::policies {

class FloorAccount {
 public:
  // 0: no floor; nobody is ever due anything.
  explicit FloorAccount(int64_t per_mille) : per_mille_(per_mille + per_mille / 16) {}

  bool is_given() const { return per_mille_ > 0; }
  void take(const Event& event);
  // When all that has happened until `now` has been told.
  void settle(Instant now);
  // What the client may launch now to have its floor, beside what it has in flight.
  Duration due(ClientId client);

 private:
  struct Unit {
    ClientId client;
    StreamSlot stream;
    Duration expected;
    bool copy = false;
    bool done = false;
  };
  struct Account {
    ClientId client;
    int64_t due_x1000 = 0;  // ns; without what is in flight
    int64_t in_flight_ns = 0;
    Instant accrued_at = kNever;  // as the time then was, due_x1000 is
  };
  Account* find(ClientId client);
  void accrue(Account& account) const;
  void charge(const Unit& unit, Duration ran);

  const int64_t per_mille_;
  std::vector<Account> accounts_;  // by client
  std::deque<Unit> units_;         // as launched
  uint32_t computing_ = 0;         // of them not copies
  uint32_t done_ = 0;              // of them, not settled yet
  Instant moved_at_{0};            // the last completion, or launch to an idle device
  Instant accrued_at_ = kNever;
};

}  // namespace lull::policies
