// The gate of one client on one device: one 64-bit word that the daemon publishes, and the
// client's own count of what it has spent.
//
//   gate word    63 62 | 61 ........ 40 | 39 ............ 0
//                state |     epoch      |  granted, ns        (2^40 ns: 18 minutes)
//   spent word     0   |     epoch      |  spent, ns
//
//          publish (daemon only)                  read (shim, every launch)
//   Open    -------------------------------->     go
//   Credit  epoch e, granted g  ------------>     go while spent(e) + predicted <= g
//   Closed  -------------------------------->     wait for wake_sequence to change
//
// Closing always wins: it is one store. A reopening carries a new epoch, so credit that was left
// over is void: a spent word of another epoch counts as zero spent. Raising `granted` within an
// epoch extends the grant. The lowest bit of an epoch's grant says more than a nanosecond: odd means
// that one launch longer than the whole grant may go while nothing of it is spent, and spends all of
// it (the policy published the grant knowing that nothing is in flight).
#pragma once

#include <algorithm>
#include <atomic>

#include "coordinator/channel/layout.h"

namespace lull::channel {

enum class GateState : uint32_t { kOpen = 0, kCredit = 1, kClosed = 2 };

inline constexpr uint64_t kGateNsBits = 40;
inline constexpr uint64_t kGateNsMax = (uint64_t{1} << kGateNsBits) - 1;
// In the ns of a credit word: a launch longer than the grant may go while nothing is spent.
inline constexpr uint64_t kGateLongBit = 1;
inline constexpr uint64_t kGateEpochMask = (uint64_t{1} << 22) - 1;

constexpr uint64_t pack_gate(GateState state, uint32_t epoch, uint64_t granted_ns) {
  const uint64_t ns = granted_ns > kGateNsMax ? kGateNsMax : granted_ns;
  return (static_cast<uint64_t>(state) << 62) | ((epoch & kGateEpochMask) << kGateNsBits) | ns;
}
constexpr GateState gate_state(uint64_t word) { return static_cast<GateState>(word >> 62); }
constexpr uint32_t gate_epoch(uint64_t word) {
  return static_cast<uint32_t>((word >> kGateNsBits) & kGateEpochMask);
}
constexpr uint64_t gate_ns(uint64_t word) { return word & kGateNsMax; }

// The word of a fresh region: open, so that a client is never held by a daemon that has not
// decided anything yet.
inline constexpr uint64_t kGateOpenAtBirth = pack_gate(GateState::kOpen, 0, 0);

inline std::atomic_ref<uint64_t> atomic64(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }
inline std::atomic_ref<uint32_t> atomic32(uint32_t& word) { return std::atomic_ref<uint32_t>(word); }

// One relaxed load: the whole cost of an open gate. Nothing is published through the word itself.
inline uint64_t load_gate(lull_control& control, uint32_t device) {
  return atomic64(control.gate[device]).load(std::memory_order_relaxed);
}

// As a prediction: longer than any grant. What is told of a length is always less, and never 0.
inline constexpr uint32_t kUnknownLength = UINT32_MAX;
inline uint32_t told_ns(int64_t length_ns) {
  return static_cast<uint32_t>(std::clamp<int64_t>(length_ns, 1, int64_t{kUnknownLength} - 1));
}

// Spends `predicted_ns` of the grant in `gate`. True: the launch may go. Any thread of the client.
inline bool try_spend(uint64_t gate, uint64_t& spent_word, uint64_t predicted_ns) {
  auto spent = atomic64(spent_word);
  if (predicted_ns == kUnknownLength) predicted_ns = kGateNsMax + 1;
  uint64_t seen = spent.load(std::memory_order_relaxed);
  for (;;) {
    const bool same_epoch = gate_epoch(seen) == gate_epoch(gate);
    const uint64_t before = same_epoch ? gate_ns(seen) : 0;
    const uint64_t granted = gate_ns(gate);
    uint64_t after = before + predicted_ns;
    if (after > granted) {
      if (before != 0 || (granted & kGateLongBit) == 0) return false;
      after = granted;
    }
    const uint64_t next = pack_gate(GateState::kOpen, gate_epoch(gate), after);
    // Relaxed: the count guards nothing but itself.
    if (spent.compare_exchange_weak(seen, next, std::memory_order_relaxed)) return true;
  }
}

// What that spent: of a launch of any length no more than the grant had.
inline uint32_t charged_ns(uint64_t gate, uint32_t predicted_ns) {
  return static_cast<uint32_t>(std::min<uint64_t>(predicted_ns, gate_ns(gate)));
}

// Daemon only. Publishes the word, then bumps the futex word; the caller wakes the futex.
inline void publish_gate(lull_control& control, uint32_t device, uint64_t word) {
  // Release: pairs with the acquire of wake_sequence in the shim's wait loop.
  atomic64(control.gate[device]).store(word, std::memory_order_release);
  atomic32(control.wake_sequence).fetch_add(1, std::memory_order_release);
}

}  // namespace lull::channel
