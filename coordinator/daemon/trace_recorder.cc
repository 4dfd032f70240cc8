#include "coordinator/daemon/trace_recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/channel/identity.h"
#include "coordinator/daemon/file_descriptor.h"

namespace lull::daemon {
namespace {

constexpr uint64_t kFlushEveryNs = 1'000'000'000;
constexpr size_t kNameBytesMost = 4UL << 10;  // the shim keeps no more of a name or a call site
// Of one recording. What comes beyond is one kernel called "?".
constexpr size_t kMaxTracedKernels = 1UL << 20;
constexpr size_t kMaxTracedRanges = 1UL << 16;
constexpr size_t kRangeNameMost = 256;
constexpr uint64_t kDeepestRange = 255;

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

std::expected<std::unique_ptr<TraceRecorder>, std::string> TraceRecorder::open(
    TraceOrder order, const DeviceTable& devices, WaitsFor waits_for) {
  // Here, so that a name that will not do is said now and not when the first client comes.
  const FileDescriptor file(::open(order.file.c_str(),
                                   O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
                                       O_NOFOLLOW, 0644));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0) {
    return std::unexpected(fmt::format("cannot write {}: {}: name a file that can be written",
                                       order.file, strerror(errno)));
  }
  if (!S_ISREG(about.st_mode) || about.st_size != 0) {
    return std::unexpected(fmt::format("cannot write {}: {}: name another, or remove it",
                                       order.file,
                                       S_ISREG(about.st_mode) ? "it is there already"
                                                              : "it is no regular file"));
  }
  return std::unique_ptr<TraceRecorder>(
      new TraceRecorder(std::move(order), devices, std::move(waits_for)));
}

TraceRecorder::TraceRecorder(TraceOrder order, const DeviceTable& devices, WaitsFor waits_for)
    : order_(std::move(order)), table_(devices), waits_for_(std::move(waits_for)) {}

void TraceRecorder::begin(const Clock& clock, const std::string& policy) {
  if (writer_ || !failure_.empty()) return;
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  const Instant now = clock.now();
  trace::FileInfo info;
  info.created_unix_ns = wall.tv_sec * 1'000'000'000 + wall.tv_nsec;
  info.created_at = now;
  info.lull_version = LULL_VERSION;
  info.host = host_name();
  info.source = order_.source;
  info.command = order_.command;
  info.simulated = clock.is_simulated();
  info.slow_motion = clock.slow_motion();
  info.sharing = clock.sharing();
  auto writer = trace::Writer::create(order_.file, info, trace::Writer::WhenBehind::kDrop);
  if (!writer) {
    failure_ = writer.error();
    return;
  }
  writer_ = std::move(*writer);
  policy_changed(policy, now);
}

template <typename E>
void TraceRecorder::add(E event) {
  if (!writer_ || closing_) return;
  writer_->add(trace::Event(std::in_place_type<E>, std::move(event)));
  dirty_ = true;
}

// ---- clients ----------------------------------------------------------------------------------

TraceRecorder::Client& TraceRecorder::client(ClientId id) {
  if (last_client_ == nullptr || last_id_ != id) {
    last_client_ = &clients_[id.value];
    last_id_ = id;
  }
  return *last_client_;
}

void TraceRecorder::client_started(Session& session, const channel::ThreadTotals& before,
                                   Instant now) {
  if (closing_) return;
  session.observer = this;
  Client& fresh = client(session.id());
  fresh = Client();
  fresh.before = before;
  fresh.lost = before.dropped;
  const SessionBirth& who = session.who();
  add(trace::ClientStarted{.client = session.id(),
                           .at = now,
                           .pid = who.peer.pid,
                           .priority = who.priority,
                           .task = who.task,
                           .job = who.job_name,
                           .program = who.program});
}

void TraceRecorder::client_ended(Session& session, Instant now) {
  session.observer = nullptr;
  const auto found = clients_.find(session.id().value);
  if (found == clients_.end()) return;
  const channel::ThreadTotals& before = found->second.before;
  const channel::ThreadTotals totals = session.totals();
  // A client's counters are its own to write: a difference may be nonsense, never a crash.
  add(trace::ClientEnded{.client = session.id(),
                         .at = now,
                         .launches = totals.launches - before.launches,
                         .copies = totals.copies - before.copies,
                         .memsets = totals.memsets - before.memsets,
                         .dropped = totals.dropped - before.dropped});
  last_client_ = nullptr;
  clients_.erase(found);
}

void TraceRecorder::priority_changed(ClientId id, Priority priority, Instant now) {
  add(trace::PriorityChange{id, now, priority});
}

void TraceRecorder::policy_changed(const std::string& policy, Instant now) {
  add(trace::PolicyChange{now, policy});
}

// Before anything that names it.
void TraceRecorder::name_device(DeviceId id) {
  if (id == last_device_) [[likely]] return;
  last_device_ = id;
  if (!devices_.insert(id.value).second) return;
  trace::DeviceInfo info{.device = id};
  if (const DeviceRow* row = table_.find(id)) {
    info.uuid = uuid_text(row->known.uuid, row->known.instance);
    info.name = row->known.name;
    info.total_bytes = row->known.total_bytes;
  }
  add(std::move(info));
}

void TraceRecorder::drained(Session& session, Instant now) {
  if (!writer_ || session.observer != this) return;
  Client& mine = client(session.id());
  for (uint32_t index = 0; index < session.device_count(); ++index) {
    const auto device = session.device(index);
    if (!device) continue;
    const uint64_t used = channel::memory_used(session.region(), index);
    if (used == mine.memory[index]) continue;
    name_device(*device);
    mine.memory[index] = used;
    add(trace::MemoryUse{session.id(), *device, now, used});
  }
  const uint64_t dropped = session.dropped();
  if (dropped > mine.lost) {
    add(trace::Lost{session.id(), now, dropped - mine.lost});
    lost_ += dropped - mine.lost;
  }
  mine.lost = dropped;
}

// ---- records ----------------------------------------------------------------------------------

trace::KernelIndex TraceRecorder::kernel(Client& mine, Session& session, uint32_t slot) {
  if (slot < mine.kernels.size() && mine.kernels[slot] != 0) [[likely]] {
    return mine.kernels[slot] - 1;
  }
  trace::KernelInfo info;
  info.name = "?";
  if (slot < session.kernel_count() && kernels_.size() < kMaxTracedKernels) {
    const channel::Region region = session.region();
    const channel::KernelShape shape = channel::kernel_shape(region, slot);
    info.id = {channel::kernel_id(region, slot)};
    info.image_hash = shape.image_hash;
    info.kind = shape.kind <= channel::kKindMemset ? static_cast<trace::UnitKind>(shape.kind)
                                                   : trace::UnitKind::kKernel;
    info.name = channel::kernel_name(region, slot, kNameBytesMost);
    info.grid = shape.grid;
    info.block = shape.block;
    info.shared_bytes = shape.shared_bytes;
    info.graph_kernels = shape.graph_kernels;
    info.call_site = channel::kernel_call_site(region, slot, kNameBytesMost);
  }
  const std::string content =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}\n{}\n{}", info.id.value, info.image_hash,
                  static_cast<int>(info.kind), info.grid[0], info.grid[1], info.grid[2],
                  info.block[0], info.block[1], info.block[2], info.shared_bytes,
                  info.graph_kernels, info.name.size(), info.name, info.call_site);
  const Content key{channel::hash_bytes(content.data(), content.size(), 1),
                    channel::hash_bytes(content.data(), content.size(), 2)};
  const auto [known, fresh] =
      kernels_.try_emplace(key, static_cast<trace::KernelIndex>(kernels_.size()));
  if (fresh) {
    info.index = known->second;
    add(std::move(info));
  }
  // A slot that nothing was said of yet may get its name later.
  if (slot >= session.kernel_count()) return known->second;
  if (slot >= mine.kernels.size()) mine.kernels.resize(slot + 1, 0);
  mine.kernels[slot] = known->second + 1;
  return known->second;
}

void TraceRecorder::launched(Session& session, const channel::lull_record& record,
                             ThreadSlot thread, DeviceId device, Instant at) {
  if (!writer_) return;
  name_device(device);
  Client& mine = client(session.id());
  trace::Launch launch{.client = session.id(),
                       .device = device,
                       .thread = thread,
                       .stream = {record.stream},
                       .kernel = kernel(mine, session, record.kernel),
                       .sequence = record.sequence,
                       .at = at,
                       .bytes = record.value0};
  if (!mine.held.empty()) [[unlikely]] {
    const auto note = mine.held.find(thread.value);
    if (note != mine.held.end()) {
      if (record.ticket != 0 && note->second.ticket.value == record.ticket) {
        launch.at = std::min(note->second.since, at);
        launch.held = at - launch.at;
        launch.held_by = note->second.by;
        // Held and let go between two looks: as of the last step, it is still the same reason.
        if (launch.held_by.value == 0) {
          launch.held_by = waits_for_(session.id(), device).value_or(ClientId{});
        }
      }
      mine.held.erase(note);
    }
  }
  ++launches_;
  add(launch);
}

void TraceRecorder::held(Session& session, ThreadSlot thread, Ticket ticket, DeviceId device,
                         Instant since) {
  HeldNote& note = client(session.id()).held[thread.value];
  // Said again while it waits.
  if (note.ticket == ticket && ticket.value != 0) return;
  note = {.ticket = ticket, .device = device, .since = since};
  newly_held_.push_back({session.id(), thread});
}

void TraceRecorder::stepped() {
  for (const auto& [id, thread] : newly_held_) {
    const auto mine = clients_.find(id.value);
    if (mine == clients_.end()) continue;
    const auto note = mine->second.held.find(thread.value);
    if (note == mine->second.held.end()) continue;
    note->second.by = waits_for_(id, note->second.device).value_or(ClientId{});
  }
  newly_held_.clear();
}

void TraceRecorder::timed(Session& session, const channel::lull_record& record, Instant launched) {
  const auto device =
      record.device < session.device_count() ? session.device(record.device) : std::nullopt;
  if (!writer_ || !device || record.stream >= channel::kMaxStreams) return;
  name_device(*device);
  Client& mine = client(session.id());
  const bool gap_known = record.value1 <= static_cast<uint64_t>(INT64_MAX) / 4;
  ++timings_;
  add(trace::Timing{
      .client = session.id(),
      .device = *device,
      .stream = {record.stream},
      .sequence = record.sequence,
      .kernel = kernel(mine, session, record.kernel),
      .start = mine.starts.at(record.device, record.device_start, launched),
      .duration = {static_cast<int64_t>(record.value0)},
      .gap = {gap_known ? static_cast<int64_t>(record.value1) : -1},
  });
}

void TraceRecorder::synced(Session& session, ThreadSlot thread, StreamSlot stream,
                           uint64_t sequence, Duration waited, Instant at) {
  if (waited.ns > 0 && waited.ns <= at.ns) {
    add(trace::Waited{session.id(), thread, at - waited, at});
  }
  add(trace::Synced{session.id(), stream, sequence, at});
}

// Of a client's name offsets. A client can name no more ranges than its name area has places, and a
// recording no more than kMaxTracedRanges: the others are one, without a name.
trace::RangeIndex TraceRecorder::range(Client& mine, Session& session, uint32_t name,
                                       uint32_t domain) {
  const uint64_t key = uint64_t{domain} << 32 | name;
  if (const auto known = mine.ranges.find(key); known != mine.ranges.end()) return known->second;
  const auto text = [&](uint32_t offset) {
    return offset == 0 ? std::string() : channel::name_at(session.region(), offset, kRangeNameMost);
  };
  trace::RangeInfo info;
  if (ranges_.size() < kMaxTracedRanges) {
    info.domain = text(domain);
    info.name = text(name);
  }
  const auto [found, fresh] = ranges_.try_emplace(
      {info.domain, info.name}, static_cast<trace::RangeIndex>(ranges_.size()));
  if (fresh) {
    info.index = found->second;
    add(std::move(info));
  }
  if (mine.ranges.size() < kMaxTracedRanges) mine.ranges.emplace(key, found->second);
  return found->second;
}

void TraceRecorder::ranged(Session& session, const channel::lull_record& record, ThreadSlot thread,
                           Duration length, Instant at) {
  if (!writer_ || record.stream > channel::kRangeMark) return;
  const auto kind = static_cast<trace::RangeKind>(record.stream);
  add(trace::Range{
      .client = session.id(),
      .thread = thread,
      .range = range(client(session.id()), session, record.kernel, record.device),
      .kind = kind,
      .depth = static_cast<uint32_t>(std::min<uint64_t>(record.sequence, kDeepestRange)),
      .from = {std::max<int64_t>(0, at.ns - length.ns)},
      .until = at,
  });
}

void TraceRecorder::cancelled(Session& session, StreamSlot stream, uint64_t sequence, Instant at) {
  add(trace::Cancelled{session.id(), stream, sequence, at});
}

// ---- the file ---------------------------------------------------------------------------------

void TraceRecorder::keep(uint64_t monotonic_ns) {
  if (monotonic_ns >= next_flush_ns_) {
    if (writer_) writer_->flush();
    dirty_ = false;
    next_flush_ns_ = UINT64_MAX;
  } else if (dirty_ && next_flush_ns_ == UINT64_MAX) {
    next_flush_ns_ = monotonic_ns + kFlushEveryNs;
  }
}

void TraceRecorder::close() {
  if (writer_) writer_->flush();
  closing_ = true;
  dirty_ = false;
  next_flush_ns_ = UINT64_MAX;
}

nlohmann::json TraceRecorder::figures() const {
  return {{"file", order_.file},
          {"running", !closing_},
          {"written", closing_ && is_written()},
          {"bytes", writer_ ? writer_->bytes() : 0},
          {"launches", launches_},
          {"timings", timings_},
          {"lost", lost_},
          {"dropped", writer_ ? writer_->dropped() : 0},
          {"failure", writer_ ? writer_->failure() : failure_}};
}

}  // namespace lull::daemon
