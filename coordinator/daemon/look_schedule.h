// When the daemon looks at one client next, and whether that client must ring the doorbell first.
// Pure: the loop tells it what each look has seen, and carries out what it answers. Loop thread
// only.
//
//   Awake --(quiet for a while)--> Arming --(still quiet a moment later)--> Asleep
//     ^ \___ looked at every spacing  | doorbell armed, rings looked at       | not looked at
//     +------- record seen -----------+                                       |
//     +------- doorbell, or an output that lets it launch --------------------+
//
// The moment in Arming is far longer than a store stays in a store buffer, so the shim needs no
// fence between its record and its look at the doorbell word. Times are CLOCK_MONOTONIC. The
// simulator's daemon (tools/simulate/coordinator_model) goes by the same figures.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lull::daemon {

// A client on a device that others use too, under a policy that holds launches, is looked at
// closely: so often while something happens, model time; then once in this share of the time since
// its last event: a kernel of 10 ms is found done 1 % late.
inline constexpr int64_t kCloseSpacingNs = 5'000;
inline constexpr int64_t kSpacingShare = 100;
inline constexpr int64_t kMostSpacingNs = 10'000'000;
// A close client without tracked work counts as quiet so long after its last event; later while a
// thread of it is held.
inline constexpr int64_t kCloseLingerNs = 1'000'000;
inline constexpr int64_t kHeldLingerNs = 20'000'000;

// From a look at a close client to the next one. `least_ns`: kCloseSpacingNs, as the host's clock
// has it.
constexpr int64_t close_spacing_ns(int64_t quiet_ns, int64_t least_ns) {
  return std::clamp(quiet_ns / kSpacingShare, std::min(least_ns, kMostSpacingNs), kMostSpacingNs);
}

class LookSchedule {
 public:
  enum class Activity : uint8_t { kAwake, kArming, kAsleep };
  enum class Doorbell : uint8_t { kAsItIs, kArm, kDisarm };
  struct Seen {
    bool eventful = false;  // records, or progress
    bool close = false;
    bool tracked = false;  // the device will report work of it
    bool held = false;
    bool traced = false;           // a trace is written: no record may be lost
    bool away = false;             // its memory is not on the device
    uint32_t ring_high_water = 0;  // of the fullest ring, records
  };

  void attached(uint64_t now_ns) { last_event_ns_ = now_ns; }
  Activity activity() const { return activity_; }
  bool is_due(uint64_t now_ns) const { return next_look_ns_ <= now_ns; }
  uint64_t next_look_ns() const { return next_look_ns_; }
  uint64_t last_event_ns() const { return last_event_ns_; }
  void look_at_once() { next_look_ns_ = 0; }
  // Whether the look at hand is at every thread slot: it is while arming, and now and then.
  bool is_thorough(uint64_t now_ns);
  // The look has seen this. After kArm: `look_at_once` if there are records by now.
  Doorbell looked(const Seen& seen, int64_t close_least_ns, uint64_t now_ns);
  // Something has happened that the client will answer to. It is to be looked at again if it was
  // asleep.
  Doorbell woken(uint64_t now_ns);

 private:
  void adapt_spacing(const Seen& seen);

  Activity activity_ = Activity::kAwake;
  uint64_t next_look_ns_ = 0;
  uint64_t last_event_ns_ = 0;
  uint64_t last_thorough_ns_ = 0;
  uint64_t armed_ns_ = 0;
  uint64_t lazy_spacing_ns_ = 0;
};

}  // namespace lull::daemon
