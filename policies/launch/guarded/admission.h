// What may go now: the rule itself. Pure functions: no state, no clock. Guarded asks in each step, for each lower
// client that is awake. A RequestGuard says what the moment is.
//
//   late = max(0, back, ahead + cost - slack)           how much later the client's work is through
//   D    = price * late                                 how much later the request ends; delay beyond
//                                                       `priced` counts in full
//
//   D = 0                                               it goes: the slack takes it
//   p(D) D <= budget  and  D <= tail                    it goes: the mean budget pays
//   p(D) D <= budget  and  p(D - tail) <= exceptions    it goes: the request may be over its limit
//   else                                                it waits
//
// `cost` is the most that the launch costs, almost surely. p(t) is the chance that the client is back within t. It is
// 1, except where the client is away at random, as between requests that arrive. p(D - tail) is that chance times the
// chance that the launch is long enough for D to exceed tail.
//
// A launch goes by chance only while no other lower work is there: behind other work it would risk more and do no more.
// Also, it must be at most twice as likely to be too long as at the best moment, or be sure to fit at the best moment:
// such launches need no error budget there. Where an exception would let more lower work go for each request of the
// error budget than the launch would, the launch waits. Once the error budget holds one request, it goes as an
// exception.
//
// The gate cannot ask for each launch, so most launches go by credit, within the room:
//
//   room   = slack + (the delay of which D is min(budget, tail)) - ahead
//   credit = in flight + (room - reaction) / clients that launch - what a launch may exceed its charge by
//            at most what keeps the device busy, and at most the depth
//   depth  = slack + budget / 8 / price, and at most the moment's `deepest` / price; a RequestGuard may allow more
#pragma once

#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

// What one important client leaves at a moment.
struct Moment {
  Duration slack;   // how late the device may be before the client's next wait notices
  Duration ahead;   // what lower work in flight or let go will still cost, and the changes of hands
  Duration back;    // what the change back costs at least, however early lower work is through
  Duration budget;  // the part of the mean budget that may be spent now
  Duration tail;    // what the request may yet lose without being over
  int64_t exceptions_x1000 = 0;  // what the error budget gives now; 0 while a better moment is to come
  Duration back_in;   // the mean time until the client is back, if it is away at random; else 0
  bool alone = true;  // no lower work is in flight or let go
  Duration best_slack;  // at the best moment of a request; `slack` or less: no moment is known to be better
  Duration follows;          // lower work from one launch by chance, or exception, to the next; the mean of late
  Duration exception_takes;  // what an exception would make the request lose; 0: no launch waits for an exception
  Duration deepest;   // the most lower work in flight at a price of 1, if that is more than kDeepestCredit
  Duration depth;     // the most lower work in flight
  int64_t price_x1024 = 1024;  // what requests lose of the delay that is foretold; 1024 at most
  Duration priced;             // the delay up to which the price is known; delay beyond it counts in full
};

enum class Verdict : uint8_t { kWaits, kGoes, kByChance, kException };

// What a launch costs: its mean, and what it does not exceed in 19 of 20 cases.
struct Cost {
  Duration mean, p95;
};

// How much later the request ends if a launch of this cost goes too.
Duration delay(const Moment& moment, Duration cost);
Verdict admit(const Moment& moment, const Cost& cost);
// The chance that the launch costs more than `than`, times 1000; 0: almost surely not.
int64_t more_x1000(const Cost& cost, Duration than);
// The chance that the client is back within this time, times 1000.
int64_t chance_x1000(const Moment& moment, Duration within);
// The lower work that may go without an exception. May be negative.
Duration room(const Moment& moment);

// The most lower work in flight at once: what the client finds there when it comes back delays it.
Duration depth(const Moment& moment);

// Only a few launches of a thousand with this mean and this p95 take longer.
Duration reckoned_length(Duration p95, Duration mean);
inline Duration almost_surely(const Cost& cost) { return reckoned_length(cost.p95, cost.mean); }

// A low client, as far as its credit depends on it.
struct LowHost {
  Duration reaction;  // from a decision to its launch
  Duration usual_launch;
  Duration beyond_charge;  // the most by which a recent launch may take longer than its charge
};
// How long a credit may stand while the room falls with time.
Duration credit_holds(Duration room);
// The credit that keeps the device busy, within this room and this depth.
Duration busy_credit(const LowHost& host, Duration room, Duration depth);
// The credit of a client that has `in_flight` on the device and shares the room with `sharers` clients, itself
// included. 0: nothing may go.
Duration credit(Duration room, Duration depth, int64_t sharers, const LowHost& host,
                Duration in_flight);

}  // namespace lull::policies
