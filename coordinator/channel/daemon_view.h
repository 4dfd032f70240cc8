// What the daemon reads and writes in a client's region beyond gates (gate.h) and rings (ring.h).
// Daemon only, its loop thread. Everything read here was written by the client and is a private
// copy once it is returned; ranges are the caller's to check.
//
// The doorbell is a lost-wake protocol without a fence on the launch path:
//
//   daemon                                        shim, each record
//   daemon_sleeping = 1                           push the record (release of head)
//   look at the rings again                       CAS daemon_sleeping 1 -> 0: send one byte
//   ... once more when any store buffer has
//   drained (session.h: Arming), then sleep
#pragma once

#include <string.h>

#include <array>
#include <optional>
#include <string>

#include "coordinator/channel/gate.h"
#include "coordinator/channel/layout.h"

namespace lull::channel {

struct DeviceEntry {
  std::array<uint8_t, 16> uuid{};
  uint64_t total_bytes = 0;
  uint32_t ordinal = 0;
  std::string name;
};

struct HeldLaunch {
  uint32_t ticket = 0;  // 0: none
  uint32_t kernel = 0;
  uint32_t device = 0;
  uint32_t stream = 0;
  uint64_t since_ticks = 0;
};

struct ThreadTotals {
  uint64_t launches = 0;
  uint64_t graph_kernels = 0;
  uint64_t copies = 0;
  uint64_t memsets = 0;
  uint64_t dropped = 0;
  uint64_t held_ns = 0;
  uint64_t untimed = 0;
  uint64_t unheld = 0;
  ThreadTotals& operator+=(const ThreadTotals& other) {
    launches += other.launches;
    graph_kernels += other.graph_kernels;
    copies += other.copies;
    memsets += other.memsets;
    dropped += other.dropped;
    held_ns += other.held_ns;
    untimed += other.untimed;
    unheld += other.unheld;
    return *this;
  }
};

inline void write_birth(const Region& region, uint32_t client_id, uint32_t timing_period,
                        uint32_t priority, uint64_t memory_allowance) {
  lull_header& header = *region.header();
  header.magic = kMagic;
  header.version = kVersion;
  header.region_bytes = kRegionBytes;
  header.client_id = client_id;
  lull_control& control = *region.control();
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    control.gate[device] = kGateOpenAtBirth;
    control.memory_allowance[device] = memory_allowance;
    control.marked_every[device] = 0;
  }
  control.wants_launch_records = kRecordUntimed;
  control.timing_period = timing_period;
  control.priority = priority;
}

inline uint32_t device_count(const Region& region) {
  // Acquire: pairs with the shim's release after it began the entry.
  const uint32_t count = atomic32(region.client()->device_count).load(std::memory_order_acquire);
  return count > kMaxDevices ? kMaxDevices : count;
}

inline std::optional<DeviceEntry> read_device(const Region& region, uint32_t index) {
  lull_device& device = region.client()->device[index];
  // Acquire: pairs with the shim's release of `ready` after uuid, total_bytes and name.
  if (atomic32(device.ready).load(std::memory_order_acquire) != 1) return std::nullopt;
  DeviceEntry entry;
  memcpy(entry.uuid.data(), device.uuid, sizeof device.uuid);
  entry.total_bytes = atomic64(device.total_bytes).load(std::memory_order_relaxed);
  entry.ordinal = atomic32(device.ordinal).load(std::memory_order_relaxed);
  char name[sizeof device.name];
  memcpy(name, device.name, sizeof name);
  entry.name.assign(name, strnlen(name, sizeof name));
  return entry;
}

// Relaxed: figures, nothing is published through them.
inline uint64_t memory_used(const Region& region, uint32_t index) {
  return atomic64(region.client()->device[index].used_bytes).load(std::memory_order_relaxed);
}
inline uint64_t memory_wanted(const Region& region, uint32_t index) {
  return atomic64(region.client()->device[index].wanted_bytes).load(std::memory_order_relaxed);
}
inline uint64_t memory_allowance(const Region& region, uint32_t index) {
  return atomic64(region.control()->memory_allowance[index]).load(std::memory_order_relaxed);
}
inline bool client_detached(const Region& region) {
  return atomic32(region.client()->detached).load(std::memory_order_relaxed) != 0;
}

inline uint32_t kernel_count(const Region& region) {
  // Acquire: pairs with the shim's release after it filled the slot.
  const uint32_t count = atomic32(region.client()->kernel_count).load(std::memory_order_acquire);
  return count > kMaxKernels ? kMaxKernels : count;
}
inline uint64_t kernel_id(const Region& region, uint32_t slot) {
  return atomic64(region.kernel(slot)->kernel_id).load(std::memory_order_relaxed);
}
// A copy of a string of the name area, cut at `most` bytes; empty when the offset points outside.
inline std::string name_at(const Region& region, uint32_t offset, size_t most) {
  if (offset >= kNameBytes) return {};
  const size_t room = kNameBytes - offset < most ? kNameBytes - offset : most;
  std::string name(room, '\0');
  memcpy(name.data(), region.names() + offset, room);
  name.resize(strnlen(name.data(), room));
  return name;
}
inline std::string kernel_name(const Region& region, uint32_t slot, size_t most) {
  const uint32_t offset =
      atomic32(region.kernel(slot)->name_offset).load(std::memory_order_relaxed);
  return name_at(region, offset, most);
}
struct KernelShape {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t shared_bytes = 0;
  uint32_t kind = 0;  // lull_kernel_kind, unchecked
  uint32_t predicted_ns = 0;
  uint64_t image_hash = 0;
  uint32_t graph_kernels = 0;
};
inline KernelShape kernel_shape(const Region& region, uint32_t slot) {
  lull_kernel& kernel = *region.kernel(slot);
  const auto read = [](uint32_t& word) { return atomic32(word).load(std::memory_order_relaxed); };
  KernelShape shape;
  for (size_t i = 0; i < 3; ++i) {
    shape.grid[i] = read(kernel.grid[i]);
    shape.block[i] = read(kernel.block[i]);
  }
  shape.shared_bytes = read(kernel.shared_bytes);
  shape.kind = read(kernel.kind);
  shape.predicted_ns = read(kernel.predicted_ns);
  shape.image_hash = atomic64(kernel.image_hash).load(std::memory_order_relaxed);
  shape.graph_kernels = read(kernel.graph_kernels);
  return shape;
}
// The host call path of its launches, cut at `most` bytes; empty when none was taken.
inline std::string kernel_call_site(const Region& region, uint32_t slot, size_t most) {
  const uint32_t offset =
      atomic32(region.kernel(slot)->call_site_offset).load(std::memory_order_relaxed);
  return offset == 0 ? std::string() : name_at(region, offset, most);
}
inline void publish_prediction(const Region& region, uint32_t slot, uint32_t predicted_ns) {
  // Relaxed: the number stands for itself; a grant that counts on it is published after it.
  atomic32(region.kernel(slot)->predicted_ns).store(predicted_ns, std::memory_order_relaxed);
}

inline bool ring_has_records(lull_thread& thread) {
  // Relaxed: `drain_records` acquires before anything is read.
  return atomic64(thread.head).load(std::memory_order_relaxed) !=
         atomic64(thread.tail).load(std::memory_order_relaxed);
}
inline bool thread_in_use(lull_thread& thread) {
  return atomic32(thread.tid).load(std::memory_order_relaxed) != 0 ||
         atomic64(thread.head).load(std::memory_order_relaxed) != 0;
}
inline uint32_t thread_tid(lull_thread& thread) {
  return atomic32(thread.tid).load(std::memory_order_relaxed);
}
inline ThreadTotals read_totals(lull_thread& thread) {
  const auto read = [](uint64_t& word) { return atomic64(word).load(std::memory_order_relaxed); };
  return {read(thread.launches), read(thread.graph_kernels), read(thread.copies),
          read(thread.memsets),  read(thread.dropped),       read(thread.held_ns),
          read(thread.untimed),  read(thread.unheld)};
}
inline uint64_t units_unrecorded(lull_thread& thread) {
  return atomic64(thread.unrecorded).load(std::memory_order_relaxed);
}
inline uint64_t records_dropped(lull_thread& thread) {
  return atomic64(thread.dropped).load(std::memory_order_relaxed);
}
inline uint32_t held_ticket(lull_thread& thread) {
  // Acquire: pairs with the shim's release of the ticket after the other held_* fields.
  return atomic32(thread.held_ticket).load(std::memory_order_acquire);
}
// The held launch of the thread; ticket 0 when none is held, or when it changed under the reading.
inline HeldLaunch read_held(lull_thread& thread) {
  HeldLaunch held;
  held.ticket = held_ticket(thread);
  if (held.ticket == 0) return held;
  held.kernel = atomic32(thread.held_kernel).load(std::memory_order_relaxed);
  held.device = atomic32(thread.held_device).load(std::memory_order_relaxed);
  held.stream = atomic32(thread.held_stream).load(std::memory_order_relaxed);
  held.since_ticks = atomic64(thread.held_since_tsc).load(std::memory_order_relaxed);
  if (held_ticket(thread) != held.ticket) held.ticket = 0;
  return held;
}

inline uint64_t completed_sequence(const Region& region, uint32_t stream) {
  // Acquire: pairs with the device's write, or the shim's release store after a synchronisation.
  return atomic64(region.progress()->completed[stream]).load(std::memory_order_acquire);
}

inline void bump_wake_sequence(const Region& region) {
  // Release: pairs with the acquire of wake_sequence in the shim's wait loop.
  atomic32(region.control()->wake_sequence).fetch_add(1, std::memory_order_release);
}
inline void publish_release(const Region& region, uint32_t thread, uint32_t ticket) {
  // Release: pairs with the shim's acquire of released_ticket in its wait loop.
  atomic32(region.thread(thread)->released_ticket).store(ticket, std::memory_order_release);
  bump_wake_sequence(region);
}
inline void publish_allowance(const Region& region, uint32_t index, uint64_t bytes) {
  atomic64(region.control()->memory_allowance[index]).store(bytes, std::memory_order_release);
  bump_wake_sequence(region);
}
inline void publish_marked_every(const Region& region, uint32_t index, uint32_t every) {
  atomic32(region.control()->marked_every[index]).store(every, std::memory_order_relaxed);
}
inline void publish_record_mode(const Region& region, lull_record_mode mode) {
  atomic32(region.control()->wants_launch_records).store(mode, std::memory_order_relaxed);
}
inline void publish_priority(const Region& region, uint32_t level) {
  atomic32(region.control()->priority).store(level, std::memory_order_relaxed);
}
// Simulated GPUs whose time runs slower than the host's. 1 and less: not.
inline void publish_slow_motion(const Region& region, double factor) {
  const double scaled = factor * 1024 + 0.5;
  const uint32_t word = factor <= 1 || scaled >= 4e9 ? 0 : static_cast<uint32_t>(scaled);
  atomic32(region.control()->slow_motion_1024).store(word, std::memory_order_relaxed);
}
inline void publish_unknown_devices(const Region& region, uint32_t bits) {
  atomic32(region.control()->unknown_devices).store(bits, std::memory_order_relaxed);
}
// One writer: load and store.
inline void show_life(const Region& region) {
  auto looks = atomic32(region.control()->looks);
  // Release: pairs with the acquire in `looks`.
  looks.store(looks.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}
inline void publish_timing_period(const Region& region, uint32_t period) {
  atomic32(region.control()->timing_period).store(period, std::memory_order_relaxed);
}

// ---- residence (residence.h) -------------------------------------------------------------------
// What the client says, copied; ranges are the caller's to check.
struct ResidenceReport {
  uint32_t state = kResident;
  uint32_t order = 0;
  uint32_t result = kMoveDone;
  uint32_t abilities = 0;
  uint64_t moving_bytes = 0;
  uint64_t moved_bytes = 0;
  uint64_t move_ns = 0;
  uint64_t host_bytes = 0;
  uint64_t host_wanted_bytes = 0;
  uint64_t copy_bytes_per_s = 0;
  uint64_t swappable_bytes[kMaxDevices] = {};
  uint64_t fixed_bytes[kMaxDevices] = {};
  uint64_t fixed_kinds = 0;
  std::string reason;
};
inline ResidenceReport read_residence(const Region& region) {
  lull_residence& from = region.client()->residence;
  const auto word = [](uint64_t& value) { return atomic64(value).load(std::memory_order_relaxed); };
  ResidenceReport report;
  // Acquire, both: pair with the releases in `publish_result` and `publish_state`.
  report.order = atomic32(from.order).load(std::memory_order_acquire);
  report.state = atomic32(from.state).load(std::memory_order_acquire);
  report.result = atomic32(from.result).load(std::memory_order_relaxed);
  report.abilities = atomic32(from.abilities).load(std::memory_order_relaxed);
  report.moving_bytes = word(from.moving_bytes);
  report.moved_bytes = word(from.moved_bytes);
  report.move_ns = word(from.move_ns);
  report.host_bytes = word(from.host_bytes);
  report.host_wanted_bytes = word(from.host_wanted_bytes);
  report.copy_bytes_per_s = word(from.copy_bytes_per_s);
  report.fixed_kinds = word(from.fixed_kinds);
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    report.swappable_bytes[device] = word(from.swappable_bytes[device]);
    report.fixed_bytes[device] = word(from.fixed_bytes[device]);
  }
  char reason[sizeof from.reason];
  memcpy(reason, from.reason, sizeof reason);
  report.reason.assign(reason, strnlen(reason, sizeof reason));
  return report;
}

inline void publish_host_allowance(const Region& region, uint64_t bytes) {
  atomic64(region.control()->order.host_allowance_bytes).store(bytes, std::memory_order_relaxed);
}
inline void publish_pace(const Region& region, uint64_t bytes_per_s, uint32_t chunk_bytes) {
  atomic64(region.control()->order.pace_bytes_per_s).store(bytes_per_s, std::memory_order_relaxed);
  atomic32(region.control()->order.chunk_bytes).store(chunk_bytes, std::memory_order_relaxed);
}
// `order.number`, pace, chunk and allowance are not taken from `order`. Returns the number. The caller
// wakes the futex at control.order.number.
inline uint32_t publish_order(const Region& region, const lull_order& order) {
  lull_order& to = region.control()->order;
  auto number = atomic32(to.number);
  const uint32_t next = number.load(std::memory_order_relaxed) + 2;
  number.store(next - 1, std::memory_order_relaxed);
  // Orders the odd number before the words: pairs with the fence in `read_order`.
  std::atomic_thread_fence(std::memory_order_release);
  to.target = order.target;
  to.drain_ms = order.drain_ms;
  to.pair_count = order.pair_count;
  memcpy(to.pair, order.pair, sizeof to.pair);
  // Release: pairs with the acquires in `read_order` and `order_number`.
  number.store(next, std::memory_order_release);
  return next;
}

// The word shims ring by. seq_cst: the daemon's following look at the rings stays behind it.
inline void arm_doorbell(const Region& region) {
  atomic32(region.control()->daemon_sleeping).store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void disarm_doorbell(const Region& region) {
  atomic32(region.control()->daemon_sleeping).store(0, std::memory_order_relaxed);
}

}  // namespace lull::channel
