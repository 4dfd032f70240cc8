#include "coordinator/daemon/look_schedule.h"

#include "coordinator/channel/layout.h"

namespace lull::daemon {
namespace {

using channel::kRingRecords;

// Other clients than close ones: so that their totals are known, and sooner where rings fill up.
constexpr uint64_t kLazySpacingNs = 2'000'000;
constexpr uint64_t kLazySpacingLeastNs = 200'000;
constexpr uint64_t kLazyLingerNs = 20'000'000;
constexpr uint64_t kArmingNs = 50'000;
constexpr uint64_t kAwaySpacingNs = 50'000'000;
constexpr uint64_t kThoroughEveryNs = 200'000;
// While a trace is written every record counts, and a ring holds 256: a program that launches every
// 2 us, each launch timed, fills it in 256 us. So a client at work is looked at this often, and so
// that its rings are a quarter full at most.
constexpr uint64_t kTracedSpacingLeastNs = 80'000;
constexpr uint64_t kTracedSpacingMostNs = 250'000;
constexpr uint32_t kTracedFill = kRingRecords / 4;

}  // namespace

bool LookSchedule::is_thorough(uint64_t now_ns) {
  if (activity_ != Activity::kArming && now_ns - last_thorough_ns_ < kThoroughEveryNs) return false;
  last_thorough_ns_ = now_ns;
  return true;
}

void LookSchedule::adapt_spacing(const Seen& seen) {
  if (seen.traced) {
    if (seen.eventful && seen.ring_high_water > kTracedFill) {
      lazy_spacing_ns_ = lazy_spacing_ns_ * kTracedFill / seen.ring_high_water;
    } else {
      lazy_spacing_ns_ += lazy_spacing_ns_ / 8;
    }
    lazy_spacing_ns_ = std::clamp(lazy_spacing_ns_, kTracedSpacingLeastNs, kTracedSpacingMostNs);
    return;
  }
  if (seen.eventful) {
    if (seen.ring_high_water >= kRingRecords / 2) lazy_spacing_ns_ /= 2;
    if (seen.ring_high_water < kRingRecords / 8) lazy_spacing_ns_ *= 2;
  }
  lazy_spacing_ns_ = std::clamp(lazy_spacing_ns_, kLazySpacingLeastNs, kLazySpacingNs);
}

LookSchedule::Doorbell LookSchedule::looked(const Seen& seen, int64_t close_least_ns,
                                            uint64_t now_ns) {
  if (seen.eventful) last_event_ns_ = now_ns;
  adapt_spacing(seen);
  const uint64_t quiet_ns = now_ns - std::min(now_ns, last_event_ns_);
  uint64_t spacing_ns = lazy_spacing_ns_;
  if (seen.close) {
    const auto close_ns =
        static_cast<uint64_t>(close_spacing_ns(static_cast<int64_t>(quiet_ns), close_least_ns));
    spacing_ns = seen.traced ? std::min(close_ns, lazy_spacing_ns_) : close_ns;
  }
  const uint64_t linger_ns = seen.held    ? kHeldLingerNs
                             : seen.close ? kCloseLingerNs
                                          : kLazyLingerNs;
  const bool quiet = !seen.eventful && quiet_ns >= linger_ns && !(seen.close && seen.tracked);
  if (quiet && seen.away) {
    // It takes a second without a sign of life for the end of its coordinator.
    next_look_ns_ = now_ns + kAwaySpacingNs;
    return Doorbell::kAsItIs;
  }
  if (!quiet) {
    const bool was_arming = activity_ == Activity::kArming;
    activity_ = Activity::kAwake;
    next_look_ns_ = now_ns + spacing_ns;
    return was_arming ? Doorbell::kDisarm : Doorbell::kAsItIs;
  }
  if (activity_ == Activity::kAwake) {
    activity_ = Activity::kArming;
    armed_ns_ = now_ns;
    next_look_ns_ = now_ns + kArmingNs;
    return Doorbell::kArm;
  }
  if (now_ns - armed_ns_ >= kArmingNs) {
    activity_ = Activity::kAsleep;
  } else {
    next_look_ns_ = armed_ns_ + kArmingNs;
  }
  return Doorbell::kAsItIs;
}

LookSchedule::Doorbell LookSchedule::woken(uint64_t now_ns) {
  const bool was_armed = activity_ != Activity::kAwake;
  activity_ = Activity::kAwake;
  next_look_ns_ = 0;
  last_event_ns_ = now_ns;
  return was_armed ? Doorbell::kDisarm : Doorbell::kAsItIs;
}

}  // namespace lull::daemon
