// What an important client may yet lose: in the mean, as time, and at p99, as requests that may be
// over their limit. Kept by a RequestGuard. Pure.
//
//   mean    each request: + allowance x what is earned of it, - what others cost
//           owing: nobody goes
//   error   each request: + 8 of 1000, - 1 if it was over, - 1.5 if nothing meant it to be
//           below 1: no exception
//   unmeant each request: + 8 of 1000, - 2 if it was over and nothing meant it to be
//           owing: less of the limit is aimed at, and of the slack believed
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
// known; more where something is not foretold. Of the last requests it is the second largest, and
// it is known only of delays that are no longer than theirs. Until enough are known it is the
// largest and half as much again, which by itself raises it to 1 at most; until eight are, it is 1.
class Price {
 public:
  // A request was foretold to lose so much, and has lost `lost`; `meant`: something let go may have cost it more
  // than was foretold.
  void learn(Duration foretold, Duration lost, bool meant) {
    remember({foretold, lost, meant ? foretold : lost});
  }
  // So much longer slow requests take by themselves: that is no loss, nor was it.
  void slow_ones(Duration spread) {
    if (std::exchange(spread_, spread) != spread) tell();
  }
  // A request says nothing of it, though both budgets are there. Above 1 it is believed less and less: what
  // it keeps from going cannot show that it has fallen.
  void doubt() {
    if (price_x1e6_ > kPreset_x1e6) remember({});
  }
  int64_t x1024() const { return price_x1e6_ * 1024 / 1'000'000; }
  // Of delays that are longer by more than a quarter than any that was foretold it says nothing.
  Duration known_to() const { return known_to_; }

  bool operator==(const Price&) const = default;

 private:
  static constexpr int64_t kPreset_x1e6 = 1'000'000;
  struct Seen {
    Duration foretold;  // 0: nothing
    Duration lost;
    Duration most;  // ... of what was foretold
    bool operator==(const Seen&) const = default;
  };
  int64_t price_x1e6_of(const Seen& seen) const {
    if (seen.foretold.ns == 0) return kPreset_x1e6;
    const Duration lost = seen.lost - std::clamp(seen.lost, Duration{}, spread_);
    return std::clamp(std::min(lost, seen.most).ns * 1'000 / std::max<int64_t>(1, seen.foretold.ns / 1'000),
                      tuning::kLeastPrice_x1e6, tuning::kMostPrice_x1e6);
  }
  void remember(const Seen& seen) {
    if (presets_ > 0 || seen_.size() == tuning::kPricesRemembered) seen_.pop_front();
    if (presets_ > 0) presets_ -= 1;
    seen_.push_back(seen);
    tell();
  }
  void tell() {
    const auto price = [this](const Seen& seen) { return price_x1e6_of(seen); };
    const int64_t largest = price(std::ranges::max(seen_, {}, price));
    const bool enough = seen_.size() == tuning::kPricesRemembered;
    price_x1e6_ = enough ? second_largest(seen_, price)
                         : std::max(largest, std::min(kPreset_x1e6, largest * 3 / 2));
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
  // that could make it be over; `requests`: so many of the program's may be, at least 1. `beyond`: by so much it
  // exceeds its limit and what slow requests take longer by themselves.
  void ended(bool over, bool meant, int64_t requests = 1, Duration beyond = Duration{INT64_MAX}) {
    const Over took{beyond, requests * (meant ? 1'000 : tuning::kUnmeantTakes_x1000),
                    meant ? 0 : requests * tuning::kUnmeantCounts_x1000};
    add(left_x1000_, over ? took.takes_x1000 : 0);
    add(unmeant_x1000_, over ? took.counts_x1000 : 0);
    if (!over) return;
    if (over_.size() == tuning::kOversRemembered) over_.pop_front();
    over_.push_back(took);
  }
  // So much longer slow requests take by themselves: those that lost no more than that were not over.
  void slow_ones(Duration spread) {
    std::erase_if(over_, [&](const Over& was) {
      if (was.beyond > spread) return false;
      back(left_x1000_, was.takes_x1000);
      back(unmeant_x1000_, was.counts_x1000);
      return true;
    });
  }
  // An exception may go, and nothing is owed.
  bool is_ample() const { return std::min(left_x1000_, unmeant_x1000_) >= 1'000; }
  // Requests go on otherwise.
  void forgive() {
    left_x1000_ = std::max<int64_t>(0, left_x1000_);
    forgive_unmeant();
    over_.clear();
  }
  // What made them be over is known from here on.
  void forgive_unmeant() { unmeant_x1000_ = std::max<int64_t>(0, unmeant_x1000_); }
  // What it holds, times 1000. `uncounted` that are under way may be over and are not counted yet.
  int64_t left_x1000(int64_t uncounted) const { return left_x1000_ - 1'000 * uncounted; }
  // Of the limit, what is aimed at: most of it; the less the more is owed.
  Duration aimed(Duration limit) const { return {trusted(limit).ns / 1'000 * tuning::kAim_x1000}; }
  // Of the slack all is believed in, until requests are over.
  Duration trusted(Duration slack) const {
    const int64_t none = tuning::kAimsAtNothing_x1000;
    return {slack.ns * std::clamp<int64_t>(none + unmeant_x1000_, 0, none) / none};
  }

  bool operator==(const RequestBudget&) const = default;

 private:
  static void add(int64_t& balance_x1000, int64_t cost_x1000) {
    balance_x1000 = std::clamp(balance_x1000 + tuning::kExceptions_x1000 - cost_x1000,
                               -tuning::kOwed_x1000, tuning::kSaved_x1000);
  }
  // What is owed of that: the rest has been earned since.
  static void back(int64_t& balance_x1000, int64_t cost_x1000) {
    balance_x1000 = std::min(balance_x1000 + cost_x1000, tuning::kSaved_x1000);
  }

  struct Over {
    Duration beyond;
    int64_t takes_x1000, counts_x1000;
    bool operator==(const Over&) const = default;
  };
  std::deque<Over> over_;

  int64_t left_x1000_ = 1'000;     // for exceptions
  int64_t unmeant_x1000_ = 1'000;  // for requests that are over although nothing meant them to be
};

}  // namespace lull::policies
