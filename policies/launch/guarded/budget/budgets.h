// What an important client may yet lose: in the mean, as time, and at p99, as requests that may be
// over their limit. Kept by a RequestGuard. Pure.
//
//   mean    each request: + allowance x what is earned of it, - what others cost
//           owing: nobody goes
//   error   each request: + 8 of 1000, - 1 if it was over, - 1.5 if nothing meant it to be
//           below 1: no exception; owing 3 to 6: less goes, and then nothing
//   margin  the most that a request of late lost beyond what it was meant to
//           so much of the limit is kept free, and what the limit does not hold, of the slack
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
  // What may be spent so that so many requests' allowances are left.
  Duration beyond(int64_t kept) const {
    return {std::max<int64_t>(0, left_ns_ - kept * allowance_ns_)};
  }
  // Half of what it may hold.
  bool is_ample() const { return left_ns_ >= tuning::kMostHeld * allowance_ns_ / 2; }
  bool overdrawn() const { return left_ns_ < -tuning::kOverdrawn * allowance_ns_; }
  // A unit of this cost is waited for: the budget can hold it, as long as that is said again.
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

// What a request loses of each ns that is foretold: 1 where the device runs one kernel at a time
// and all that is foretold comes true; less where kernels run together, or slack is more than is
// known. What a request loses beyond that was not foretold, and says nothing of what was. Of the
// last requests it is the second largest, and it is known only of delays that are no longer than
// theirs. Until enough are known it is the largest and half as much again; until eight are, it is 1.
class Price {
 public:
  // A request was foretold to lose so much, and has lost `lost`, of which no more than that counts.
  void learn(Duration foretold, Duration lost) { remember({foretold, lost, spread_}); }
  // Slow requests take so much longer by themselves. What was taken for a loss until then was none.
  void slow_ones(Duration spread) {
    if (std::exchange(spread_, spread) >= spread) return;
    for (Seen& seen : seen_) seen.by_itself = std::max(seen.by_itself, spread);
    tell();
  }
  int64_t x1024() const { return price_x1e6_ * 1024 / 1'000'000; }
  // Some of what is foretold does not come: the device runs kernels together.
  bool is_low() const { return price_x1e6_ < kPreset_x1e6 - kPreset_x1e6 / tuning::kTogetherPart; }
  // Of delays that are longer by more than a quarter than any that was foretold it says nothing.
  Duration known_to() const { return known_to_; }

  bool operator==(const Price&) const = default;

 private:
  static constexpr int64_t kPreset_x1e6 = 1'000'000;
  struct Seen {
    Duration foretold;  // 0: nothing
    Duration lost;
    Duration by_itself;  // ... of it, so much does not count
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

  size_t presets_ = tuning::kPricesPreset;  // of these, until as many requests have been seen
  std::deque<Seen> seen_ = std::deque<Seen>(tuning::kPricesPreset);
  int64_t price_x1e6_ = kPreset_x1e6;
  Duration known_to_;
  Duration spread_;
};

class RequestBudget {
 public:
  // A request has ended, and others have made it be over, or not. `meant`: something was let go
  // that could make it be over; `requests`: so many of the program's may be, at least 1. `beyond`: what it lost beyond
  // the limit of a program whose requests all take the same.
  void ended(bool over, bool meant, int64_t requests = 1, Duration beyond = Duration{INT64_MAX}) {
    if (over) over_.push_back({beyond, spend(requests * (meant ? 1'000 : tuning::kUnmeantTakes_x1000))});
    earn();
    while (!over_.empty() && (over_.front().takes_x1000 == 0 || over_.size() > tuning::kOversRemembered))
      over_.pop_front();
  }
  // It has lost so much more than it should have.
  void missed(Duration error, Duration limit) {
    const int64_t forgotten = (margin_.ns + tuning::kErrorsRemembered - 1) / tuning::kErrorsRemembered;
    margin_ = std::min(std::max(margin_ - Duration{forgotten}, error), Duration{tuning::kMostError * limit.ns});
  }
  // Slow requests take so much longer by themselves: those that lost no more than that beyond such a limit were not
  // over, and what is owed for them yet is given back. 0: that is not known any more.
  void slow_ones(Duration spread) {
    if (std::exchange(spread_, spread) > spread && spread.ns == 0) over_.clear();
    std::erase_if(over_, [&](const Over& was) {
      if (was.beyond > spread) return false;
      left_x1000_ = std::min(left_x1000_ + was.takes_x1000, tuning::kSaved_x1000);
      return true;
    });
  }
  // An exception may go.
  bool is_ample() const { return left_x1000_ >= 1'000; }
  // Requests go on otherwise: nothing is owed, and no error is left.
  void forgive() { forgive_down_to(0); }
  // What caused the errors is known from here on: as much goes as before them. Three may stay owed: they were over.
  void forgive_errors() { forgive_down_to(tuning::kTrustsAll_x1000); }
  // What it holds, times 1000. `uncounted` that are under way may be over and are not counted yet.
  int64_t left_x1000(int64_t uncounted) const { return left_x1000_ - 1'000 * uncounted; }
  // Of the limit, so much is meant to be lost: all but what is kept free. Less than nothing: only slack takes errors so
  // large.
  Duration meant(Duration limit) const {
    return limit - std::max(margin_ + Duration{limit.ns / tuning::kUnseen}, Duration{limit.ns / tuning::kKeptFree});
  }
  // Of the limit, what is aimed at; and of the slack, what is believed in: the less the more is owed.
  Duration aimed(Duration limit) const { return trusted(std::max(Duration{}, meant(limit))); }
  Duration believed(Duration slack, Duration limit) const {
    const Duration sure = slack + std::min(Duration{}, meant(limit));
    return sure.ns > 0 ? trusted(sure) : sure;
  }

  bool operator==(const RequestBudget&) const = default;

 private:
  // What is owed yet for a request that was over: the oldest is paid first.
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
  // How much was taken.
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
