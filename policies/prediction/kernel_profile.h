// What is known of one kernel of one task: how long it runs, and how long the pause after it is.
// Learnt from measured durations as they come; length_profile.h says how, and what is done about
// co-running work and drift.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/prediction/length_profile.h"
#include "policies/vocabulary.h"

namespace lull::policies {

class KernelProfile {
 public:
  static constexpr int64_t kLongestNs = LengthProfile::kLongestNs;
  static constexpr uint64_t kTrusted = LengthProfile::kTrusted;

  // `gap` < 0: not known. `disturbed`: other work was on the device meanwhile.
  void add(Duration duration, Duration gap, bool disturbed = false) {
    add_duration(duration, disturbed);
    if (gap.ns >= 0) add_gap(gap, disturbed);
  }
  void add_duration(Duration duration, bool disturbed) { durations_.add(duration.ns, disturbed); }
  void add_gap(Duration gap, bool disturbed) { gaps_.add(gap.ns, disturbed); }

  const LengthProfile& durations() const { return durations_; }
  const LengthProfile& gaps() const { return gaps_; }
  // How often durations or gaps were forgotten. What a PlaceProfile learnt before no longer holds.
  uint32_t relearnt() const { return durations_.relearnt() + gaps_.relearnt(); }

  uint64_t count() const { return durations_.count(); }
  Duration mean() const { return durations_.mean(); }
  Duration last() const { return durations_.last(); }
  Duration quantile(uint32_t per_mille) const { return durations_.quantile(per_mille); }

  // < 0: none known.
  uint64_t gap_count() const { return gaps_.count(); }
  Duration mean_gap() const { return gap_count() == 0 ? Duration{-1} : gaps_.mean(); }
  Duration last_gap() const { return gap_count() == 0 ? Duration{-1} : gaps_.last(); }
  Duration gap_quantile(uint32_t per_mille) const {
    return gap_count() == 0 ? Duration{-1} : gaps_.quantile(per_mille);
  }

  // All that is known, to be kept and taken up again; `from` corrects impossible values. A drift
  // that is only being noticed is not kept.
  struct Saved {
    uint64_t count = 0;
    int64_t mean_x1024 = 0;
    Duration last;
    uint64_t gap_count = 0;
    int64_t gap_mean_x1024 = 0;
    Duration last_gap{-1};
    std::vector<QuantileSketch::Bucket> durations;
    std::vector<QuantileSketch::Bucket> gaps;
  };
  Saved saved() const;
  static KernelProfile from(const Saved& saved);

 private:
  LengthProfile durations_{LengthProfile::CoRunning::kLengthens};
  LengthProfile gaps_{LengthProfile::CoRunning::kShortens};
};

// The same of a kernel at one place only (after one kernel, at one position). It learns only from
// undisturbed samples: where it knows too little, the kernel's own profile is used. It begins anew
// when the kernel's profile has noticed a drift, which it would notice far later itself.
class PlaceProfile {
 public:
  // < 0: not measured.
  void add(const KernelProfile& kernel, Duration duration, Duration gap);
  // Null: nothing is known of the kernel since its last drift.
  const KernelProfile* of(const KernelProfile& kernel) const {
    const bool known = profile_.count() > 0 || profile_.gap_count() > 0;
    return known && relearnt_ == kernel.relearnt() ? &profile_ : nullptr;
  }

 private:
  KernelProfile profile_;
  uint32_t relearnt_ = 0;  // of the kernel, when this was begun
};

}  // namespace lull::policies
