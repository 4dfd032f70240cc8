// The constants of guarded's rule, each with its reason. What is measured, and how precisely,
// stands beside each measurement in observe/ and model/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies::tuning {

// ---- credit -------------------------------------------------------------------------------------
// Three launches, or five reactions of the low host, keep a device busy. More cannot be called
// back.
inline constexpr int64_t kUnits = 3, kReactions = 5;
inline constexpr Duration kLeastCredit{200'000}, kMostCredit{1'000'000};
// What is in flight when the important client is back delays it, and the mean budget shall bear
// eight such: where it holds little, one launch at a time; where it holds much, more than 1 ms, so
// that the device does not run empty while the low host pauses. Of 16 ms each error of the slack
// cost a whole limit: so 4 ms, or where an eighth of the limit is more, that; where half of what the mean
// budget may hold is there, half of the slack and half of what a request may lose. Of what costs a part of
// its length only, so much more.
inline constexpr int64_t kBorne = 8;
inline constexpr Duration kDeepestCredit{4'000'000};
// While the important client has nothing on the device, whatever is known of its pauses: ten short
// kernels.
inline constexpr Duration kIdleCredit{50'000};
// A credit is told in steps, so that it is not published anew with every event.
inline constexpr int64_t kCreditStep = 4'096, kIdleStep = 1'024;
inline constexpr int64_t kReactionPreset = 15'000;  // a futex wake-up, docs/hardware
inline constexpr Duration kMostReaction{1'000'000};
inline constexpr int64_t kChargesRemembered = 256;  // launches
inline constexpr Duration kLookAgain{100'000};      // while a launch waits: slack comes with time
// While slack goes with time and a credit stands for a launch that may come: when an eighth of the room is gone.
inline constexpr int64_t kHeldPart = 8;
inline constexpr Duration kLeastHeld{5'000};

// A client whose requests arrive at random, at a fifth of what it can serve, pauses for longer than
// so many of them once in 3,000 pauses.
inline constexpr int64_t kAtWork = 32;
inline constexpr Duration kAtWorkAtMost{60'000'000'000};

// ---- mean budget --------------------------------------------------------------------------------
// Of what is allowed, so much is earned where requests are compared with undisturbed ones, less by
// the error of their mean; and where only waits say what was lost.
inline constexpr int64_t kEarned_x1000 = 960, kLeastEarned_x1000 = 600;
inline constexpr int64_t kEarnedUncompared_x1000 = 870;
// It holds what two exceptions take that come as often as p99 allows, a hundred requests apart, and
// the rest of the allowance between them.
inline constexpr int64_t kMostHeld = 280, kMostOwed = 64;  // requests' allowances
// While own work is on the device, lower work costs its whole length; in a pause only what is
// longer than the pause. So a little is kept for pauses, and more within an exception.
inline constexpr int64_t kKeptForPauses = 8, kKeptByException = 16;
// What no launch waits for any more is forgotten in about so many requests.
inline constexpr int64_t kWantedRemembered = 8;
// Owing so much, nobody goes at all.
inline constexpr int64_t kOverdrawn = 4;

// ---- error budget -------------------------------------------------------------------------------
// Of a thousand requests ten may be over. One is kept back for those that are over by themselves,
// one for chance.
inline constexpr int64_t kExceptions_x1000 = 8;
// Of what exceptions may take an unmeant one takes one and a half: the next like it is not far.
inline constexpr int64_t kUnmeantTakes_x1000 = 1'500;
// Of p99's limit at least so small a part is kept free, else the largest error of late, of which half is forgotten in
// 355 requests. Beside it a little is: what a request lost is seen a little too small, and one that loses the whole
// limit is over.
inline constexpr int64_t kKeptFree = 8, kUnseen = 32, kErrorsRemembered = 512;
// An error counts as so many limits at most: it may be the host's own pause, or due to who is above this client.
inline constexpr int64_t kMostError = 2;
// While so many requests are owed less is let go, and while so many are nothing: however often errors come, ten of any
// thousand requests are over at most, and thirteen where errors begin once eight exceptions have gone.
inline constexpr int64_t kTrustsAll_x1000 = 3'000, kTrustsNothing_x1000 = 6'000;
// For an exception the slack is nearly the largest where no more than so large a part is missing. By chance a launch
// goes where it is at most so many times as likely to be too long as at the best moment. A slack that is not seen any
// more is not waited for: by so large a part a request the largest seen is forgotten.
inline constexpr int64_t kNearBestPart = 8, kGoodChance = 2, kBestRemembered = 16;
// What an exception takes is the mean of about so many: it depends on where in its work the low program is. By so large
// a part a request it is taken to be more, so that one which was cut short is no reason to have no other: by 1 % between
// two exceptions, 125 requests apart.
inline constexpr int64_t kTakenRemembered = 4, kTakenForgotten = 16'384;
// Within an exception at most four times what the client has left to do is in flight.
inline constexpr int64_t kDeepest_x4 = 16;
// An exception leaves at most so large a part of the slack, and of what the next request may lose. Of both, so large a
// part may be in flight where the mean budget is ample.
inline constexpr int64_t kLeftPart = 2;
// One is saved, and little more: an exception may make a second request be over.
inline constexpr int64_t kSaved_x1000 = 1'100, kOwed_x1000 = 10'000;
inline constexpr size_t kOversRemembered = 12;  // more can be owed only where it is owed in parts

// The watchdog makes fewer requests be over than p99 allows, also where the host pauses between them for as
// long as they take; unless that takes so many times as long as it is to hold a launch.
inline constexpr int64_t kRequestsAHold = 256, kLongestHold = 10;

// ---- price --------------------------------------------------------------------------------------
// The second largest of so many: about two requests in a hundred cost more. Until so many have been
// seen the largest, and half as much again, as soon as there are eight.
inline constexpr size_t kPricesRemembered = 96, kPricesPreset = 8;
// A request with lower work beside it from begin to end is foretold to lose all of its time: the
// least price is far below the bound.
inline constexpr int64_t kLeastPrice_x1e6 = 4'000;
// The price is believed of delays that are longer by so large a part than any that was foretold, so
// the longest grows by factors. Without that, a harmless gate was open after a thousand requests only.
inline constexpr int64_t kBelievedBeyond = 4;
// Where so large a part of what is foretold does not come, kernels run together.
inline constexpr int64_t kTogetherPart = 8;
// Of the limit, or of the deepest credit: less than that foretold says little.
inline constexpr int64_t kTellingPart = 2;

// ---- undisturbed requests -----------------------------------------------------------------------
inline constexpr uint32_t kWellKnown = 8;  // so many tell how much requests vary
// By lot, one in so many: until that is known; while their mean is not known within a quarter of
// the allowance; then.
inline constexpr uint32_t kKeptFirst = 2, kKeptOften = 8, kKeptSeldom = 256;
// One that was disturbed all the same, by what was in flight or what the engine let go, but lost at
// most so small a part of the allowance by its waits, is as good, less that.
inline constexpr int64_t kAsGoodPart = 8;
// A third of all at most, however strange they are.
inline constexpr uint32_t kMayKeep = 32;

}  // namespace lull::policies::tuning
