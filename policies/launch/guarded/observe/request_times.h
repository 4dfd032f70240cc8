// How long requests take with nobody in their way, and so what others cost one: its time less that.
// Right in the mean however the device is shared. Kept by a RequestGuard. Pure, integers only.
//
// Which requests are kept undisturbed is drawn by lot: those that nobody happened to disturb are
// not like the others. Two in a row that are not what is known of requests are a new phase of the
// program: what was known is forgotten. So it is where three in a row take less than any before: those
// were not undisturbed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "policies/vocabulary.h"

namespace lull::policies {

class RequestTimes {
 public:
  void restart();
  // Work that nobody reported may have delayed those until now: the slow ones are forgotten, and all, if most were slow.
  void forget_slow();
  // Nobody was in the way of this one; `kept`: because the lot fell on it. Not `surely`: others were,
  // but its waits say that it lost next to nothing by them.
  void undisturbed(Duration took, bool kept, bool surely = true);
  // Others were in the way of this one, and its waits say that they cost it `waits`. What they did
  // cost it, how far it is off by itself included: less than nothing too, so that errors cancel
  // out.
  Duration cost(Duration took, Duration waits);

  bool known() const { return kept_.size() >= kEnough; }
  // ... and how much they vary.
  bool well_known() const;
  Duration usual() const { return usual_; }
  // By so much longer than usual the slow ones take by themselves: the second slowest of late.
  Duration spread() const {
    return well_known() ? std::max(Duration{}, slow_ - usual_) : Duration{};
  }
  Duration error() const;  // of `usual`, one sigma
  // Whether the request after the next shall be kept undisturbed; asked once a request. Often while
  // their mean is not known within `precision`; seldom where none can be compared (`whole`).
  bool draw(Duration precision, bool whole);

  bool operator==(const RequestTimes&) const = default;

 private:
  static constexpr size_t kEnough = 3;
  void learn();
  Duration most_off() const;
  bool strange(Duration off);

  std::deque<int64_t> kept_;    // the last ones, ns
  std::deque<int64_t> lately_;  // the last undisturbed ones, kept or not
  Duration usual_, deviation_, slow_;
  uint32_t strange_ = 0;  // requests in a row
  uint32_t shorter_ = 0;  // kept ones in a row, than ...
  Duration shortest_;     // ... all that were known before
  Duration odd_;          // what the one took, if it was undisturbed
  uint32_t first_ = 0;
  bool doubtful_ = false;  // some of the last ones were not surely undisturbed
  Duration last_;  // that was kept, or undisturbed while none was known
  uint32_t lot_ = 1;
};

}  // namespace lull::policies
