#include "coordinator/daemon/session.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "coordinator/channel/model_clock.h"
#include "coordinator/channel/progress.h"
#include "coordinator/channel/ring.h"
#include "coordinator/daemon/event_cost.h"

namespace lull::daemon {
namespace {

using channel::kMaxDevices;
using channel::kMaxStreams;
using channel::kMaxThreads;
using channel::lull_record;

constexpr uint64_t kHeadLieWeight = 16;
constexpr int64_t kLongestKernelNs = 3'600'000'000'000;
// A held launch that its thread no longer shows and that no record explains (its ring was full) is
// taken for launched after this long.
constexpr Duration kVanishedAfter{5'000'000};
constexpr Duration kToldAgainAfter{40'000'000};
constexpr size_t kNameShown = 512;

}  // namespace

Session::Session(SessionBirth birth, FileDescriptor socket, FileDescriptor pidfd,
                 ClientRegion region)
    : who_(std::move(birth)),
      socket_(std::move(socket)),
      pidfd_(std::move(pidfd)),
      memory_(std::move(region)),
      region_(memory_.view()) {
  memory_.drop_fd();
}

std::string task_key(const SessionBirth& who) {
  return (std::to_string(who.peer.uid) + "/" + who.task).substr(0, engine::kMaxTaskKey);
}

// ---- in ---------------------------------------------------------------------------------------

void Session::map_devices(Instant now, DeviceTable& devices, std::vector<StampedInput>& inputs) {
  device_count_ = std::max(device_count_, channel::device_count(region_));
  for (uint32_t index = 0; index < device_count_; ++index) {
    Device& device = devices_[index];
    if (device.id || device.looked == devices.generation()) continue;
    const auto entry = channel::read_device(region_, index);
    if (!entry) continue;
    device.looked = devices.generation();
    const uint32_t bit = 1U << index;
    const bool trusted = who_.peer.uid == 0 || who_.peer.uid == ::geteuid();
    const auto id = devices.add_user(*entry, who_.id, trusted);
    if (!id) {
      if ((unknown_devices_ & bit) == 0) {
        device.uuid = entry->uuid;
        device.named_ns = channel::monotonic_ns();
        unknown_devices_ |= bit;
        untold_devices_ |= bit;
        // No ledger serves it there: its own limit holds, and a job's is nobody's to share out.
        set_allowance(index, who_.memory_limit_bytes == 0 ? UINT64_MAX : who_.memory_limit_bytes);
      }
      continue;
    }
    if ((unknown_devices_ & bit) != 0) {
      unknown_devices_ &= ~bit;
      untold_devices_ &= ~bit;
      channel::publish_unknown_devices(region_, unknown_devices_ & ~untold_devices_);
    }
    // The program may know one GPU by two numbers: one use of it, the same gate.
    const auto twin = std::find_if(devices_.begin(), devices_.end(),
                                   [&](const Device& d) { return d.id == *id; });
    if (twin != devices_.end()) {
      device.gate_word = twin->gate_word;
      device.epoch = twin->epoch;
      channel::publish_gate(*region_.control(), index, device.gate_word);
    } else {
      const std::string& model = devices.find(*id)->known.name;
      inputs.emplace_back(now,
                          engine::DeviceUsed{who_.id, *id, model.empty() ? entry->name : model});
    }
    device.id = id;
  }
}

std::vector<Session::UnknownDevice> Session::unknown_devices() const {
  std::vector<UnknownDevice> list;
  for (uint32_t index = 0; index < device_count_; ++index) {
    if ((unknown_devices_ >> index & 1) == 0) continue;
    list.push_back({devices_[index].uuid, (untold_devices_ >> index & 1) == 0});
  }
  return list;
}

bool Session::tell_unknown_devices(uint64_t named_before_ns) {
  const uint32_t before = untold_devices_;
  for (uint32_t index = 0; index < device_count_; ++index) {
    if (devices_[index].named_ns < named_before_ns) untold_devices_ &= ~(1U << index);
  }
  if (untold_devices_ == before) return false;
  channel::publish_unknown_devices(region_, unknown_devices_ & ~untold_devices_);
  return true;
}

void Session::map_kernels() {
  const uint32_t count = channel::kernel_count(region_);
  for (auto slot = static_cast<uint32_t>(kernel_ids_.size()); slot < count; ++slot) {
    const KernelId id{channel::kernel_id(region_, slot)};
    kernel_ids_.push_back(id);
    slot_launches_.push_back(0);
    Kernel& kernel = kernels_[id.value];
    kernel.slots.push_back(slot);
    if (kernel.predicted_ns != 0) channel::publish_prediction(region_, slot, kernel.predicted_ns);
  }
}

bool Session::is_copy(uint32_t slot) const {
  return slot < channel::kMaxKernels && region_.kernel(slot)->kind == channel::kKindCopy;
}

std::optional<KernelId> Session::kernel_of(uint32_t slot) {
  if (slot >= kernel_ids_.size()) map_kernels();
  if (slot < kernel_ids_.size()) return kernel_ids_[slot];
  if (slot == channel::kOverflowKernel) return KernelId{0};
  return std::nullopt;
}

bool Session::drain(const Clock& clock, Instant now, DeviceTable& devices, bool thorough,
                    std::vector<StampedInput>& inputs) {
  map_devices(now, devices, inputs);
  bool any = false;
  ring_high_water_ = 0;
  const uint32_t slots = thorough ? kMaxThreads : std::min(kMaxThreads, threads_seen_ + 1);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    channel::lull_thread& thread = *region_.thread(slot);
    if (slot >= threads_seen_) {
      if (!channel::thread_in_use(thread)) continue;
      threads_seen_ = slot + 1;
    }
    if (channel::ring_has_records(thread)) {
      any = true;
      uint32_t count = 0;
      const uint64_t lost = channel::drain_records(
          thread, region_.ring(slot), channel::kRingRecords, [&](const lull_record& record) {
            ++count;
            take(record, ThreadSlot{slot}, clock, now, inputs);
          });
      if (lost != 0) lie(kHeadLieWeight);
      ring_high_water_ = std::max(ring_high_water_, count);
    }
    look_at_held(ThreadSlot{slot}, clock, now, inputs);
  }
  if (thorough) looked_at_ = now;
  return any;
}

void Session::take(const lull_record& record, ThreadSlot thread, const Clock& clock, Instant now,
                   std::vector<StampedInput>& inputs) {
  Instant& last = last_at_[thread.value];
  // A timing record is of a launch long recorded.
  const bool stamped = record.tsc != 0 && record.kind != channel::kRecordTiming;
  // It was not there at the last look, so it went to the driver later, whatever its stamp says.
  const Instant said = stamped ? clock.at_ticks(record.tsc, now) : now;
  const Instant at = last = std::max({last, said, std::min(looked_at_, now)});
  const Instant traced = stamped ? traced_at(record.tsc, clock, at) : at;
  switch (record.kind) {
    case channel::kRecordLaunch:
      return take_launch(record, thread, at, traced, inputs);
    case channel::kRecordHeld:
      return take_held({.ticket = record.ticket,
                        .kernel = record.kernel,
                        .device = record.device,
                        .stream = record.stream,
                        .since_ticks = record.tsc},
                       thread, at, traced, inputs);
    case channel::kRecordTiming: {
      const auto kernel = kernel_of(record.kernel);
      if (!kernel || record.value0 > static_cast<uint64_t>(kLongestKernelNs)) return lie();
      const Instant launched = record.tsc == 0 ? kNever : clock.at_ticks(record.tsc, now);
      const bool gap_known = record.value1 <= static_cast<uint64_t>(kLongestKernelNs);
      MeasuredLaunch timed{Duration{static_cast<int64_t>(record.value0)},
                           Duration{gap_known ? static_cast<int64_t>(record.value1) : -1}};
      if (!clock.is_simulated()) timed = without_events(timed);
      if (observer != nullptr) [[unlikely]] {
        lull_record own = record;
        own.value0 = static_cast<uint64_t>(timed.duration.ns);
        if (gap_known) own.value1 = static_cast<uint64_t>(timed.gap.ns);
        observer->timed(*this, own,
                        record.tsc == 0 ? kNever : traced_at(record.tsc, clock, launched));
      }
      inputs.emplace_back(at, engine::Timed{who_.id, *kernel, timed.duration, timed.gap, launched,
                                            StreamSlot{record.stream}, record.sequence});
      return;
    }
    case channel::kRecordCancel: {
      if (record.stream >= kMaxStreams) return lie();
      if (record.kernel < slot_launches_.size() && slot_launches_[record.kernel] != 0) {
        --slot_launches_[record.kernel];
      }
      if (observer != nullptr) [[unlikely]] {
        observer->cancelled(*this, StreamSlot{record.stream}, record.sequence, traced);
      }
      inputs.emplace_back(at,
                          engine::Cancelled{who_.id, StreamSlot{record.stream}, record.sequence});
      // Nothing will report a refused launch complete; the one before it will be.
      Stream& stream = streams_[record.stream];
      if (stream.tracked == record.sequence) {
        stream.tracked = record.sequence - 1;
        if (stream.completed >= stream.tracked) streams_in_flight_.reset(record.stream);
      }
      return;
    }
    case channel::kRecordSynced:
      if (record.stream >= kMaxStreams) return lie();
      if (observer != nullptr) [[unlikely]] {
        observer->synced(*this, thread, StreamSlot{record.stream}, record.sequence,
                         clock.length_of(record.value1), traced);
      }
      return complete(StreamSlot{record.stream}, record.sequence, at, inputs, /*synced=*/true);
    case channel::kRecordRange:
      if (observer != nullptr) [[unlikely]] {
        observer->ranged(*this, record, thread, clock.length_of(record.value0), traced);
      }
      return;
    case channel::kRecordMemory:
    case channel::kRecordResidence:
      residence_news_ = true;
      return;  // the ledger looks after every drain
    default:
      return lie();
  }
}

// What the engine is told lies between two looks. What a trace says is when the client says it was,
// so that its launches, waits and ranges fit into each other however late the loop is.
Instant Session::traced_at(uint64_t ticks, const Clock& clock, Instant at) const {
  return observer == nullptr ? at : clock.at_ticks(ticks, clock.now());
}

void Session::take_launch(const lull_record& record, ThreadSlot thread, Instant at, Instant traced,
                          std::vector<StampedInput>& inputs) {
  const auto kernel = kernel_of(record.kernel);
  if (!kernel || record.device >= device_count_ || record.stream >= kMaxStreams ||
      record.sequence == 0) {
    return lie();
  }
  if (record.kernel < slot_launches_.size()) ++slot_launches_[record.kernel];
  if (!devices_[record.device].id) return;  // unknown: unscheduled
  if (observer != nullptr) [[unlikely]] {
    observer->launched(*this, record, thread, *devices_[record.device].id, traced);
  }
  if ((record.flags & channel::kFlagAside) != 0) return;
  Stream& stream = streams_[record.stream];
  const bool tracked =
      (record.flags & channel::kFlagMarker) != 0 && record.stream != channel::kUntrackedStream;
  const bool says_charge = (record.flags & channel::kFlagCharged) != 0;
  const Duration charged{says_charge ? static_cast<int64_t>(std::min<uint64_t>(
                                           record.value1, kLongestKernelNs))
                                     : -1};
  inputs.emplace_back(at, engine::Launched{.client = who_.id,
                                           .device = *devices_[record.device].id,
                                           .stream = {record.stream},
                                           .sequence = record.sequence,
                                           .kernel = *kernel,
                                           .at = at,
                                           .tracked = tracked,
                                           .ticket = {record.ticket},
                                           .thread = thread,
                                           .charged = charged,
                                           .memory_bytes =
                                               channel::memory_used(region_, record.device),
                                           .copy = is_copy(record.kernel)});
  // A held thread launches nothing but what it was held with.
  if (threads_[thread.value].held_ticket != 0) forget_held(thread);
  stream.launched = std::max(stream.launched, record.sequence);
  if (record.sequence <= stream.completed) {
    // Another thread's later launch on this stream was drained and completed first.
    inputs.emplace_back(at,
                        engine::Progressed{who_.id, StreamSlot{record.stream}, stream.completed});
    return;
  }
  if (tracked) {
    stream.tracked = std::max(stream.tracked, record.sequence);
    streams_in_flight_.set(record.stream);
  }
}

void Session::take_held(const channel::HeldLaunch& held, ThreadSlot thread, Instant at,
                        Instant traced, std::vector<StampedInput>& inputs) {
  Thread& mine = threads_[thread.value];
  if (held.ticket == 0) return lie();
  if (mine.held_ticket == held.ticket) return;
  const auto kernel = kernel_of(held.kernel);
  if (!kernel || held.device >= kMaxDevices || !devices_[held.device].id ||
      held.stream >= kMaxStreams) {
    return lie();
  }
  if (mine.held_ticket == 0) ++held_threads_;
  mine = {.held_ticket = held.ticket, .held = held, .told = at};
  if (observer != nullptr) [[unlikely]] {
    observer->held(*this, thread, Ticket{held.ticket}, *devices_[held.device].id, traced);
  }
  inputs.emplace_back(at, engine::Held{.client = who_.id,
                                       .device = *devices_[held.device].id,
                                       .thread = thread,
                                       .stream = {held.stream},
                                       .ticket = {held.ticket},
                                       .kernel = *kernel,
                                       .at = at});
}

// The record of a held launch, or of its end, may have found the ring full: the thread's slot
// tells.
void Session::look_at_held(ThreadSlot thread, const Clock& clock, Instant now,
                           std::vector<StampedInput>& inputs) {
  channel::lull_thread& slot = *region_.thread(thread.value);
  Thread& mine = threads_[thread.value];
  const uint32_t shown = channel::held_ticket(slot);
  if (shown == mine.held_ticket) {
    mine.vanished = Instant{-1};
    // Said again while it waits: the engine may have given the head up, and ignores what it knows.
    if (shown != 0 && now - mine.told > kToldAgainAfter) {
      const channel::HeldLaunch held = mine.held;
      forget_held(thread);
      take_held(held, thread, now, traced_at(held.since_ticks, clock, now), inputs);
    }
    return;
  }
  if (shown != 0) {
    const channel::HeldLaunch held = channel::read_held(slot);
    Instant& last = last_at_[thread.value];
    last = std::max(last, clock.at_ticks(held.since_ticks, now));
    if (held.ticket != 0) {
      take_held(held, thread, last, traced_at(held.since_ticks, clock, last), inputs);
    }
    return;
  }
  if (mine.vanished.ns < 0) {
    mine.vanished = now;
  } else if (now - mine.vanished > kVanishedAfter) {
    const auto kernel = kernel_of(mine.held.kernel);
    if (kernel) {
      Stream& stream = streams_[mine.held.stream];
      inputs.emplace_back(now, engine::Launched{.client = who_.id,
                                                .device = *devices_[mine.held.device].id,
                                                .stream = {mine.held.stream},
                                                .sequence = ++stream.launched,
                                                .kernel = *kernel,
                                                .at = now,
                                                .tracked = false,
                                                .ticket = {mine.held_ticket},
                                                .thread = thread,
                                                .copy = is_copy(mine.held.kernel)});
    }
    forget_held(thread);
  }
}

void Session::forget_held(ThreadSlot thread) {
  threads_[thread.value] = {};
  --held_threads_;
}

void Session::complete(StreamSlot slot, uint64_t sequence, Instant at,
                       std::vector<StampedInput>& inputs, bool synced) {
  Stream& stream = streams_[slot.value];
  // What is not recorded yet is reported when it is; it also bounds a lie.
  const uint64_t known = std::min(sequence, stream.launched);
  // That the host has waited is news even where the device has said so before.
  if (known < stream.completed || (known == stream.completed && !synced)) return;
  stream.completed = known;
  inputs.emplace_back(at, engine::Progressed{who_.id, slot, known, synced ? at : kNever});
  if (stream.completed >= stream.tracked) streams_in_flight_.reset(slot.value);
}

bool Session::poll_progress(Instant now, std::vector<StampedInput>& inputs) {
  if (streams_in_flight_.none()) return false;
  const size_t before = inputs.size();
  for (uint32_t slot = 0; slot < kMaxStreams; ++slot) {
    if (!streams_in_flight_.test(slot)) continue;
    complete(StreamSlot{slot}, channel::completed_sequence(region_, slot), now, inputs);
  }
  return inputs.size() != before;
}

bool Session::has_records() const {
  for (uint32_t slot = 0; slot < kMaxThreads; ++slot) {
    if (channel::ring_has_records(*region_.thread(slot))) return true;
  }
  return false;
}

// ---- out --------------------------------------------------------------------------------------

void Session::wake_threads() const {
  // Not a private futex: the waiters are another process.
  ::syscall(SYS_futex, &region_.control()->wake_sequence, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Session::set_gate(const engine::SetGate& gate) {
  constexpr channel::GateState kStates[] = {channel::GateState::kOpen, channel::GateState::kCredit,
                                            channel::GateState::kClosed};
  const channel::GateState state = kStates[static_cast<size_t>(gate.gate)];
  for (uint32_t index = 0; index < device_count_; ++index) {
    Device& device = devices_[index];
    if (device.id != gate.device) continue;
    if (gate.new_epoch) ++device.epoch;
    const uint64_t granted = state == channel::GateState::kCredit
                                 ? static_cast<uint64_t>(std::max<int64_t>(0, gate.granted.ns))
                                 : 0;
    device.gate_word = channel::pack_gate(state, device.epoch, granted);
    channel::publish_gate(*region_.control(), index, device.gate_word);
  }
  if (state != channel::GateState::kClosed) wake_threads();
}

void Session::release(const engine::Release& release) {
  if (release.thread.value >= kMaxThreads) return;
  channel::publish_release(region_, release.thread.value, release.ticket.value);
  wake_threads();
}

void Session::set_progress(const engine::SetProgress& progress) {
  for (uint32_t index = 0; index < device_count_; ++index) {
    if (devices_[index].id == progress.device) channel::publish_marked_every(region_, index, progress.every);
  }
}

void Session::predict(const engine::Predict& prediction) {
  const auto kernel = kernels_.find(prediction.kernel.value);
  if (kernel == kernels_.end()) return;
  const bool waited_for = kernel->second.predicted_ns == 0;
  kernel->second.predicted_ns = channel::told_ns(prediction.length.ns);
  for (const uint32_t slot : kernel->second.slots) {
    channel::publish_prediction(region_, slot, kernel->second.predicted_ns);
  }
  if (!waited_for) return;  // else a launch may be held until this is known
  channel::bump_wake_sequence(region_);
  wake_threads();
}

void Session::set_priority(Priority priority) {
  who_.priority = priority;
  channel::publish_priority(region_, priority.level);
}

void Session::open_all() {
  for (uint32_t index = 0; index < kMaxDevices; ++index) {
    Device& device = devices_[index];
    device.gate_word = channel::pack_gate(channel::GateState::kOpen, ++device.epoch, 0);
    channel::publish_gate(*region_.control(), index, device.gate_word);
    channel::publish_marked_every(region_, index, 0);
  }
  wake_threads();
}

void Session::set_allowance(uint32_t index, uint64_t bytes) {
  if (channel::memory_allowance(region_, index) == bytes) return;
  channel::publish_allowance(region_, index, bytes);
  wake_threads();
}

void Session::set_record_mode(channel::lull_record_mode mode) {
  if (mode == record_mode_) return;
  record_mode_ = mode;
  channel::publish_record_mode(region_, mode);
}

void Session::set_timing_period(uint32_t period) {
  channel::publish_timing_period(region_, period);
}

// ---- figures ----------------------------------------------------------------------------------

channel::GateState Session::gate_state(uint32_t index) const {
  return channel::gate_state(devices_[index].gate_word);
}

channel::ThreadTotals Session::totals() const {
  channel::ThreadTotals totals;
  for (uint32_t slot = 0; slot < kMaxThreads; ++slot) {
    totals += channel::read_totals(*region_.thread(slot));
  }
  return totals;
}

uint64_t Session::newly_unrecorded() {
  uint64_t sum = 0;
  for (uint32_t slot = 0; slot < threads_seen_; ++slot) {
    sum += channel::units_unrecorded(*region_.thread(slot));
  }
  const uint64_t before = std::exchange(unrecorded_, sum);
  return sum < before ? 0 : sum - before;
}

uint64_t Session::dropped() const {
  uint64_t dropped = 0;
  for (uint32_t slot = 0; slot < threads_seen_; ++slot) {
    dropped += channel::records_dropped(*region_.thread(slot));
  }
  return dropped;
}

std::string Session::kernel_name(KernelId kernel) const {
  const auto found = kernels_.find(kernel.value);
  if (found == kernels_.end() || found->second.slots.empty()) return "?";
  return channel::kernel_name(region_, found->second.slots.front(), kNameShown);
}

std::string Session::slot_name(uint32_t slot) const {
  return channel::kernel_name(region_, slot, kNameShown);
}

uint32_t Session::thread_tid(ThreadSlot thread) const {
  return thread.value < kMaxThreads ? channel::thread_tid(*region_.thread(thread.value)) : 0;
}

}  // namespace lull::daemon
