// What it costs a client that others have had the device: without MPS a driver gives it to one
// process at a time, and to change it takes as long as many kernels (0.13 ms from a launch on an
// idle H100 to its begin, however long the other process has been through; docs/hardware). Learnt
// from when the client's first work behind that of others is seen complete, less the same behind
// its own, so that nothing need be known of the device. Pure.
//
//   others         ...ended|
//   client                 |launched         done|
//                          |--- cost --|- work --|
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "policies/vocabulary.h"

namespace lull::policies {

class SwitchCost {
 public:
  // A unit of others has come to the device; so many are through, and whether any is left there.
  void others_came() { behind_ = true; }
  void others_ended(uint32_t units, bool left, Instant now) {
    if (ahead_ > 0) {
      ahead_ = left ? ahead_ - std::min(units, ahead_) : 0;
      ended_ = now;
    } else if (began_ == kNever) {
      ended_ = now;
    } else {
      overtaken_ = overtaken_ || units > 0;
    }
  }
  // The client has work on the device from here on, and had none; so many units of others are there.
  void own_begins(Instant at, uint32_t others) {
    began_ = at;
    ahead_ = others;
    began_behind_ = behind_;
    overtaken_ = false;
  }
  // Work of it is through that takes so long by itself; whether others have work there.
  void own_done(Duration work, bool others, Instant now) {
    if (began_ != kNever && ahead_ == 0 && !overtaken_ && work.ns > 0) {
      const Instant from = began_behind_ ? std::max(began_, ended_) : began_;
      (began_behind_ ? behind_others_ : behind_own_).add((now - from - work).ns);
      learn();
    }
    began_ = kNever;
    ahead_ = 0;
    if (!others) behind_ = false;
  }

  // The next own work comes behind that of others.
  bool behind() const { return behind_; }
  bool known() const { return behind_others_.known() && behind_own_.known(); }
  // 0 where the device runs several processes at once, or as long as too little was seen.
  Duration cost() const { return cost_; }

 private:
  // Less is how precisely it is seen, no switch.
  static constexpr Duration kLeast{20'000};
  static constexpr Duration kMost{1'000'000};

  class Samples {
   public:
    void add(int64_t ns) { last_[count_++ % last_.size()] = ns; }
    bool known() const { return count_ >= kEnough; }
    int64_t median() const {
      auto ordered = last_;
      const size_t count = std::min(count_, ordered.size());
      std::nth_element(ordered.begin(), ordered.begin() + count / 2, ordered.begin() + count);
      return ordered[count / 2];
    }

   private:
    static constexpr size_t kEnough = 5;
    std::array<int64_t, 15> last_{};
    size_t count_ = 0;
  };

  void learn() {
    if (!known()) return;
    const Duration more{behind_others_.median() - behind_own_.median()};
    cost_ = more < kLeast ? Duration{} : std::min(more, kMost);
  }

  Samples behind_others_, behind_own_;
  Instant began_ = kNever;
  Instant ended_{0};  // the last unit of others that own work was behind of
  uint32_t ahead_ = 0;  // units of others that were there when own work began, and still are
  bool behind_ = false;
  bool began_behind_ = false;
  bool overtaken_ = false;  // others that came later are through already
  Duration cost_;
};

}  // namespace lull::policies
