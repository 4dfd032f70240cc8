// What a client has in flight on a stream: its launches, oldest first, until they are known complete. Plain
// data with its bounds; completions.cc changes it. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/engine/events.h"
#include "policies/vocabulary.h"

namespace lull::engine {

inline constexpr size_t kMaxUnitsPerStream = 1024;  // beyond it launches are counted together

// One launch in flight; several, where a stream has more than kMaxUnitsPerStream.
struct Unit {
  uint64_t sequence = 0;
  Duration predicted;  // as the policy was told
  Duration expected;   // in the mean
  Duration blocks;     // ... the part of it for which others' later work waits
  Duration lengthens;  // how much longer own work beside it on another stream may seem
  Instant at;
  Instant due;         // untracked: when it is expected to be done; DeviceUsage::kept_off comes on top
  Duration ahead{-1};  // in flight on its device before it; < 0: completion tells no length
  uint32_t others_done = 0;  // others' units complete on its device by then; may wrap
  uint32_t count = 1;
  bool tracked = false;
  uint32_t every = 0;  // DeviceUsage::marked_every when it was launched
  DeviceId device;
  KernelId kernel;     // of the first launch
};

// The units of a stream, oldest first.
class UnitQueue {
 public:
  bool empty() const { return first_ == units_.size(); }
  Unit& front() { return units_[first_]; }
  const Unit& front() const { return units_[first_]; }
  Unit& back() { return units_.back(); }
  size_t size() const { return units_.size() - first_; }
  void push(const Unit& unit) { units_.push_back(unit); }
  void pop() {
    first_ += 1;
    if (first_ == units_.size()) {
      units_.clear();
      first_ = 0;
    } else if (first_ >= 64 && first_ * 2 >= units_.size()) {
      units_.erase(units_.begin(), units_.begin() + static_cast<ptrdiff_t>(first_));
      first_ = 0;
    }
  }
  // The newest unit with this number; null without one.
  Unit* find(uint64_t sequence) {
    for (size_t i = units_.size(); i > first_; --i) {
      if (units_[i - 1].sequence == sequence) return &units_[i - 1];
    }
    return nullptr;
  }
  void erase(const Unit* unit) {
    units_.erase(units_.begin() + (unit - units_.data()));
    if (first_ == units_.size()) {
      units_.clear();
      first_ = 0;
    }
  }
  auto begin() { return units_.begin() + static_cast<ptrdiff_t>(first_); }
  auto end() { return units_.end(); }
  auto begin() const { return units_.begin() + static_cast<ptrdiff_t>(first_); }
  auto end() const { return units_.end(); }
  // Whether the first unit will be reported: by itself, or by a tracked unit close behind it.
  bool awaits_report() const {
    if (front().tracked || front().every == 0) return front().tracked;
    // Even if each launch is to be reported, one made before its client heard of that is not.
    const size_t close = std::max<size_t>(front().every, 2);
    const auto last = begin() + static_cast<ptrdiff_t>(std::min(close, size()));
    return std::any_of(begin(), last, [](const Unit& unit) { return unit.tracked; });
  }

 private:
  std::vector<Unit> units_;
  size_t first_ = 0;
};

// A completed unit counts as having lengthened others for its own length, and at most this long.
inline constexpr Duration kLately{10'000'000};

struct Stream {
  uint64_t completed = 0;
  // Of the units that were lately seen complete, the one that lengthens others most.
  struct Long {
    Instant done_at{0};
    Duration lengthens;
    DeviceId device;
  } longest;
  UnitQueue units;

  // Work that a unit has lengthened completes soon after the unit.
  void done(const Unit& unit, Instant at) {
    const bool past = at - longest.done_at > std::min(longest.lengthens, kLately);
    if (past || unit.lengthens >= longest.lengthens) longest = {at, unit.lengthens, unit.device};
  }
};

// Streams beyond kMaxStreams count as the last one.
inline constexpr size_t kMaxStreams = 64;
inline size_t slot_of(StreamSlot stream) { return std::min<size_t>(stream.value, kMaxStreams - 1); }
inline StreamSlot slot_id(size_t slot) { return {static_cast<uint32_t>(slot)}; }

}  // namespace lull::engine
