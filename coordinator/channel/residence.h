// Where a client's device memory is, and where it shall be: the words of lull_order and
// lull_residence (layout.h), and every atomic access to them.
//
//                 order: out                        order: given up
//   kResident -> kDraining -> kLeaving -> kOut -----------------------> kGivingUp -> kGivenUp
//       ^            | busy      |          | order: resident, or a client of its own accord   |
//       +------------+-----------+          |                        (below)                   |
//       ^                                   v                                                  |
//       +------------------------------ kReturning <- kOut <- kRestoring <---------------------+
//                                                                |
//                                                                +-> kLost (driver's restore failed)
//
// The daemon publishes an order and wakes the futex at `number`. The
// client's service thread (shim/residence) takes the newest one, works towards its target, writes state and
// figures as it goes, and at last `result`, `reason` and then `order` (release). Then it rings the
// doorbell with a kRecordResidence record.
//
// A client whose coordinator has gone, or shows no sign of life for a second, is its own coordinator:
// it brings its memory back before its calls go on. A client that is not resident therefore never
// fails open by going on.
#pragma once

#include <string.h>

#include <atomic>

#include "coordinator/channel/gate.h"
#include "coordinator/channel/layout.h"

namespace lull::channel {

// Copies the order in force. False: it is being written this moment; look again later. Orders have even
// numbers: `number` is odd while the other words change.
inline bool read_order(lull_control& control, lull_order& copy) {
  auto number = atomic32(control.order.number);
  // Acquire: pairs with the last release in `publish_order` (daemon_view.h).
  const uint32_t before = number.load(std::memory_order_acquire);
  if ((before & 1) != 0) return false;
  memcpy(&copy, &control.order, sizeof copy);
  // The words are read before the number is looked at again.
  std::atomic_thread_fence(std::memory_order_acquire);
  copy.number = before;
  return number.load(std::memory_order_relaxed) == before;
}
inline uint32_t order_number(lull_control& control) {
  // Acquire: pairs with the releases in `publish_order`.
  return atomic32(control.order.number).load(std::memory_order_acquire);
}
inline uint64_t order_pace(lull_control& control) {
  return atomic64(control.order.pace_bytes_per_s).load(std::memory_order_relaxed);
}
inline uint32_t order_chunk(lull_control& control) {
  return atomic32(control.order.chunk_bytes).load(std::memory_order_relaxed);
}
inline uint64_t host_allowance(lull_control& control) {
  return atomic64(control.order.host_allowance_bytes).load(std::memory_order_relaxed);
}

inline void publish_state(lull_client& client, lull_residence_state state) {
  // Release: pairs with the acquire in `read_residence`; figures stand before it.
  atomic32(client.residence.state).store(state, std::memory_order_release);
}
inline void publish_moving(lull_client& client, uint64_t moving_bytes, uint64_t moved_bytes) {
  atomic64(client.residence.moving_bytes).store(moving_bytes, std::memory_order_relaxed);
  atomic64(client.residence.moved_bytes).store(moved_bytes, std::memory_order_relaxed);
}
inline void publish_copy_rate(lull_client& client, uint64_t bytes_per_s) {
  atomic64(client.residence.copy_bytes_per_s).store(bytes_per_s, std::memory_order_relaxed);
}
inline void publish_host(lull_client& client, uint64_t ready_bytes, uint64_t wanted_bytes) {
  atomic64(client.residence.host_bytes).store(ready_bytes, std::memory_order_relaxed);
  atomic64(client.residence.host_wanted_bytes).store(wanted_bytes, std::memory_order_relaxed);
}
inline void publish_swappable(lull_client& client, uint32_t device, uint64_t swappable,
                              uint64_t fixed) {
  atomic64(client.residence.swappable_bytes[device]).store(swappable, std::memory_order_relaxed);
  atomic64(client.residence.fixed_bytes[device]).store(fixed, std::memory_order_relaxed);
}
inline void publish_fixed_kinds(lull_client& client, uint64_t kinds) {
  atomic64(client.residence.fixed_kinds).store(kinds, std::memory_order_relaxed);
}
inline void publish_abilities(lull_client& client, uint32_t abilities) {
  atomic32(client.residence.abilities).store(abilities, std::memory_order_relaxed);
}
// `reason`: one line, cut to the room; empty with kMoveDone.
inline void publish_result(lull_client& client, uint32_t order, lull_move_result result,
                           const char* reason, uint64_t took_ns) {
  lull_residence& residence = client.residence;
  const size_t length = strnlen(reason, sizeof residence.reason - 1);
  memcpy(residence.reason, reason, length);
  residence.reason[length] = '\0';
  atomic64(residence.move_ns).store(took_ns, std::memory_order_relaxed);
  atomic32(residence.result).store(result, std::memory_order_relaxed);
  // Release: pairs with the acquire in `read_residence`.
  atomic32(residence.order).store(order, std::memory_order_release);
}

}  // namespace lull::channel
