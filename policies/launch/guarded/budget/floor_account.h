// The operator's floor: how much of the device each client has had, and whether that is less than its share. Guarded
// feeds it every event and asks it about each client that is held. Pure.
//
// A client is due `per_mille` of all time. A sixteenth more is added, to make up for what is lost at the edges of a
// window. A client is charged the time that its work really took. The expected length would be too much for a task
// that has never run alone. So the device's time from completion to completion goes to the units that completed, in
// the order of their launches, to each no more than its expected length. On a serial device this is as exact as
// completions are seen. Where kernels overlap, each is charged less than it took, but at least an eighth of its
// expected length.
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
  // Called when all that has happened until `now` has been told.
  void settle(Instant now);
  // How much the client may launch now to get its floor, beside what it has in flight.
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
    int64_t due_x1000 = 0;  // ns; work in flight is not taken off
    int64_t in_flight_ns = 0;
    Instant accrued_at = kNever;  // the time up to which due_x1000 counts
  };
  Account* find(ClientId client);
  void accrue(Account& account) const;
  void charge(const Unit& unit, Duration ran);

  const int64_t per_mille_;
  std::vector<Account> accounts_;  // by client
  std::deque<Unit> units_;         // in the order of launches
  uint32_t computing_ = 0;         // units that are not copies
  uint32_t done_ = 0;              // units that are done and not settled yet
  Instant moved_at_{0};            // the last completion, or launch to an idle device
  Instant accrued_at_ = kNever;
};

}  // namespace lull::policies
