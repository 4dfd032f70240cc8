// What ran when, for drawing: intervals in lanes (a stream of the device, a gate), never more than
// a given number. When there are too many, neighbours in one lane that begin within the same
// stretch of time become one interval with a count; the stretch doubles until they fit. Fed in one
// pass; used by the timeline and the HTML report; one thread. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "coordinator/trace/events.h"
#include "tools/lull/trace/idle.h"

namespace lull::trace {

// kCalls: when a thread launched, for programs whose units have no recorded start. kIdle: why a task
// ran nothing on a device (idle.h), told by the analysis.
// kRange: what a program marks itself, a lane for each depth of each thread.
enum class LaneKind : uint8_t { kStream, kCalls, kGate, kIdle, kRange };

struct LaneKey {
  LaneKind kind = LaneKind::kStream;
  DeviceId device;
  ClientId client;
  StreamSlot stream;  // kStream; kRange: the depth, kFreeRanges
  ThreadSlot thread;  // kCalls, kRange
  auto operator<=>(const LaneKey&) const = default;
};

struct Span {
  int64_t start_ns = 0, end_ns = 0;
  int64_t busy_ns = 0;     // the sum of what was merged, at most end - start for one stream
  int64_t longest_ns = 0;  // of one unit
  uint32_t count = 1;
  // Of the longest: a KernelIndex, the client that held, an idle_what, a RangeIndex.
  uint32_t what = 0;
};

// A cause and, of a client that is named, its id; of the last of 2^29 of them.
inline uint32_t idle_what(const IdlePart& part) {
  return static_cast<uint32_t>(part.cause) | std::min(part.by.value, UINT32_MAX >> 3) << 3;
}

class Lanes {
 public:
  static constexpr size_t kMaxLanes = 100'000;  // more are not drawn

  // What an event has to draw: a unit on its stream, a launch that was held. Launches as such are
  // drawn only where a client has nothing on the device (see `finish`).
  template <typename Inside>
  void feed(const Event& event, Inside&& inside) {
    if (const auto* timing = std::get_if<Timing>(&event)) {
      const int64_t start_ns = timing->start.ns, end_ns = start_ns + timing->duration.ns;
      if (start_ns < 0 || !inside(start_ns, end_ns)) return;
      add({LaneKind::kStream, timing->device, timing->client, timing->stream, {}}, start_ns, end_ns,
          timing->kernel);
    } else if (const auto* launch = std::get_if<Launch>(&event)) {
      const int64_t went_ns = launch->at.ns + std::max<int64_t>(0, launch->held.ns);
      if (!inside(launch->at.ns, went_ns)) return;
      add({LaneKind::kCalls, {}, launch->client, {}, launch->thread}, went_ns, went_ns,
          launch->kernel);
      if (launch->held.ns <= 0) return;
      add({LaneKind::kGate, {}, launch->client, {}, {}}, launch->at.ns, went_ns,
          launch->held_by.value);
    } else if (const auto* range = std::get_if<Range>(&event)) {
      if (!inside(range->from.ns, range->until.ns)) return;
      const uint32_t depth = range->kind == RangeKind::kNested ? range->depth : kFreeRanges;
      add({LaneKind::kRange, {}, range->client, {depth}, range->thread}, range->from.ns,
          range->until.ns, range->range);
    }
  }
  static constexpr uint32_t kFreeRanges = 256;

  void feed_idle(DeviceId device, ClientId client, const IdlePart& part) {
    add({LaneKind::kIdle, device, client, {}, {}}, part.from_ns, part.until_ns, idle_what(part));
  }

  explicit Lanes(size_t max_spans) : max_spans_(max_spans) {}

  void add(const LaneKey& lane, int64_t start_ns, int64_t end_ns, uint32_t what);
  // Sorts every lane, and leaves out the calls of clients that have units on the device.
  void finish();

  const std::map<LaneKey, std::vector<Span>>& all() const { return lanes_; }
  size_t spans() const { return spans_; }
  // 0: every interval is there as it was; else neighbours closer than this were merged.
  int64_t stretch_ns() const { return stretch_ns_; }
  bool empty() const { return lanes_.empty(); }
  int64_t first_ns() const { return first_ns_; }
  int64_t last_ns() const { return last_ns_; }

 private:
  bool merges(const Span& into, const Span& span) const {
    return stretch_ns_ > 0 && into.start_ns / stretch_ns_ == span.start_ns / stretch_ns_;
  }
  void compact();
  void sort();
  void drop_calls_of_drawn_clients();

  size_t max_spans_;
  std::map<LaneKey, std::vector<Span>> lanes_;
  std::vector<Span>* last_lane_ = nullptr;
  LaneKey last_key_;
  std::set<uint32_t> drawn_;  // clients with a stream lane
  size_t spans_ = 0;
  int64_t stretch_ns_ = 0, first_ns_ = 0, last_ns_ = 0;
};

}  // namespace lull::trace
