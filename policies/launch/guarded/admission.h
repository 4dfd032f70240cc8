// How much credit a lower client gets, and how long a launch must be reckoned with. Pure functions:
// no state, no clock. Called by Guarded in each step, for each lower client that is awake and each
// group of those that rest. They do not know why the room is what it is: TaskGuard says that.
//
//   room     = slack until the next wait + what the budgets allow - lower work in flight or let go
//   usable   = room - the time that a low client takes to react
//   credit   = in flight + usable / clients that launch - what a launch may exceed its charge by
//
// The credit holds when every launch that it lets through takes as long as almost_surely() says:
// the gate charges a launch by its kernel's mean over the whole program, so the last launch that
// fits the credit may be longer than its charge, by `beyond_charge` at most.
#pragma once

#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

// What all important clients leave to one level.
struct Room {
  Duration room;      // lower work that may yet be let go
  Duration borne;     // ... in short launches while no important client has work, whatever is known
  bool over = false;  // a request is over its p99 limit anyway, and may be filled
  int64_t sharers = 1;  // clients of the level that launch
};

// A low client, as far as its credit depends on it.
struct LaunchHabits {
  Duration reaction;       // from a decision to its launch
  Duration usual;          // credit that keeps the device busy
  Duration beyond_charge;  // a launch lately took so much longer than its charge, at most
};

struct Allowance {
  Duration usable;  // a launch of this length may be let go by name; may be negative
  Duration most;    // credit that keeps the device busy in so large a room
  Duration credit;  // 0 or less: none
};

// For a client that has `in_flight` on the device.
Allowance allow(const Room& room, const LaunchHabits& habits, Duration in_flight);

// The credit that keeps the device busy: at least 0.2 ms, at most 1 ms.
Duration usual_credit(Duration reaction, Duration usual_launch);

// A launch whose length has this mean and this p95 takes longer in a few cases of a thousand only.
Duration almost_surely(Duration p95, Duration mean);

// The largest credit that one client gets while an important one may come back at any time.
inline constexpr Duration kUsualCredit{200'000};
// ... and what all of them get while it has no work, whatever is known of its pauses.
inline constexpr Duration kSmallCredit{50'000};

}  // namespace lull::policies
