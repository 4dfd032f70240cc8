#include "coordinator/trace/event_codec.h"

#include <algorithm>

namespace lull::trace {
namespace codec {
namespace {

constexpr size_t kFarthestSequence = 16;  // holes in a stream that are kept; bounds a liar too

uint64_t pair_of(uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; }

template <typename T>
size_t place_of(std::unordered_map<uint64_t, size_t>& places, uint64_t key, std::vector<T>& all) {
  const auto [entry, fresh] = places.try_emplace(key, all.size());
  if (fresh) all.emplace_back();
  return entry->second;
}

}  // namespace

void Expectation::place(Lane& lane) {
  lane.thread_place =
      place_of(thread_places, pair_of(lane.client.value, lane.thread.value), threads);
  lane.stream_place =
      place_of(stream_places, pair_of(lane.client.value, lane.stream.value), streams);
  lane.client_place = place_of(client_places, lane.client.value, clients);
}

size_t Expectation::add_launch_lane(const Lane& lane) {
  launch_lanes.push_back(lane);
  place(launch_lanes.back());
  return launch_lanes.size() - 1;
}
size_t Expectation::add_timing_lane(const Lane& lane) {
  timing_lanes.push_back(lane);
  place(timing_lanes.back());
  return timing_lanes.size() - 1;
}

void Expectation::launched(const Lane& lane, uint64_t sequence, KernelIndex kernel) {
  Stream& stream = streams[lane.stream_place];
  const uint64_t next = stream.first + stream.kernels.size();
  if (stream.kernels.empty() || sequence - next > kFarthestSequence) {
    // Also a sequence behind: it is far ahead, the other way around.
    if (sequence - stream.first < stream.kernels.size()) return;
    stream.kernels.clear();
    stream.first = sequence;
  } else {
    stream.kernels.resize(stream.kernels.size() + (sequence - next), kNoKernel);
  }
  stream.kernels.push_back(kernel);
}

KernelIndex Expectation::kernel_of(const Lane& lane, uint64_t sequence) const {
  const Stream& stream = streams[lane.stream_place];
  const uint64_t behind = sequence - stream.first;
  return behind < stream.kernels.size() ? stream.kernels[behind] : kNoKernel;
}

void Expectation::clear() {
  launch_lanes.clear();
  timing_lanes.clear();
  threads.clear();
  streams.clear();
  clients.clear();
  thread_places.clear();
  stream_places.clear();
  client_places.clear();
  std::fill(kernels.begin(), kernels.end(), Kernel{});
}

}  // namespace codec

namespace {

using codec::Expectation;
using namespace codec;

enum LaunchFlag : uint8_t { kHasHeld = 1, kHasBytes = 2 };
enum TimingFlag : uint8_t { kHasStart = 1, kHasGap = 2, kOtherKernel = 4 };

constexpr size_t kLaunchKind = 6, kTimingKind = 7;
static_assert(std::is_same_v<std::variant_alternative_t<kLaunchKind, Event>, Launch>);
static_assert(std::is_same_v<std::variant_alternative_t<kTimingKind, Event>, Timing>);

uint64_t word(Instant instant) { return static_cast<uint64_t>(instant.ns); }
uint64_t word(Duration duration) { return static_cast<uint64_t>(duration.ns); }

// A distance in two columns: the low byte says little and the rest much, and apart they compress
// better than in turns.
void put_split(ByteSink& low, ByteSink& high, uint64_t from, uint64_t to) {
  const uint64_t coded = zigzag(to - from);
  low.byte(static_cast<uint8_t>(coded));
  high.number(coded >> 8);
}
uint64_t get_split(ByteSource& low, ByteSource& high, uint64_t from) {
  const uint8_t byte = low.byte();
  return from + unzigzag((high.number() << 8) | byte);
}

// Every field of the rare events, once, for both directions.
template <typename Codec>
void fields(Codec& c, DeviceInfo& e) {
  c.id(e.device), c.text(e.uuid), c.text(e.name), c.number(e.total_bytes);
}
template <typename Codec>
void fields(Codec& c, ClientStarted& e) {
  c.id(e.client), c.time(e.at), c.number(e.pid), c.number(e.priority.level), c.text(e.task),
      c.text(e.job), c.text(e.program);
}
template <typename Codec>
void fields(Codec& c, ClientEnded& e) {
  c.id(e.client), c.time(e.at), c.number(e.launches), c.number(e.copies), c.number(e.memsets),
      c.number(e.dropped);
}
template <typename Codec>
void fields(Codec& c, PriorityChange& e) {
  c.id(e.client), c.time(e.at), c.number(e.priority.level);
}
template <typename Codec>
void fields(Codec& c, PolicyChange& e) {
  c.time(e.at), c.text(e.policy);
}
template <typename Codec>
void fields(Codec& c, KernelInfo& e) {
  c.hash(e.id.value), c.hash(e.image_hash), c.kind(e.kind), c.text(e.name);
  for (uint32_t& side : e.grid) c.number(side);
  for (uint32_t& side : e.block) c.number(side);
  c.number(e.shared_bytes), c.number(e.graph_kernels), c.text(e.call_site);
}
template <typename Codec>
void fields(Codec& c, Synced& e) {
  c.id(e.client), c.id(e.stream), c.number(e.sequence), c.time(e.at);
}
template <typename Codec>
void fields(Codec& c, MemoryUse& e) {
  c.id(e.client), c.id(e.device), c.time(e.at), c.number(e.used_bytes);
}
template <typename Codec>
void fields(Codec& c, Lost& e) {
  c.id(e.client), c.time(e.at), c.number(e.records);
}
template <typename Codec>
void fields(Codec& c, Cancelled& e) {
  c.id(e.client), c.id(e.stream), c.number(e.sequence), c.time(e.at);
}
template <typename Codec>
void fields(Codec& c, Waited& e) {
  c.id(e.client), c.id(e.thread), c.time(e.from), c.time(e.until);
}
template <typename Codec>
void fields(Codec& c, RangeInfo& e) {
  c.number(e.index), c.text(e.domain), c.text(e.name);
}
template <typename Codec>
void fields(Codec& c, Range& e) {
  c.id(e.client), c.id(e.thread), c.number(e.range), c.kind(e.kind), c.number(e.depth),
      c.time(e.from), c.time(e.until);
}
template <typename Codec>
void fields(Codec& c, FileInfo& e) {
  c.number(e.created_unix_ns), c.time(e.created_at), c.text(e.lull_version), c.text(e.host),
      c.text(e.source), c.text(e.command), c.number(e.simulated), c.real(e.slow_motion),
      c.text(e.sharing);
}

struct EventSink : FieldSink {
  void time(Instant& value) { to.number(word(value)); }
  void real(double& value) { to.real(value); }
  void hash(uint64_t& value) { to.hash(value); }
  void kind(UnitKind& value) { to.number(static_cast<uint64_t>(value)); }
  void kind(RangeKind& value) { to.number(static_cast<uint64_t>(value)); }
};

struct EventSource : FieldSource {
  void time(Instant& value) { number(value.ns); }
  void real(double& value) { value = from.real(); }
  void hash(uint64_t& value) { value = from.hash(); }
  void kind(UnitKind& value) { choice(value, from.number(), UnitKind::kMemset); }
  void kind(RangeKind& value) { choice(value, from.number(), RangeKind::kMark); }
};

}  // namespace

// ---- writing ----------------------------------------------------------------------------------

size_t BlockEncoder::launch_lane(const Launch& launch) {
  const auto is_it = [&](const Expectation::Lane& lane) {
    return lane.client == launch.client && lane.device == launch.device &&
           lane.thread == launch.thread && lane.stream == launch.stream;
  };
  auto& lanes = expected_.launch_lanes;
  if (last_launch_lane_ < lanes.size() && is_it(lanes[last_launch_lane_])) return last_launch_lane_;
  uint64_t key =
      zigzag((uint64_t{launch.client.value} << 32) ^ launch.thread.value) * 0x9e3779b97f4a7c15ULL;
  key ^= (uint64_t{launch.stream.value} << 32) ^ launch.device.value;
  const auto found = launch_lane_of_.find(key);
  if (found != launch_lane_of_.end() && is_it(lanes[found->second])) return found->second;
  // New, or one of two with one key: then each is defined more than once, which costs bytes only.
  ByteSink& out = columns_[kLanes];
  out.number(launch.client.value);
  out.number(launch.device.value);
  out.number(launch.thread.value);
  out.number(launch.stream.value);
  const size_t index = expected_.add_launch_lane({.client = launch.client,
                                                  .device = launch.device,
                                                  .thread = launch.thread,
                                                  .stream = launch.stream});
  launch_lane_of_[key] = index;
  return index;
}

size_t BlockEncoder::timing_lane(const Timing& timing) {
  const auto is_it = [&](const Expectation::Lane& lane) {
    return lane.client == timing.client && lane.device == timing.device &&
           lane.stream == timing.stream;
  };
  auto& lanes = expected_.timing_lanes;
  if (last_timing_lane_ < lanes.size() && is_it(lanes[last_timing_lane_])) return last_timing_lane_;
  uint64_t key = timing.client.value * 0x9e3779b97f4a7c15ULL;
  key ^= (uint64_t{timing.stream.value} << 32) ^ timing.device.value;
  const auto found = timing_lane_of_.find(key);
  if (found != timing_lane_of_.end() && is_it(lanes[found->second])) return found->second;
  ByteSink& out = columns_[kLanes];
  out.number(timing.client.value);
  out.number(timing.device.value);
  out.number(timing.stream.value);
  const size_t index = expected_.add_timing_lane(
      {.client = timing.client, .device = timing.device, .stream = timing.stream});
  timing_lane_of_[key] = index;
  return index;
}

void BlockEncoder::put(const Launch& launch) {
  const size_t index = last_launch_lane_ = launch_lane(launch);
  const Expectation::Lane lane = expected_.launch_lanes[index];
  Expectation::Stream& stream = expected_.streams[lane.stream_place];
  Expectation::Thread& thread = expected_.threads[lane.thread_place];
  columns_[kLaunchLane].number(index);
  columns_[kLaunchKernel].number(launch.kernel);
  columns_[kLaunchSequence].distance(stream.launched + 1, launch.sequence);
  stream.launched = launch.sequence;
  put_split(columns_[kLaunchAt], columns_[kLaunchAtHigh], thread.at, word(launch.at));
  thread.at = word(launch.at);
  const bool held = launch.held.ns != 0 || launch.held_by.value != 0;
  columns_[kLaunchFlags].byte(
      static_cast<uint8_t>((held ? kHasHeld : 0) | (launch.bytes != 0 ? kHasBytes : 0)));
  if (held) {
    columns_[kLaunchMore].number(word(launch.held));
    columns_[kLaunchMore].number(launch.held_by.value);
  }
  if (launch.bytes != 0) columns_[kLaunchMore].number(launch.bytes);
  expected_.launched(lane, launch.sequence, launch.kernel);
  size_ += 8 + (held ? 6 : 0) + (launch.bytes != 0 ? 4 : 0);
}

void BlockEncoder::put(const Timing& timing) {
  const size_t index = last_timing_lane_ = timing_lane(timing);
  const Expectation::Lane lane = expected_.timing_lanes[index];
  Expectation::Stream& stream = expected_.streams[lane.stream_place];
  Expectation::Client& client = expected_.clients[lane.client_place];
  Expectation::Kernel& kernel = expected_.kernel(timing.kernel);
  columns_[kTimingLane].number(index);
  columns_[kTimingSequence].distance(stream.timed + 1, timing.sequence);
  stream.timed = timing.sequence;
  const bool has_start = timing.start.ns >= 0, has_gap = timing.gap.ns >= 0;
  const bool other = expected_.kernel_of(lane, timing.sequence) != timing.kernel;
  columns_[kTimingFlags].byte(static_cast<uint8_t>(
      (has_start ? kHasStart : 0) | (has_gap ? kHasGap : 0) | (other ? kOtherKernel : 0)));
  if (other) columns_[kTimingKernel].number(timing.kernel);
  if (has_start) {
    columns_[kTimingStart].distance(client.start, word(timing.start));
    client.start = word(timing.start) + word(timing.duration) + (has_gap ? word(timing.gap) : 0);
  }
  put_split(columns_[kTimingDuration], columns_[kTimingDurationHigh], kernel.duration,
            word(timing.duration));
  kernel.duration = word(timing.duration);
  if (has_gap) {
    put_split(columns_[kTimingGap], columns_[kTimingGapHigh], kernel.gap, word(timing.gap));
    kernel.gap = word(timing.gap);
  }
  size_ += 12;
}

void BlockEncoder::add(const Event& event) {
  columns_[kKinds].byte(static_cast<uint8_t>(event.index()));
  if (const auto* launch = std::get_if<Launch>(&event)) return put(*launch);
  if (const auto* timing = std::get_if<Timing>(&event)) return put(*timing);
  ByteSink& out = columns_[kRare];
  const size_t before = out.size();
  Event copy = event;
  EventSink sink{{out}};
  std::visit(
      [&]<typename E>(E& e) {
        if constexpr (!std::is_same_v<E, Launch> && !std::is_same_v<E, Timing>) fields(sink, e);
      },
      copy);
  size_ += 1 + out.size() - before;
}

std::vector<uint8_t> BlockEncoder::take() {
  ByteSink all;
  all.number(kColumns);
  for (const ByteSink& column : columns_) all.number(column.size());
  for (ByteSink& column : columns_) {
    all.append(column);
    column.clear();
  }
  expected_.clear();
  launch_lane_of_.clear();
  timing_lane_of_.clear();
  last_launch_lane_ = last_timing_lane_ = 0;
  size_ = 0;
  return all.take();
}

// ---- reading ----------------------------------------------------------------------------------

bool BlockDecoder::begin(std::span<const uint8_t> raw) {
  expected_.clear();
  ByteSource in(raw);
  if (in.number() != kColumns) return false;
  std::array<uint64_t, kColumns> sizes{};
  for (uint64_t& size : sizes) size = in.number();
  for (size_t n = 0; n < kColumns; ++n) columns_[n] = in.part(sizes[n]);
  return !in.bad() && in.at_end();
}

bool BlockDecoder::get(Launch& launch) {
  const uint64_t index = columns_[kLaunchLane].number();
  if (index == expected_.launch_lanes.size()) {
    ByteSource& in = columns_[kLanes];
    Expectation::Lane fresh;
    fresh.client = {in.small()};
    fresh.device = {in.small()};
    fresh.thread = {in.small()};
    fresh.stream = {in.small()};
    if (in.bad()) return false;
    expected_.add_launch_lane(fresh);
  }
  if (index >= expected_.launch_lanes.size()) return false;
  const Expectation::Lane& lane = expected_.launch_lanes[index];
  Expectation::Stream& stream = expected_.streams[lane.stream_place];
  Expectation::Thread& thread = expected_.threads[lane.thread_place];
  launch = {
      .client = lane.client, .device = lane.device, .thread = lane.thread, .stream = lane.stream};
  launch.kernel = columns_[kLaunchKernel].small();
  launch.sequence = stream.launched = columns_[kLaunchSequence].from(stream.launched + 1);
  thread.at = get_split(columns_[kLaunchAt], columns_[kLaunchAtHigh], thread.at);
  launch.at = {static_cast<int64_t>(thread.at)};
  const uint8_t flags = columns_[kLaunchFlags].byte();
  ByteSource& more = columns_[kLaunchMore];
  if ((flags & kHasHeld) != 0) {
    launch.held = {static_cast<int64_t>(more.number())};
    launch.held_by = {more.small()};
  }
  if ((flags & kHasBytes) != 0) launch.bytes = more.number();
  if ((flags & ~(kHasHeld | kHasBytes)) != 0 || columns_[kLaunchLane].bad() ||
      columns_[kLaunchKernel].bad() || columns_[kLaunchSequence].bad() ||
      columns_[kLaunchAt].bad() || columns_[kLaunchAtHigh].bad() || columns_[kLaunchFlags].bad() ||
      more.bad()) {
    return false;
  }
  expected_.launched(lane, launch.sequence, launch.kernel);
  return true;
}

bool BlockDecoder::get(Timing& timing) {
  const uint64_t index = columns_[kTimingLane].number();
  if (index == expected_.timing_lanes.size()) {
    ByteSource& in = columns_[kLanes];
    Expectation::Lane fresh;
    fresh.client = {in.small()};
    fresh.device = {in.small()};
    fresh.stream = {in.small()};
    if (in.bad()) return false;
    expected_.add_timing_lane(fresh);
  }
  if (index >= expected_.timing_lanes.size()) return false;
  const Expectation::Lane& lane = expected_.timing_lanes[index];
  Expectation::Stream& stream = expected_.streams[lane.stream_place];
  Expectation::Client& client = expected_.clients[lane.client_place];
  timing = {.client = lane.client, .device = lane.device, .stream = lane.stream};
  timing.sequence = stream.timed = columns_[kTimingSequence].from(stream.timed + 1);
  const uint8_t flags = columns_[kTimingFlags].byte();
  timing.kernel = (flags & kOtherKernel) != 0 ? columns_[kTimingKernel].small()
                                              : expected_.kernel_of(lane, timing.sequence);
  Expectation::Kernel& kernel = expected_.kernel(timing.kernel);
  if ((flags & kHasStart) != 0) {
    timing.start = {static_cast<int64_t>(columns_[kTimingStart].from(client.start))};
  }
  kernel.duration =
      get_split(columns_[kTimingDuration], columns_[kTimingDurationHigh], kernel.duration);
  timing.duration = {static_cast<int64_t>(kernel.duration)};
  if ((flags & kHasGap) != 0) {
    kernel.gap = get_split(columns_[kTimingGap], columns_[kTimingGapHigh], kernel.gap);
    timing.gap = {static_cast<int64_t>(kernel.gap)};
  }
  if ((flags & kHasStart) != 0) {
    client.start = word(timing.start) + word(timing.duration) +
                   ((flags & kHasGap) != 0 ? word(timing.gap) : 0);
  }
  for (size_t n = kTimingLane; n <= kTimingGapHigh; ++n) {
    if (columns_[n].bad()) return false;
  }
  return (flags & ~(kHasStart | kHasGap | kOtherKernel)) == 0;
}

bool BlockDecoder::rare(Event& event, size_t kind, KernelIndex kernels) {
  EventSource source{{columns_[kRare]}};
  const auto take = [&]<typename E>(E e) {
    fields(source, e);
    if constexpr (std::is_same_v<E, KernelInfo>) e.index = kernels;
    event = std::move(e);
    return source.good();
  };
  switch (kind) {
    case 0:
      return take(DeviceInfo{});
    case 1:
      return take(ClientStarted{});
    case 2:
      return take(ClientEnded{});
    case 3:
      return take(PriorityChange{});
    case 4:
      return take(PolicyChange{});
    case 5:
      return take(KernelInfo{});
    case 8:
      return take(Synced{});
    case 9:
      return take(MemoryUse{});
    case 10:
      return take(Lost{});
    case 11:
      return take(Cancelled{});
    case 12:
      return take(Waited{});
    case 13:
      return take(RangeInfo{});
    case 14:
      return take(Range{});
    default:
      return false;
  }
}
static_assert(std::variant_size_v<Event> == 15);

BlockDecoder::Result BlockDecoder::next(Event& event, KernelIndex kernels) {
  if (columns_[kKinds].at_end()) {
    for (const ByteSource& column : columns_) {
      if (!column.at_end()) return Result::kBad;
    }
    return Result::kEnd;
  }
  const size_t kind = columns_[kKinds].byte();
  bool good = false;
  if (kind == kLaunchKind) {
    Launch launch;
    good = get(launch);
    event = launch;
  } else if (kind == kTimingKind) {
    Timing timing;
    good = get(timing);
    event = timing;
  } else {
    good = rare(event, kind, kernels);
  }
  return good ? Result::kEvent : Result::kBad;
}

// ---- what can be ------------------------------------------------------------------------------

namespace {

constexpr int64_t kLatest = int64_t{1} << 62;
constexpr uint8_t kLevels = 10;
bool in_time(Instant at) { return at.ns >= 0 && at.ns < kLatest; }
bool in_time(Duration length) { return length.ns >= 0 && length.ns < kLatest; }

struct Sanity {
  bool operator()(const DeviceInfo&) const { return true; }
  bool operator()(const ClientStarted& e) const {
    return in_time(e.at) && e.priority.level < kLevels;
  }
  bool operator()(const PriorityChange& e) const {
    return in_time(e.at) && e.priority.level < kLevels;
  }
  bool operator()(const KernelInfo& e) const { return e.kind <= UnitKind::kMemset; }
  bool operator()(const Launch& e) const { return in_time(e.at) && in_time(e.held); }
  bool operator()(const RangeInfo&) const { return true; }
  bool operator()(const Range& e) const {
    return in_time(e.from) && in_time(e.until) && e.from.ns <= e.until.ns &&
           e.kind <= RangeKind::kMark;
  }
  bool operator()(const Waited& e) const {
    return in_time(e.from) && in_time(e.until) && e.from.ns <= e.until.ns;
  }
  bool operator()(const Timing& e) const {
    return in_time(e.duration) && e.start.ns < kLatest && e.gap.ns < kLatest;
  }
  template <typename E>
  bool operator()(const E& e) const {
    return in_time(e.at);
  }
};

}  // namespace

bool is_sane(const Event& event) { return std::visit(Sanity{}, event); }

// ---- the head ---------------------------------------------------------------------------------

std::vector<uint8_t> encode_info(const FileInfo& info) {
  FileInfo copy = info;
  ByteSink out;
  EventSink sink{{out}};
  fields(sink, copy);
  return out.take();
}

bool decode_info(std::span<const uint8_t> raw, FileInfo& info) {
  ByteSource in(raw);
  EventSource source{{in}};
  fields(source, info);
  return source.good();
}

}  // namespace lull::trace
