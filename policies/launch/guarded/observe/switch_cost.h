// What a change of hands costs a client. Without MPS a driver gives the device to one process at a time, and a change
// takes as long as many kernels: 0.13 ms from a launch on an idle H100 to its begin, however long the other process has
// been through (docs/hardware). Pure.
//
// The cost is learnt from how late the client's first work behind others' is seen complete, compared with its first
// work behind its own. So nothing need be known of the device. Work may also wait for its host, another stream or a
// third client: so a change costs the median behind others less the least behind own work. It is believed only where
// the lower quartile behind others is later than behind own work, and later than foretold, by more than lengths vary:
// lengths that are told too long, and less so behind others, look like a change. A least far below the quartile is a
// length told too long: it counts as 0.02 ms below. How wrong lengths are told differs from kernel to kernel. So work
// is compared with own work that takes about as long, if there is any, and long work tells nothing.
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
  // Kernels of others have come to the device. `kernels` are through or gone; `left` are still there.
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
  // The client had no work on the device, and has some from `at` on. That work can run from `can_run` on, when own
  // copies that it may wait for are through.
  void own_begins(Instant at, Instant can_run) {
    began_ = at;
    can_run_ = can_run;
    ahead_ = there_;
    began_behind_ = behind_;
    overtaken_ = false;
  }
  // Own work is through. `work`: how long it takes by itself. `last`: when the last of it was launched. `reported`: it
  // was seen to be through, not only expected.
  void own_done(Duration work, Instant last, bool reported, Instant now) {
    // Others' kernels and the change may be over before the client's copies are.
    const bool hidden = began_behind_ && can_run_ > std::max(began_, ended_);
    if (began_ != kNever && ahead_ == 0 && !overtaken_ && !hidden && work.ns > 0 && work <= kMost && reported) {
      const Instant from = began_behind_ ? std::max(can_run_, ended_) : can_run_;
      // A pause of the host between its launches is no change of hands.
      const bool tells = last <= from + kLeast, seen = tells && began_behind_;
      if (tells) (began_behind_ ? behind_others_ : behind_own_).add({(now - from - work).ns, work.ns});
      // A cost may keep all lower work out, so that it is not seen any more: it is not believed for ever.
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

  // The next own work comes behind others' work.
  bool behind() const { return behind_; }
  bool known() const { return behind_others_.known(); }
  // What a change costs. 0 where the device runs several processes at once, and until enough was seen behind others.
  // While nothing was seen behind own work, it includes what a launch takes.
  Duration cost() const { return cost_; }

  bool operator==(const SwitchCost&) const = default;

 private:
  // After 16 s without a change of hands, four times, what is known is forgotten: the cost counts as nothing and is
  // learnt anew. That makes some requests late, so it must be rare: 64 s are a thousand requests of 64 ms.
  static constexpr Duration kBelieved{16'000'000'000};
  static constexpr uint32_t kForgets = 4;
  // A shorter delay is no change: ends are not seen more precisely.
  static constexpr Duration kLeast{20'000};
  static constexpr Duration kMost{1'000'000};  // the largest cost, and the longest work that tells
  // By chance, kernels behind others may be later than behind own work by three variations, or one and a half
  // deviations: a variation is the distance from a quarter to an eighth of the lengths, half a deviation of normal
  // ones. The lower quartile must be later than foretold by as much. So where lengths vary by 0.08 ms, a change of
  // 0.15 is missed more often than not.
  static constexpr int64_t kVariations = 3;
  static constexpr int64_t kAlike = 8;  // lengths that differ by an eighth at most are foretold wrong alike

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
    // Those whose work is about as long as that of a sample of `others`.
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
    // How much the quick ones vary: these waited for nothing.
    int64_t variation() const { return quartile() - ordered(8); }

    bool operator==(const Samples&) const = default;

   private:
    static constexpr size_t kEnough = 5;
    std::span<const Sample> seen() const { return {last_.data(), std::min(count_, last_.size())}; }
    // One sample in `one_in` is less; 0 where nothing was seen.
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
  Instant ended_{0};  // when the last kernel of others was through that own work was behind
  Instant seen_at_{0};   // when a change of hands was last seen, or kBelieved went by without one
  uint32_t there_ = 0;  // kernels of others on the device
  uint32_t ahead_ = 0;  // those that were there when own work began
  uint32_t forgotten_ = 0;  // how often kBelieved went by without a change of hands
  bool behind_ = false;
  bool began_behind_ = false;
  bool overtaken_ = false;  // others' kernels that came later are through already
  Duration cost_;
};

}  // namespace lull::policies
