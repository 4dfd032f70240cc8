// What it costs a client that others have had the device: without MPS a driver gives it to one
// process at a time, and to change it takes as long as many kernels (0.13 ms from a launch on an
// idle H100 to its begin, however long the other process has been through; docs/hardware). Learnt from when the
// client's first work behind that of others is seen complete, less the same behind its own, so that nothing need be
// known of the device. It may wait for its host, another stream or a third client as well. So a change costs the
// median of the former less the least of the latter, but only where the lower quartile of the former is later, too,
// by more than lengths vary, and later than was foretold by as much: lengths told too long, and less so behind others,
// look like a change. A least far below the quartile is a length told too long. How wrong lengths are told differs
// from kernel to kernel: so work is compared with own work that takes about as long, if there is any, and long work
// tells nothing. Pure.
//
//   others         ...ended|
//   client                 |launched         done|
//                          |--- cost --|- work --|
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "policies/vocabulary.h"

namespace lull::policies {

class SwitchCost {
 public:
  // Kernels of others have come to the device; so many are through or gone, so many are left there.
  void others_came(uint32_t kernels = 1) {
    behind_ = true;
    there_ += kernels;
  }
  void others_ended(uint32_t kernels, uint32_t left, Instant now) {
    there_ = left;
    if (ahead_ > 0) {
      ahead_ -= std::min(kernels, ahead_);
      ahead_ = std::min(ahead_, left);
      ended_ = now;
    } else if (began_ == kNever) {
      ended_ = now;
    } else {
      overtaken_ = overtaken_ || kernels > 0;
    }
  }
  // The client has work on the device from here on, and had none. It can run from then on: when the copies of
  // its own are through that it may wait for.
  void own_begins(Instant at, Instant can_run) {
    began_ = at;
    can_run_ = can_run;
    ahead_ = there_;
    began_behind_ = behind_;
    overtaken_ = false;
  }
  // Work of it is through that takes so long by itself, the last of it launched at `last`. `reported`: seen to be,
  // not reckoned.
  void own_done(Duration work, Instant last, bool reported, Instant now) {
    // Others' kernels and the change may be over when its copies are.
    const bool hidden = began_behind_ && can_run_ > std::max(began_, ended_);
    if (began_ != kNever && ahead_ == 0 && !overtaken_ && !hidden && work.ns > 0 && work <= kMost && reported) {
      const Instant from = began_behind_ ? std::max(can_run_, ended_) : can_run_;
      // Pauses of the host between its launches are no change.
      const bool tells = last <= from + kLeast, seen = tells && began_behind_;
      if (tells) (began_behind_ ? behind_others_ : behind_own_).add({(now - from - work).ns, work.ns});
      // What is not seen any more, because nobody is let go for its sake, is not believed for ever.
      const bool in_vain = !seen && cost_.ns > 0 && now - seen_at_ >= kBelieved;
      forgotten_ = seen ? 0 : forgotten_ + (in_vain ? 1 : 0);
      if (forgotten_ == kForgets) behind_others_ = {};
      if (seen || in_vain) seen_at_ = now;
      learn();
    }
    began_ = kNever;
    ahead_ = 0;
    if (there_ == 0) behind_ = false;
  }

  // The next own work comes behind that of others.
  bool behind() const { return behind_; }
  bool known() const { return behind_others_.known(); }
  // 0 where the device runs several processes at once, or as long as too little was seen behind others. With what a
  // launch takes, as long as nothing was seen behind own work.
  Duration cost() const { return cost_; }

  bool operator==(const SwitchCost&) const = default;

 private:
  // So long after the last change of hands, four times, what is known is forgotten: the cost is taken for nothing
  // and tried again. That makes some requests late, so it must be rare: 64 s are a thousand requests of 64 ms.
  static constexpr Duration kBelieved{16'000'000'000};
  static constexpr uint32_t kForgets = 4;
  // Less is how precisely it is seen, no switch.
  static constexpr Duration kLeast{20'000};
  static constexpr Duration kMost{1'000'000};  // ... and the longest work that tells
  // So much later than behind own work the kernels behind others may be by chance: one and a half deviations, as between
  // a quarter and an eighth of normal lengths there is half of one. The lower quartile must be as much later than was
  // foretold, too. So where lengths vary by 0.08 ms, a change of 0.15 is missed more often than not.
  static constexpr int64_t kVariations = 3;
  static constexpr int64_t kAlike = 8;  // lengths that differ by so small a part are foretold wrong alike

  struct Sample {
    int64_t late_ns = 0, work_ns = 0;
    bool is_like(const Sample& other) const {
      return std::abs(work_ns - other.work_ns) <= std::max(work_ns, other.work_ns) / kAlike;
    }
    bool operator==(const Sample&) const = default;
  };
  class Samples {
   public:
    void add(const Sample& sample) { last_[count_++ % last_.size()] = sample; }
    bool known() const { return count_ >= kEnough; }
    bool empty() const { return count_ == 0; }
    // Those of about the same work as one of `others`.
    Samples like(const Samples& others) const {
      Samples found;
      for (const Sample& its : seen()) {
        if (std::ranges::any_of(others.seen(), [&](const Sample& other) { return its.is_like(other); })) found.add(its);
      }
      return found;
    }
    int64_t least() const { return ordered(last_.size() + 1); }
    int64_t quartile() const { return ordered(4); }
    int64_t median() const { return ordered(2); }
    // How much the quick ones vary: not by waiting for anything.
    int64_t variation() const { return quartile() - ordered(8); }

    bool operator==(const Samples&) const = default;

   private:
    static constexpr size_t kEnough = 5;
    std::span<const Sample> seen() const { return {last_.data(), std::min(count_, last_.size())}; }
    // One in so many is less; 0 where nothing was seen.
    int64_t ordered(size_t one_in) const {
      auto ordered = last_;
      const size_t count = std::min(count_, ordered.size());
      const auto at = ordered.begin() + count / one_in;
      std::ranges::nth_element(ordered.begin(), at, ordered.begin() + count, {}, &Sample::late_ns);
      return at->late_ns;
    }
    std::array<Sample, 15> last_{};
    size_t count_ = 0;
  };

  void learn() {
    const Samples alike = behind_own_.like(behind_others_);
    const Samples& own = alike.empty() ? behind_own_ : alike;
    const int64_t noise = std::max(kLeast.ns, kVariations * own.variation());
    const bool later = known() && behind_others_.quartile() - std::max<int64_t>(0, own.quartile()) >= noise;
    const int64_t least = std::max(own.least(), own.quartile() - kLeast.ns);
    cost_ = later ? std::min(Duration{behind_others_.median() - least}, kMost) : Duration{};
  }

  Samples behind_others_, behind_own_;
  Instant began_ = kNever, can_run_{0};
  Instant ended_{0};  // the last kernel of others that own work was behind of
  Instant seen_at_{0};   // a stretch that began behind others, or what was forgotten since
  uint32_t there_ = 0;  // kernels of others on the device
  uint32_t ahead_ = 0;  // of them that were there when own work began
  uint32_t forgotten_ = 0;  // times that it was not seen for as long as it is believed
  bool behind_ = false;
  bool began_behind_ = false;
  bool overtaken_ = false;  // others that came later are through already
  Duration cost_;
};

}  // namespace lull::policies
