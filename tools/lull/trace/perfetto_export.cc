#include "tools/lull/trace/perfetto_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/lull/trace/kernel_display.h"

namespace lull::trace {
namespace {

// Field numbers of perfetto's public schema (protos/perfetto/trace), as far as they are used here.
namespace packet_field {
constexpr uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kInternedData = 12,
                   kSequenceFlags = 13, kTrackDescriptor = 60;
}
namespace track_field {
constexpr uint32_t kUuid = 1, kName = 2, kProcess = 3, kParentUuid = 5, kCounter = 8;
}
namespace event_field {
constexpr uint32_t kDebugAnnotations = 4, kType = 9, kNameIid = 10, kTrackUuid = 11,
                   kCategories = 22, kName = 23, kCounterValue = 30, kFlowIds = 47;
}
namespace annotation_field {
constexpr uint32_t kInt = 4, kString = 6, kName = 10;
}
constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kInternedEventNames = 2, kInternedIid = 1, kInternedName = 2;
constexpr uint32_t kProcessPid = 1, kProcessName = 6;
constexpr uint32_t kCounterUnit = 3, kUnitCount = 2, kUnitSizeBytes = 3;
constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
constexpr uint64_t kSequence = 1;  // all packets are of one sequence
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;

constexpr uint32_t kFreeRanges = 256;  // from here on places of ranges that are not nested

// Event names 1 and 2 are ours, kernels follow by index.
constexpr uint64_t kLaunchName = 1, kHeldName = 2, kFirstKernelName = 3;

ProtobufMessage event(uint64_t type, uint64_t track_uuid) {
  ProtobufMessage message;
  message.number(event_field::kType, type).number(event_field::kTrackUuid, track_uuid);
  return message;
}

ProtobufMessage named(uint64_t iid, std::string_view name) {
  ProtobufMessage entry, interned;
  entry.number(kInternedIid, iid).text(kInternedName, name);
  interned.message(kInternedEventNames, entry);
  return interned;
}

void annotate(ProtobufMessage& event, std::string_view name, int64_t value) {
  ProtobufMessage note;
  note.text(annotation_field::kName, name).integer(annotation_field::kInt, value);
  event.message(event_field::kDebugAnnotations, note);
}
void annotate(ProtobufMessage& event, std::string_view name, std::string_view value) {
  ProtobufMessage note;
  note.text(annotation_field::kName, name).text(annotation_field::kString, value);
  event.message(event_field::kDebugAnnotations, note);
}

uint64_t mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  return value ^ value >> 33;
}
uint64_t flow_of(ClientId client, StreamSlot stream, uint64_t sequence) {
  return mix(mix(uint64_t{client.value} << 32 | stream.value) + sequence) | 1;
}

}  // namespace

PerfettoExport::PerfettoExport(const FileInfo& info, std::FILE* out) : info_(info), out_(out) {
  packet(named(kLaunchName, "launch"), packet_field::kInternedData);
  packet(named(kHeldName, "held"), packet_field::kInternedData);
}
PerfettoExport::~PerfettoExport() = default;

void PerfettoExport::feed(const Event& event) {
  std::visit([this](const auto& one) { on(one); }, event);
}

void PerfettoExport::on(const DeviceInfo& device) { devices_[device.device.value] = device; }
void PerfettoExport::on(const ClientStarted& client) { clients_[client.client.value] = client; }

void PerfettoExport::on(const KernelInfo& kernel) {
  kernels_.resize(std::max<size_t>(kernels_.size(), size_t{kernel.index} + 1));
  kernels_[kernel.index] = {kernel.kind, shape_text(kernel)};
  packet(named(kFirstKernelName + kernel.index, display_name(kernel.name)),
         packet_field::kInternedData);
}

void PerfettoExport::on(const Launch& launch) {
  Track& thread = track(TrackKind::kThread, launch.client.value, launch.thread.value);
  if (launch.held.ns > 0) {
    ProtobufMessage held = event(kSliceBegin, thread.uuid);
    held.number(event_field::kNameIid, kHeldName).text(event_field::kCategories, "gate");
    if (launch.held_by.value != 0) {
      const auto by = clients_.find(launch.held_by.value);
      annotate(held, "held_by",
               by != clients_.end() ? fmt::format("{} ({})", by->second.task, launch.held_by.value)
                                    : fmt::format("{}", launch.held_by.value));
    }
    annotate(held, "held_ns", launch.held.ns);
    slice(thread, launch.at.ns, launch.at.ns + launch.held.ns, std::move(held));
    auto& gate = gates_[launch.client.value];
    if (!gate) {
      const uint64_t uuid = track(TrackKind::kGate, launch.client.value).uuid;
      gate = std::make_unique<BusyUnion>([this, uuid](int64_t start_ns, int64_t end_ns) {
        counter(uuid, start_ns, 1);
        counter(uuid, end_ns, 0);
      });
    }
    gate->add(launch.at.ns, launch.at.ns + launch.held.ns);
  }
  ProtobufMessage instant = event(kInstant, thread.uuid);
  instant.number(event_field::kNameIid, kLaunchName)
      .text(event_field::kCategories, "launch")
      .fixed64(event_field::kFlowIds, flow_of(launch.client, launch.stream, launch.sequence));
  packet(instant, packet_field::kTrackEvent, launch.at.ns + std::max<int64_t>(0, launch.held.ns));
}

void PerfettoExport::on(const Timing& timing) {
  if (timing.start.ns < 0) return;
  Track& stream =
      track(TrackKind::kStream, timing.device.value, timing.client.value, timing.stream.value);
  ProtobufMessage begin = event(kSliceBegin, stream.uuid);
  const Kernel* kernel = timing.kernel < kernels_.size() ? &kernels_[timing.kernel] : nullptr;
  begin.number(event_field::kNameIid, kFirstKernelName + timing.kernel)
      .text(event_field::kCategories, kernel != nullptr ? kind_name(kernel->kind) : "kernel")
      .fixed64(event_field::kFlowIds, flow_of(timing.client, timing.stream, timing.sequence));
  annotate(begin, "duration_ns", timing.duration.ns);
  annotate(begin, "sequence", static_cast<int64_t>(timing.sequence));
  if (kernel != nullptr && !kernel->shape.empty()) annotate(begin, "grid / block", kernel->shape);
  if (timing.gap.ns >= 0) annotate(begin, "gap_after_ns", timing.gap.ns);
  slice(stream, timing.start.ns, timing.start.ns + timing.duration.ns, std::move(begin));
}

void PerfettoExport::on(const MemoryUse& use) {
  counter(track(TrackKind::kMemory, use.client.value, use.device.value).uuid, use.at.ns,
          static_cast<int64_t>(std::min<uint64_t>(use.used_bytes, INT64_MAX)));
}

void PerfettoExport::on(const Lost& lost) {
  ProtobufMessage instant = event(kInstant, track(TrackKind::kClient, lost.client.value).uuid);
  instant.text(event_field::kName, "records lost").text(event_field::kCategories, "lost");
  annotate(instant, "records", static_cast<int64_t>(lost.records));
  packet(instant, packet_field::kTrackEvent, lost.at.ns);
}

void PerfettoExport::on(const RangeInfo& info) {
  ranges_.resize(std::max<size_t>(ranges_.size(), size_t{info.index} + 1));
  ranges_[info.index] = {info.index, without_controls(info.domain), without_controls(info.name)};
}

void PerfettoExport::on(const Range& range) {
  const bool known = range.range < ranges_.size();
  const std::string name = known ? ranges_[range.range].name : "?";
  // Ranges that overlap each other but are not nested have a track by name.
  const uint32_t place = range.kind == RangeKind::kNested ? range.depth : kFreeRanges + range.range;
  Track& track = this->track(TrackKind::kRanges, range.client.value, range.thread.value, place);
  ProtobufMessage begin = event(range.kind == RangeKind::kMark ? kInstant : kSliceBegin, track.uuid);
  begin.text(event_field::kName, name.empty() ? "?" : name).text(event_field::kCategories, "range");
  if (known && !ranges_[range.range].domain.empty()) {
    annotate(begin, "domain", ranges_[range.range].domain);
  }
  if (range.kind == RangeKind::kMark) {
    packet(begin, packet_field::kTrackEvent, range.from.ns);
  } else {
    slice(track, range.from.ns, range.until.ns, std::move(begin));
  }
}

PerfettoExport::Track& PerfettoExport::track(TrackKind kind, uint32_t a, uint32_t b, uint32_t c) {
  const TrackKey key{kind, a, b, c};
  const auto [found, added] = tracks_.try_emplace(key);
  if (added) {
    found->second.uuid = 0x6c756c6c0000ULL + tracks_.size();
    // What contains it is described first; references in a std::map stay valid.
    if (kind == TrackKind::kStream) track(TrackKind::kDevice, a);
    if (kind == TrackKind::kThread || kind == TrackKind::kMemory || kind == TrackKind::kGate ||
        kind == TrackKind::kRanges) {
      track(TrackKind::kClient, a);
    }
    describe(key, found->second.uuid);
  }
  return found->second;
}

void PerfettoExport::describe(const TrackKey& key, uint64_t uuid) {
  const auto [kind, a, b, c] = key;
  const auto task = [this](uint32_t client) {
    const auto found = clients_.find(client);
    return fmt::format("{} ({})", found != clients_.end() ? found->second.task : "?", client);
  };
  const auto parent = [this](TrackKind of, uint32_t id) { return tracks_.at({of, id, 0, 0}).uuid; };
  ProtobufMessage track, detail;
  track.number(track_field::kUuid, uuid);
  switch (kind) {
    case TrackKind::kDevice: {
      const auto found = devices_.find(a);
      const std::string name = found != devices_.end() ? found->second.name : "";
      track.text(track_field::kName,
                 fmt::format("GPU {} {}{}", a, name, info_.simulated ? " (simulated)" : ""));
      break;
    }
    case TrackKind::kStream:
      track.text(track_field::kName, fmt::format("{} stream {}", task(b), c))
          .number(track_field::kParentUuid, parent(TrackKind::kDevice, a));
      break;
    case TrackKind::kClient: {
      const auto found = clients_.find(a);
      const int32_t pid = found != clients_.end() ? found->second.pid : 0;
      // Processes are told apart by pid; a recording that knows none gets its client's number.
      detail.integer(kProcessPid, pid > 0 ? pid : static_cast<int32_t>(a & 0x7fffffff))
          .text(kProcessName, task(a));
      track.message(track_field::kProcess, detail);
      break;
    }
    case TrackKind::kThread:
      track.text(track_field::kName, fmt::format("thread {}", b))
          .number(track_field::kParentUuid, parent(TrackKind::kClient, a));
      break;
    case TrackKind::kRanges:
      track
          .text(track_field::kName,
                c < kFreeRanges ? fmt::format("ranges of thread {}, level {}", b, c + 1)
                                : fmt::format("ranges started, ended by thread {}", b))
          .number(track_field::kParentUuid, parent(TrackKind::kClient, a));
      break;
    case TrackKind::kMemory:
    case TrackKind::kGate:
      detail.number(kCounterUnit, kind == TrackKind::kMemory ? kUnitSizeBytes : kUnitCount);
      track
          .text(track_field::kName, kind == TrackKind::kMemory
                                        ? fmt::format("memory on GPU {}", b)
                                        : std::string("gate (1: a launch is held)"))
          .number(track_field::kParentUuid, parent(TrackKind::kClient, a))
          .message(track_field::kCounter, detail);
      break;
  }
  packet(track, packet_field::kTrackDescriptor);
}

void PerfettoExport::slice(Track& track, int64_t start_ns, int64_t end_ns, ProtobufMessage begin) {
  start_ns = std::max(start_ns, track.until_ns);
  end_ns = std::max(start_ns, end_ns);
  track.until_ns = end_ns;
  packet(begin, packet_field::kTrackEvent, start_ns);
  packet(event(kSliceEnd, track.uuid), packet_field::kTrackEvent, end_ns);
}

void PerfettoExport::counter(uint64_t uuid, int64_t at_ns, int64_t value) {
  ProtobufMessage message = event(kCounter, uuid);
  message.integer(event_field::kCounterValue, value);
  packet(message, packet_field::kTrackEvent, at_ns);
}

void PerfettoExport::packet(const ProtobufMessage& body, uint32_t field, int64_t at_ns) {
  ProtobufMessage packet, outer;
  // Times below zero have no place in the format: a clock does not run before its start.
  if (at_ns != INT64_MIN) {
    packet.number(packet_field::kTimestamp, static_cast<uint64_t>(std::max<int64_t>(0, at_ns)));
  }
  packet.number(packet_field::kSequenceId, kSequence)
      .number(packet_field::kSequenceFlags, first_packet_ ? kStateCleared : kNeedsState)
      .message(field, body);
  first_packet_ = false;
  outer.message(kTracePacket, packet);
  write(outer.bytes());
}

void PerfettoExport::write(const std::string& bytes) {
  buffer_ += bytes;
  if (buffer_.size() < kBufferBytes) return;
  if (error_ == 0 && std::fwrite(buffer_.data(), 1, buffer_.size(), out_) != buffer_.size()) {
    error_ = errno;
  }
  buffer_.clear();
}

std::expected<void, std::string> PerfettoExport::finish() {
  for (auto& [client, gate] : gates_) gate->finish();
  if (error_ == 0 && std::fwrite(buffer_.data(), 1, buffer_.size(), out_) != buffer_.size()) {
    error_ = errno;
  }
  buffer_.clear();
  if (error_ == 0 && std::fflush(out_) != 0) error_ = errno;
  if (error_ != 0) return std::unexpected(std::strerror(error_));
  return {};
}

}  // namespace lull::trace
