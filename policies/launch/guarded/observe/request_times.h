// How long undisturbed requests take, and so what others cost a request: its time less that. Right in the mean however
// the device is shared. Kept by a RequestGuard. Pure, integers only.
//
// A lot decides which requests are kept undisturbed: requests that nobody happened to disturb are not like the others.
// Two requests in a row that are unlike what is known begin a new phase of the program: what was known is forgotten. It
// is also forgotten when three in a row take less than any before: then those before were not undisturbed.
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
  // Work that nobody reported may have delayed requests until now. The slow ones are forgotten; all, if most were slow.
  void forget_slow();
  // This request was undisturbed. `kept`: because the lot fell on it. Not `surely`: others were in its way, but its
  // waits say that it lost next to nothing.
  void undisturbed(Duration took, bool kept, bool surely = true);
  // This request was disturbed, and its waits say that others cost it `waits`. Returns what they really cost it. That
  // includes how far the request is off the mean by itself, and may be negative: so errors cancel out.
  Duration cost(Duration took, Duration waits);

  bool known() const { return kept_.size() >= kEnough; }
  // It is also known how much they vary.
  bool well_known() const;
  Duration usual() const { return usual_; }
  // How much longer than usual slow requests take by themselves: the second slowest of late.
  Duration spread() const {
    return well_known() ? std::max(Duration{}, slow_ - usual_) : Duration{};
  }
  Duration error() const;  // of `usual`; one sigma
  // Draws whether the request after the next is kept undisturbed; called once a request. Many are kept while the mean
  // is not known within `precision`; few once it is, and few where requests cannot be compared (not `whole`).
  bool draw(Duration precision, bool whole);

  bool operator==(const RequestTimes&) const = default;

 private:
  static constexpr size_t kEnough = 3;
  void learn();
  Duration most_off() const;
  bool strange(Duration off);

  std::deque<int64_t> kept_;    // what the last kept requests took, ns
  std::deque<int64_t> lately_;  // what the last undisturbed requests took, kept or not
  Duration usual_, deviation_, slow_;
  uint32_t strange_ = 0;  // strange requests in a row
  uint32_t shorter_ = 0;  // kept requests in a row that took less than shortest_
  Duration shortest_;     // the least of those known before them
  Duration odd_;          // what the last strange request took, if it was undisturbed
  uint32_t first_ = 0;    // requests at the beginning that did not count; kFirst: all count now
  bool doubtful_ = false;  // some requests since the restart were not surely undisturbed
  Duration last_;  // what the last request took that was kept, or undisturbed while nothing was known
  uint32_t lot_ = 1;
};

}  // namespace lull::policies
