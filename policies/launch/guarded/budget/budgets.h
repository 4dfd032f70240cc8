// What an important client may yet lose: time in the mean, and at p99 requests that may be over their limit. Kept by a
// RequestGuard. Pure.
//
//   mean    each request: + the share of its allowance that it earns, - what others cost
//           owing more than 4 allowances: nobody goes
//   error   each request: + 8 of 1000, - 1 if it was over, - 1.5 if nothing meant it to be
//           below 1: no exception; owing 3 to 6: less goes, and then nothing
//   margin  the most that a request of late lost beyond what it was meant to lose
//           it is kept free of the limit, and the part that the limit does not hold, of the slack
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "policies/launch/guarded/second_largest.h"
#include "policies/launch/guarded/tuning.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class MeanBudget {
 public:
  // `allowance`: what one request may lose.
  void earn(Duration earned, Duration allowance) {
    allowance_ns_ = std::max<int64_t>(1, allowance.ns);
    left_ns_ += earned.ns;
    wanted_ns_ -= wanted_ns_ / tuning::kWantedRemembered;
    bound();
  }
  void cost(Duration cost) {
    left_ns_ -= cost.ns;
    bound();
  }
  // What may be spent if `kept` requests' allowances must be left.
  Duration beyond(int64_t kept) const {
    return {std::max<int64_t>(0, left_ns_ - kept * allowance_ns_)};
  }
  // At least half of what the budget may hold is there.
  bool is_ample() const { return left_ns_ >= tuning::kMostHeld * allowance_ns_ / 2; }
  bool overdrawn() const { return left_ns_ < -tuning::kOverdrawn * allowance_ns_; }
  // A launch of this cost waits. The budget may hold a quarter more than that, as long as this is said again and again.
  void save_for(Duration cost) { wanted_ns_ = std::max(wanted_ns_, cost.ns + cost.ns / 4); }
  void spent() { wanted_ns_ = 0; }
  Duration wanted() const { return {wanted_ns_}; }
  Duration left() const { return {left_ns_}; }

  bool operator==(const MeanBudget&) const = default;

 private:
  void bound() {
    left_ns_ = std::clamp(left_ns_, -tuning::kMostOwed * allowance_ns_,
                          std::max(tuning::kMostHeld * allowance_ns_, wanted_ns_));
  }

  int64_t left_ns_ = 0;
  int64_t allowance_ns_ = 1;
  int64_t wanted_ns_ = 0;
};

// The share of a foretold delay that requests really lose. It is 1 where the device runs one kernel at a time and all
// that is foretold comes true. It is less where kernels run together, or where there is more slack than is known. A
// loss beyond what was foretold does not count: it came from something that was not foretold. The price is the second
// largest share of the last 96 requests, and is known only of delays at most a quarter longer than theirs. Until 96 are
// known it is the largest share and half as much again. Until eight are known it is 1.
class Price {
 public:
  // A request was foretold to lose `foretold`, and has lost `lost`. At most `foretold` of it counts.
  void learn(Duration foretold, Duration lost) { remember({foretold, lost, spread_}); }
  // Slow requests take `spread` longer by themselves. When it grows, earlier requests lost less than they seemed to.
  void slow_ones(Duration spread) {
    if (std::exchange(spread_, spread) >= spread) return;
    for (Seen& seen : seen_) seen.by_itself = std::max(seen.by_itself, spread);
    tell();
  }
  int64_t x1024() const { return price_x1e6_ * 1024 / 1'000'000; }
  // Part of what is foretold does not come: the device runs kernels together.
  bool is_low() const { return price_x1e6_ < kPreset_x1e6 - kPreset_x1e6 / tuning::kTogetherPart; }
  // The price says nothing of delays longer than this: a quarter more than the longest that was foretold.
  Duration known_to() const { return known_to_; }

  bool operator==(const Price&) const = default;

 private:
  static constexpr int64_t kPreset_x1e6 = 1'000'000;
  struct Seen {
    Duration foretold;  // 0: nothing
    Duration lost;
    Duration by_itself;  // the part of `lost` that does not count
    bool operator==(const Seen&) const = default;
  };
  static int64_t price_x1e6_of(const Seen& seen) {
    if (seen.foretold.ns == 0) return kPreset_x1e6;
    const Duration lost = seen.lost - std::clamp(seen.lost, Duration{}, seen.by_itself);
    return std::clamp(lost.ns * 1'000 / std::max<int64_t>(1, seen.foretold.ns / 1'000), tuning::kLeastPrice_x1e6,
                      kPreset_x1e6);
  }
  void remember(const Seen& seen) {
    if (presets_ > 0 || seen_.size() == tuning::kPricesRemembered) seen_.pop_front();
    if (presets_ > 0) presets_ -= 1;
    seen_.push_back(seen);
    tell();
  }
  void tell() {
    const int64_t largest = price_x1e6_of(std::ranges::max(seen_, {}, price_x1e6_of));
    const bool enough = seen_.size() == tuning::kPricesRemembered;
    price_x1e6_ = enough ? second_largest(seen_, price_x1e6_of)
                         : std::min(kPreset_x1e6, largest * 3 / 2);
    const Duration longest = std::ranges::max(seen_, {}, &Seen::foretold).foretold;
    known_to_ = longest + Duration{longest.ns / tuning::kBelievedBeyond};
  }

  size_t presets_ = tuning::kPricesPreset;  // entries at the front of seen_ that no request has replaced yet
  std::deque<Seen> seen_ = std::deque<Seen>(tuning::kPricesPreset);
  int64_t price_x1e6_ = kPreset_x1e6;
  Duration known_to_;
  Duration spread_;
};

class RequestBudget {
 public:
  // A request has ended. `over`: others made it be over its limit. `meant`: something was let go that could make it be
  // over. `requests`: how many of the program's requests may be over with it, at least 1. `beyond`: what it lost beyond
  // the limit without the spread of slow requests.
  void ended(bool over, bool meant, int64_t requests = 1, Duration beyond = Duration{INT64_MAX}) {
    if (over) over_.push_back({beyond, spend(requests * (meant ? 1'000 : tuning::kUnmeantTakes_x1000))});
    earn();
    while (!over_.empty() && (over_.front().takes_x1000 == 0 || over_.size() > tuning::kOversRemembered))
      over_.pop_front();
  }
  // A request lost `error` more than it should have.
  void missed(Duration error, Duration limit) {
    const int64_t forgotten = (margin_.ns + tuning::kErrorsRemembered - 1) / tuning::kErrorsRemembered;
    margin_ = std::min(std::max(margin_ - Duration{forgotten}, error), Duration{tuning::kMostError * limit.ns});
  }
  // Slow requests take `spread` longer by themselves; 0: not known any more. Requests whose `beyond` is no more than
  // the spread were not over: what is still owed for them is given back.
  void slow_ones(Duration spread) {
    if (std::exchange(spread_, spread) > spread && spread.ns == 0) over_.clear();
    std::erase_if(over_, [&](const Over& was) {
      if (was.beyond > spread) return false;
      left_x1000_ = std::min(left_x1000_ + was.takes_x1000, tuning::kSaved_x1000);
      return true;
    });
  }
  // The budget holds an exception.
  bool is_ample() const { return left_x1000_ >= 1'000; }
  // Requests are different from now on: what is owed is forgotten, and so is the margin.
  void forgive() { forgive_down_to(0); }
  // What caused the errors is known from now on: as much goes as before them. Three requests may stay owed: they were
  // over.
  void forgive_errors() { forgive_down_to(tuning::kTrustsAll_x1000); }
  // What the budget holds, times 1000. `uncounted`: requests under way that may be over and are not counted yet.
  int64_t left_x1000(int64_t uncounted) const { return left_x1000_ - 1'000 * uncounted; }
  // The part of the limit that may be lost on purpose: all but what is kept free. Negative where errors are larger than
  // the limit: then the slack must take the rest of them.
  Duration meant(Duration limit) const {
    return limit - std::max(margin_ + Duration{limit.ns / tuning::kUnseen}, Duration{limit.ns / tuning::kKeptFree});
  }
  // The part of the limit that is aimed at, and the part of the slack that is believed: the more is owed, the less.
  Duration aimed(Duration limit) const { return trusted(std::max(Duration{}, meant(limit))); }
  Duration believed(Duration slack, Duration limit) const {
    const Duration sure = slack + std::min(Duration{}, meant(limit));
    return sure.ns > 0 ? trusted(sure) : sure;
  }

  bool operator==(const RequestBudget&) const = default;

 private:
  // What is still owed for a request that was over. The oldest is paid first.
  struct Over {
    Duration beyond;
    int64_t takes_x1000;
    bool operator==(const Over&) const = default;
  };
  void earn() {
    left_x1000_ = std::min(left_x1000_ + tuning::kExceptions_x1000, tuning::kSaved_x1000);
    int64_t paid_x1000 = tuning::kExceptions_x1000;
    for (Over& was : over_) {
      const int64_t part = std::min(was.takes_x1000, paid_x1000);
      was.takes_x1000 -= part;
      paid_x1000 -= part;
    }
  }
  // Returns how much was taken.
  int64_t spend(int64_t cost_x1000) {
    const int64_t spent = std::min(cost_x1000, left_x1000_ + tuning::kOwed_x1000);
    left_x1000_ -= spent;
    return spent;
  }

  void forgive_down_to(int64_t owed_x1000) {
    left_x1000_ = std::max(-owed_x1000, left_x1000_);
    over_.clear();
    margin_ = {};
  }
  Duration trusted(Duration of) const {
    constexpr int64_t kNone = tuning::kTrustsNothing_x1000, kAll = tuning::kTrustsAll_x1000;
    return {of.ns * std::clamp<int64_t>(kNone + left_x1000_, 0, kNone - kAll) / (kNone - kAll)};
  }

  std::deque<Over> over_;
  Duration spread_;
  Duration margin_;
  int64_t left_x1000_ = 1'000;  // for exceptions
};

}  // namespace lull::policies
