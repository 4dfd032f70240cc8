// The constants of guarded's rule, each with its reason. A constant of a measurement stands beside that measurement, in
// observe/ and model/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies::tuning {

// ---- credit -------------------------------------------------------------------------------------
// Three launches, or five reactions of the low host, keep a device busy. A larger credit would only let go more work
// that cannot be called back.
inline constexpr int64_t kUnits = 3, kReactions = 5;
inline constexpr Duration kLeastCredit{200'000}, kMostCredit{1'000'000};
// Lower work in flight delays the important client when that client comes back. The mean budget shall bear eight such
// delays. Where it holds little, one launch at a time goes. Where it holds much, more than 1 ms is in flight, so that
// the device does not run empty while the low host pauses.
inline constexpr int64_t kBorne = 8;
// The cap on lower work in flight at a price of 1; a lower price divides it. With 16 ms each error of the slack cost a
// whole limit. An eighth of the aim is the cap where that is more than 4 ms. While the mean budget is at least half
// full, half of the slack and half of what a request may lose may be in flight, if that is more.
inline constexpr Duration kDeepestCredit{4'000'000};
// The credit while no important client has work on the device, whatever is known of the pauses: ten short kernels.
inline constexpr Duration kIdleCredit{50'000};
// Credits change in steps, so that not every event publishes another credit.
inline constexpr int64_t kCreditStep = 4'096, kIdleStep = 1'024;
inline constexpr int64_t kReactionPreset = 15'000;  // a futex wake-up, docs/hardware
inline constexpr Duration kMostReaction{1'000'000};
inline constexpr int64_t kChargesRemembered = 256;  // launches
// A launch that waits is looked at again after this long: slack comes with time.
inline constexpr Duration kLookAgain{100'000};
// While slack falls with time, a credit stands until an eighth of the room is gone. Then the gate is told a new one.
inline constexpr int64_t kCreditPart = 8;
inline constexpr Duration kLeastHeld{5'000};

// A client counts as at work for 32 times a request's length after its last launch. Random pauses at a fifth of the
// load, five requests in the mean, are longer than that once in 600 pauses.
inline constexpr int64_t kAtWork = 32;
inline constexpr Duration kAtWorkAtMost{60'000'000'000};

// ---- mean budget --------------------------------------------------------------------------------
// The share of its allowance that a request earns. Where requests are compared with undisturbed ones it is 0.96 less
// the error of the undisturbed mean, as a share of the allowance, and 0.6 at least. Else only waits say what was lost.
inline constexpr int64_t kEarned_x1000 = 960, kLeastEarned_x1000 = 600;
inline constexpr int64_t kEarnedUncompared_x1000 = 870;
// The mean budget holds at most 280 requests' allowances. That is enough for two exceptions, a hundred requests apart
// as p99 allows, and for the other delays between them. It owes 64 allowances at most.
inline constexpr int64_t kMostHeld = 280, kMostOwed = 64;  // requests' allowances
// While own work is on the device, lower work costs its whole length. In a pause it costs only what is longer than the
// pause. So eight allowances are kept for pauses, and sixteen within an exception.
inline constexpr int64_t kKeptForPauses = 8, kKeptByException = 16;
// The mean budget saves for a launch that waits. Once no such launch waits any more, its cost is forgotten in about
// eight requests.
inline constexpr int64_t kWantedRemembered = 8;
// Nobody goes while the mean budget owes more than four requests' allowances.
inline constexpr int64_t kOverdrawn = 4;

// ---- error budget -------------------------------------------------------------------------------
// p99 allows ten of a thousand requests to be over. Eight are earned: one is kept back for a request that is over by
// itself, one for chance.
inline constexpr int64_t kExceptions_x1000 = 8;
// An unmeant request takes one and a half requests of the error budget: what caused it may soon cause another.
inline constexpr int64_t kUnmeantTakes_x1000 = 1'500;
// An eighth of p99's limit is kept free, or the margin and a 32nd if these are more. The margin is the largest error of
// late; half of it is forgotten in 355 requests. The 32nd is there because a request that loses its whole limit is
// over, and what it lost is seen a little too small.
inline constexpr int64_t kKeptFree = 8, kUnseen = 32, kErrorsRemembered = 512;
// An error counts as two limits at most: a pause of the host's own, or a client above, may have caused it.
inline constexpr int64_t kMostError = 2;
// While more than three requests are owed, less is let go; while six are owed, nothing is. So however often errors
// come, of any thousand requests ten are over at most, eleven where errors exceed slack and limit together, and
// thirteen or fourteen where errors begin once the exceptions of nearly a thousand requests have gone.
inline constexpr int64_t kTrustsAll_x1000 = 3'000, kTrustsNothing_x1000 = 6'000;
// An exception goes where at most an eighth of the largest slack is missing. A launch by chance goes where it is at
// most twice as likely to be too long as at the best moment. The largest slack seen is forgotten by a sixteenth a
// request, so that nobody waits for a slack that does not come any more.
inline constexpr int64_t kNearBestPart = 8, kGoodChance = 2, kBestRemembered = 16;
// What an exception takes depends on where in its work the low program is: so it is the mean of about four exceptions.
// The mean grows by a 16,384th a request, that is by 1 % in the 125 requests between two exceptions. So one exception
// that was cut short does not rule out exceptions for good.
inline constexpr int64_t kTakenRemembered = 4, kTakenForgotten = 16'384;
// Within an exception, up to four times what the client has left to do may be in flight.
inline constexpr int64_t kDeepest_x4 = 16;
// An exception holds the client for what a hundred requests may lose at most, since p99 allows one in a hundred, and
// for a second at most, however long requests are. Meanwhile lower work may pause for an eighth of what the exception
// may yet take. A hold is planned once in a hundred requests at most: where no lower work comes after all, it costs the
// client a launch that waits for a moment.
inline constexpr int64_t kHeldPart = 8, kHeldAtMost = 100;  // requests' allowances
inline constexpr Duration kHeldForAtMost{1'000'000'000};
// An exception leaves on the device at most half of the slack and half of what the next request may lose, beside the
// pause between them. While the mean budget is ample, the same two halves may be in flight at any time.
inline constexpr int64_t kLeftPart = 2;
// The error budget saves one request and little more: an exception may make a second request be over.
inline constexpr int64_t kSaved_x1000 = 1'100, kOwed_x1000 = 10'000;
inline constexpr size_t kOversRemembered = 12;  // more can be owed only where some of them are partly paid

// A launch that the watchdog lets go may make a request be over. One launch in 256 requests' time makes fewer be over
// than p99 allows, even where the host pauses between requests for as long as they take. But no launch is held for
// more than ten times the user's setting.
inline constexpr int64_t kRequestsAHold = 256, kLongestHold = 10;

// ---- price --------------------------------------------------------------------------------------
// The price is the second largest share of 96 requests: about two requests in a hundred cost more. While fewer are
// known, but at least eight, it is the largest share and half as much again. Of 192 requests, two programs had 0.93 and
// 0.86 of low work in 1,000 requests instead of 0.96 and 0.93.
inline constexpr size_t kPricesRemembered = 96, kPricesPreset = 8;
// A request with lower work beside it from begin to end is foretold to lose all of its time: so the least price is far
// below the bound.
inline constexpr int64_t kLeastPrice_x1e6 = 4'000;
// The price is believed of delays up to a quarter longer than any that was foretold, so that the longest one grows by
// factors. Without that, a harmless gate was open only after a thousand requests.
inline constexpr int64_t kBelievedBeyond = 4;
// Kernels run together where more than an eighth of what is foretold does not come. With a half, one program had 0.83
// of low work under MPS instead of 0.95.
inline constexpr int64_t kTogetherPart = 8;
// A request teaches the price if half of the limit, or of the deepest credit, was foretold: less says little.
inline constexpr int64_t kTellingPart = 2;

// ---- undisturbed requests -----------------------------------------------------------------------
inline constexpr uint32_t kWellKnown = 8;  // undisturbed requests that tell how much requests vary
// By lot one request in 2 is kept undisturbed until that is known; one in 8 until their mean is known within a quarter
// of the allowance; then one in 256. Each costs lower work the pause before it, too: one in 128 cost 0.6 % of the low
// work beside requests that arrive at random.
inline constexpr uint32_t kKeptFirst = 2, kKeptOften = 8, kKeptSeldom = 256;
// Work in flight, or work that the engine let go, may disturb a request that is kept. The request still counts if its
// waits say that it lost at most an eighth of its allowance; what it lost is taken off.
inline constexpr int64_t kAsGoodPart = 8;
// At most a third of all requests are kept, however strange they are.
inline constexpr uint32_t kMayKeep = 32;

}  // namespace lull::policies::tuning
