// What the shim reads and writes in its region beyond gates (gate.h) and rings (ring.h): the
// counterpart of daemon_view.h. Shim only; any of the program's threads, except where the owner
// thread of a thread slot is named. Nothing here waits.
#pragma once

#include <string.h>

#include "coordinator/channel/gate.h"
#include "coordinator/channel/layout.h"
#include "coordinator/channel/ring.h"

namespace lull::channel {

// ---- thread slots -----------------------------------------------------------------------------
inline void occupy_thread(lull_thread& thread, uint32_t tid) {
  atomic32(thread.tid).store(tid, std::memory_order_relaxed);
}
inline void vacate_thread(lull_thread& thread) {
  atomic32(thread.held_ticket).store(0, std::memory_order_release);
  atomic64(thread.held_since_tsc).store(0, std::memory_order_relaxed);
  atomic32(thread.tid).store(0, std::memory_order_relaxed);
}
// Owner thread. Relaxed load and store, no locked instruction: there is one writer.
inline void add_count(uint64_t& counter, uint64_t amount) {
  auto word = atomic64(counter);
  word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

// `push_record` in two halves, so that the record is written where it stays, and with the daemon's
// tail remembered by the producer, so that the consumer's cache line is touched once a ring's
// length and not once a record. Owner thread. Null: the ring is full, counted as dropped.
inline lull_record* begin_record(lull_thread& thread, lull_record* ring, uint64_t& cached_tail) {
  const uint64_t head = atomic64(thread.head).load(std::memory_order_relaxed);
  if (head - cached_tail >= kRingRecords) [[unlikely]] {
    // Acquire: pairs with the consumer's release of tail; the slot is free once it is seen.
    cached_tail = atomic64(thread.tail).load(std::memory_order_acquire);
    if (head - cached_tail >= kRingRecords) {
      add_count(thread.dropped, 1);
      return nullptr;
    }
  }
  // The daemon has read these lines: asked for some records ahead, they are back in time.
  __builtin_prefetch(&ring[(head + 4) % kRingRecords], /*rw=*/1);
  return &ring[head % kRingRecords];
}
inline uint32_t ring_room(lull_thread& thread) {
  const uint64_t head = atomic64(thread.head).load(std::memory_order_relaxed);
  const uint64_t used = head - atomic64(thread.tail).load(std::memory_order_acquire);
  return used >= kRingRecords ? 0 : static_cast<uint32_t>(kRingRecords - used);
}
inline void commit_record(lull_thread& thread) {
  auto head = atomic64(thread.head);
  // Release: pairs with the acquire of head in `drain_records`.
  head.store(head.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}
inline bool push_record_cached(lull_thread& thread, lull_record* ring, uint64_t& cached_tail,
                               const lull_record& record) {
  lull_record* place = begin_record(thread, ring, cached_tail);
  if (place == nullptr) return false;
  *place = record;
  commit_record(thread);
  return true;
}

// ---- the held launch of a thread (owner thread) ------------------------------------------------
inline void publish_held(lull_thread& thread, uint32_t ticket, uint32_t kernel, uint32_t device,
                         uint32_t stream, uint64_t since_ticks) {
  atomic32(thread.held_kernel).store(kernel, std::memory_order_relaxed);
  atomic32(thread.held_device).store(device, std::memory_order_relaxed);
  atomic32(thread.held_stream).store(stream, std::memory_order_relaxed);
  atomic64(thread.held_since_tsc).store(since_ticks, std::memory_order_relaxed);
  // Release: pairs with the daemon's acquire in `held_ticket`.
  atomic32(thread.held_ticket).store(ticket, std::memory_order_release);
}
inline void clear_held(lull_thread& thread) {
  atomic32(thread.held_ticket).store(0, std::memory_order_release);
  atomic64(thread.held_since_tsc).store(0, std::memory_order_relaxed);
}
inline bool is_released(lull_thread& thread, uint32_t ticket) {
  // Acquire: pairs with the daemon's release in `publish_release`.
  return atomic32(thread.released_ticket).load(std::memory_order_acquire) == ticket;
}

// ---- control words ----------------------------------------------------------------------------
inline uint32_t wake_sequence(lull_control& control) {
  // Acquire: pairs with the daemon's release after it changed a gate, a ticket or an allowance.
  return atomic32(control.wake_sequence).load(std::memory_order_acquire);
}
inline uint32_t looks(lull_control& control) {
  // Acquire: pairs with the release in `show_life`; what lulld did at an earlier look is seen.
  return atomic32(control.looks).load(std::memory_order_acquire);
}
inline uint32_t record_mode(lull_control& control) {  // lull_record_mode
  return atomic32(control.wants_launch_records).load(std::memory_order_relaxed);
}
inline uint32_t timing_period(lull_control& control) {
  return atomic32(control.timing_period).load(std::memory_order_relaxed);
}
// Host nanoseconds as the device counts them.
inline uint64_t device_ns(lull_control& control, uint64_t host_ns) {
  const uint32_t factor = atomic32(control.slow_motion_1024).load(std::memory_order_relaxed);
  return factor == 0 ? host_ns : host_ns * 1024 / factor;
}
// And the other way round.
inline uint64_t host_ns(lull_control& control, uint64_t device_time_ns) {
  const uint32_t factor = atomic32(control.slow_motion_1024).load(std::memory_order_relaxed);
  return factor == 0 ? device_time_ns : device_time_ns * factor / 1024;
}
inline uint32_t unknown_devices(lull_control& control) {
  return atomic32(control.unknown_devices).load(std::memory_order_relaxed);
}
inline uint32_t marked_every(lull_control& control, uint32_t device) {
  return atomic32(control.marked_every[device]).load(std::memory_order_relaxed);
}
inline uint64_t memory_allowance_bytes(lull_control& control, uint32_t device) {
  return atomic64(control.memory_allowance[device]).load(std::memory_order_acquire);
}
// A hint, one relaxed load; `take_doorbell` decides.
inline bool daemon_sleeps(lull_control& control) {
  return atomic32(control.daemon_sleeping).load(std::memory_order_relaxed) != 0;
}
// True for the one caller that shall send the byte.
inline bool take_doorbell(lull_control& control) {
  uint32_t sleeping = 1;
  return atomic32(control.daemon_sleeping)
      .compare_exchange_strong(sleeping, 0, std::memory_order_acq_rel);
}
// Orders a record before the look at `daemon_sleeping`: for a launch that is about to be held.
inline void fence_before_doorbell() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// ---- kernels, devices, memory, progress -------------------------------------------------------
inline uint32_t predicted_ns(lull_kernel& kernel) {
  return atomic32(kernel.predicted_ns).load(std::memory_order_relaxed);
}
// `source.predicted_ns` is not copied: that word is the daemon's. Under the shim's kernel lock.
inline void publish_kernel(const Region& region, uint32_t slot, const lull_kernel& source,
                           uint32_t name_bytes) {
  lull_kernel& kernel = *region.kernel(slot);
  memcpy(&kernel, &source, offsetof(lull_kernel, predicted_ns));
  kernel.graph_kernels = source.graph_kernels;
  kernel.call_site_offset = source.call_site_offset;
  atomic32(region.client()->name_bytes).store(name_bytes, std::memory_order_relaxed);
  auto count = atomic32(region.client()->kernel_count);
  if (count.load(std::memory_order_relaxed) <= slot) {
    // Release: pairs with the daemon's acquire in `kernel_count`.
    count.store(slot + 1, std::memory_order_release);
  }
}
inline void publish_device(const Region& region, uint32_t index, const lull_device& source) {
  lull_device& device = region.client()->device[index];
  memcpy(device.uuid, source.uuid, sizeof device.uuid);
  memcpy(device.name, source.name, sizeof device.name);
  atomic64(device.total_bytes).store(source.total_bytes, std::memory_order_relaxed);
  atomic32(device.ordinal).store(source.ordinal, std::memory_order_relaxed);
  // Release: pairs with the daemon's acquire in `read_device`.
  atomic32(device.ready).store(1, std::memory_order_release);
  auto count = atomic32(region.client()->device_count);
  if (count.load(std::memory_order_relaxed) <= index) {
    count.store(index + 1, std::memory_order_release);
  }
}
// Its words are about to change: the GPU that the process is on is another one.
inline void retract_device(const Region& region, uint32_t index) {
  atomic32(region.client()->device[index].ready).store(0, std::memory_order_relaxed);
  // Orders it before the words: pairs with the daemon's acquire in `read_device`.
  std::atomic_thread_fence(std::memory_order_release);
}
inline void publish_memory(const Region& region, uint32_t index, uint64_t used, uint64_t wanted) {
  lull_device& device = region.client()->device[index];
  atomic64(device.used_bytes).store(used, std::memory_order_relaxed);
  atomic64(device.wanted_bytes).store(wanted, std::memory_order_relaxed);
}
inline void publish_detached(const Region& region) {
  atomic32(region.client()->detached).store(1, std::memory_order_relaxed);
}
// The host saw everything up to `sequence` complete. Compare-and-swap, because the device itself
// writes the same word: a later number is never overwritten by an earlier one.
inline void raise_completed(const Region& region, uint32_t stream, uint64_t sequence) {
  auto word = atomic64(region.progress()->completed[stream]);
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < sequence &&
         !word.compare_exchange_weak(seen, sequence, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
}

}  // namespace lull::channel
