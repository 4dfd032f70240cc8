// What may go now: the rule itself. Pure functions: no state, no clock. Guarded asks in each step,
// for each lower client that is awake; a RequestGuard says what the moment is.
//
//   late = max(0, back, ahead + cost - slack)           by so much later its work is through
//   D    = price * late                                 by so much later the request ends; what is
//                                                       beyond `priced` in full
//
//   D = 0                                               it goes: the slack takes it
//   p(D) D <= budget  and  D <= tail                    it goes: the mean budget pays
//   p(D) D <= budget  and  p(D - tail) <= exceptions    it goes: the request may be over its limit
//   else                                                it waits
//
// Of cost the most that the launch costs, almost surely. p(t) is the chance that the client is back within t: 1 but
// where it is away at random, as between requests that arrive. p(D - tail) is that chance times the chance that the
// launch is so long that D exceeds tail. By chance a launch goes only while no other lower work is there: behind that
// it would risk more and do no more. And it goes only where that chance is at most twice what it is at the best moment,
// or where it would surely not be too long at the best moment: such launches need no error budget there. Where an
// exception would let more lower work go for its part of the error budget, one request, the launch waits until that is
// there, and goes as one.
//
// The gate cannot ask for each launch, so most launches go by credit, within the room:
//
//   room   = slack + (the delay of which D is min(budget, tail)) - ahead
//   credit = in flight + (room - reaction) / clients that launch - what a launch may exceed its
//   charge by, and at most what keeps the device busy, and at most
//   depth  = slack + budget / 8 / price, and no more than the moment's `deepest` at a price of 1;
//   a RequestGuard may allow more
#pragma once

#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

// What one important client leaves at a moment.
struct Moment {
  Duration slack;   // so late may the device be until the client's next wait notices
  Duration ahead;   // what lower work in flight or let go costs it yet, and the change of hands
  Duration back;    // the change back costs so much at least, however early lower work is through
  Duration budget;  // of the mean budget, what may be spent now
  Duration tail;    // what the request may yet lose
  int64_t exceptions_x1000 = 0;  // the error budget, where no better moment is known
  Duration back_in;   // the client is away at random, and back in so long in the mean; 0: it is not
  bool alone = true;  // no lower work is in flight or let go
  Duration best_slack;  // at the best moment of a request; `slack` or less: no moment is known to be better
  Duration follows;          // lower work from one launch by chance, or exception, to the next; the mean of late
  Duration exception_takes;  // an exception would make the request lose so much; 0: launches wait for none
  Duration deepest;   // so much lower work may be in flight at a price of 1; kDeepestCredit, if that is more
  Duration depth;     // of lower work in flight
  int64_t price_x1024 = 1024;  // what requests lose of what is foretold; 1024 at most
  Duration priced;             // ... up to so much; what is beyond is charged in full
};

enum class Verdict : uint8_t { kWaits, kGoes, kByChance, kException };

// What a launch costs: in the mean; no more in 19 of 20 cases.
struct Cost {
  Duration mean, p95;
};

// How late the request ends if a launch that costs so much goes too.
Duration delay(const Moment& moment, Duration cost);
Verdict admit(const Moment& moment, const Cost& cost);
// The chance that it costs more than `than`, times 1000; 0: almost surely not.
int64_t more_x1000(const Cost& cost, Duration than);
// The chance that the client is back so soon, times 1000.
int64_t chance_x1000(const Moment& moment, Duration within);
// Lower work that may go without an exception. May be negative.
Duration room(const Moment& moment);

// So much of lower work is in flight at once at most: what the client finds there when it comes back
// delays it.
Duration depth(const Moment& moment);

// A launch whose length has this mean and this p95 takes longer in a few cases of a thousand only.
Duration reckoned_length(Duration p95, Duration mean);
inline Duration almost_surely(const Cost& cost) { return reckoned_length(cost.p95, cost.mean); }

// A low client, as far as its credit depends on it.
struct LowHost {
  Duration reaction;  // from a decision to its launch
  Duration usual_launch;
  Duration beyond_charge;  // a launch lately took so much longer than its charge, at most
};
// So long a credit may hold while the room falls with time.
Duration credit_holds(Duration room);
// The credit that keeps the device busy in so large a room, and with so much in flight at most.
Duration busy_credit(const LowHost& host, Duration room, Duration depth);
// Of a room that `sharers` clients share, for one that has `in_flight` on the device. Nothing: 0.
Duration credit(Duration room, Duration depth, int64_t sharers, const LowHost& host,
                Duration in_flight);

}  // namespace lull::policies
