// Which launches of a program are timed, and when what was measured is told: shim/kernel_timer as a
// small model. The begin event of a launch completes when its stream has got there, even if the
// device is busy with others' work, so a disturbed kernel looks as long here as it does in the shim.
// Called by Program at each launch and after each synchronisation; knows no gate and no device.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "coordinator/channel/timing_windows.h"
#include "policies/vocabulary.h"

namespace lull::simulate {

class TimerModel {
 public:
  TimerModel(uint32_t period, size_t units) : period_(period), shapes_(units) {}

  struct Sample {
    uint32_t unit = 0;
    uint32_t stream = 0;
    uint64_t sequence = 0;  // of the launch, on its stream
    Instant launched;
    Instant begun = kNever;      // as of the device; kNever: not yet
    Instant ended = kNever;
    uint64_t next = 0;           // id of the next timed unit; 0: not known yet, kNoNext: untimed
  };
  static constexpr uint64_t kNoNext = UINT64_MAX;

  // A launch: the id of its sample, 0 when it is not timed. `report(sample, duration, gap)` is told
  // of what has been measured by now.
  template <typename Report>
  uint64_t launch(uint32_t unit, uint32_t stream, uint64_t sequence, Instant now,
                  Report&& report) {
    uint64_t id = 0;
    if (wants(unit)) id = begin({.unit = unit, .stream = stream, .sequence = sequence,
                                 .launched = now}, report);
    if (id == 0) {
      if (Sample* last = find(last_); last != nullptr && last->next == 0) last->next = kNoNext;
      last_ = 0;
      return 0;
    }
    if (Sample* last = find(last_); last != nullptr && last->next == 0) last->next = id;
    last_ = id;
    return id;
  }
  void begun(uint64_t id, Instant at) {
    if (Sample* sample = find(id)) sample->begun = at;
  }
  void ended(uint64_t id, Instant at) {
    if (Sample* sample = find(id)) sample->ended = at;
  }
  template <typename Report>
  void harvest(Report&& report) {
    uint32_t not_ready = 0;
    while (!samples_.empty() && not_ready < kNotReadyLimit) {
      // In their order: what stands behind one that is not complete was launched later.
      Sample& sample = samples_.front();
      const bool old = samples_.size() > kOldSample;
      if (sample.next == 0 && !old) return;
      if (sample.ended == kNever) return;
      Duration gap{-1};
      if (sample.next != 0 && sample.next != kNoNext) {
        const Sample* follower = find(sample.next);
        if (follower != nullptr) {
          if (follower->begun == kNever) return;
          gap = follower->begun - sample.ended;
        }
      }
      report(sample, sample.ended - sample.begun, gap);
      samples_.pop_front();
      first_ += 1;
    }
  }

 private:
  static constexpr size_t kSamples = 4096;
  static constexpr size_t kOldSample = 1024;  // with so many behind it, a gap is not waited for
  static constexpr uint32_t kNotReadyLimit = 4;

  struct Shape {
    uint32_t samples = 0;
    uint32_t to_window = 0;
  };

  bool wants(uint32_t unit) {
    if (period_ <= 1) return period_ == 1;
    return channel::is_timed(shapes_[unit].to_window, window_);
  }
  template <typename Report>
  uint64_t begin(const Sample& sample, Report&& report) {
    Shape& shape = shapes_[sample.unit];
    if (period_ > 1) channel::move_window(period_, shape.samples, shape.to_window, window_);
    harvest(report);
    if (samples_.size() >= kSamples) return 0;
    shape.samples += 1;
    samples_.push_back(sample);
    return first_ + samples_.size() - 1;
  }
  Sample* find(uint64_t id) {
    if (id < first_ || id >= first_ + samples_.size()) return nullptr;
    return &samples_[id - first_];
  }

  uint32_t period_;
  std::vector<Shape> shapes_;
  std::deque<Sample> samples_;  // by id
  uint64_t first_ = 1;          // id of the front
  uint64_t last_ = 0;
  channel::ThreadWindow window_{};
};

}  // namespace lull::simulate
