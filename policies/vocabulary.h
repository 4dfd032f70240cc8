// The words that the engine and the policies share: ids, time, priorities. Pure; no dependencies.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace lull {

// Model time of the node's devices, in ns. The daemon's clock gives it; nothing here reads one.
struct Duration {
  int64_t ns = 0;
  auto operator<=>(const Duration&) const = default;
  constexpr Duration operator+(Duration other) const { return {ns + other.ns}; }
  constexpr Duration operator-(Duration other) const { return {ns - other.ns}; }
  constexpr Duration& operator+=(Duration other) { ns += other.ns; return *this; }
  constexpr Duration& operator-=(Duration other) { ns -= other.ns; return *this; }
};
struct Instant {
  int64_t ns = 0;
  auto operator<=>(const Instant&) const = default;
  constexpr Instant operator+(Duration d) const { return {ns + d.ns}; }
  constexpr Instant operator-(Duration d) const { return {ns - d.ns}; }
  constexpr Duration operator-(Instant other) const { return {ns - other.ns}; }
};
inline constexpr Instant kNever{INT64_MAX};

template <typename Tag, typename Int>
struct Id {
  Int value = 0;
  auto operator<=>(const Id&) const = default;
};
using ClientId = Id<struct ClientTag, uint32_t>;   // one process under lull
using JobId = Id<struct JobTag, uint64_t>;         // processes that belong together
using DeviceId = Id<struct DeviceTag, uint32_t>;   // one physical GPU of the node, by UUID
using KernelId = Id<struct KernelTag, uint64_t>;   // name, image, shape; same in every run
using ThreadSlot = Id<struct ThreadTag, uint32_t>; // a launching thread of a client
using StreamSlot = Id<struct StreamTag, uint32_t>; // a stream of a client
using Ticket = Id<struct TicketTag, uint32_t>;     // one held launch of a thread

// The kind of a kernel: its function, launched with about as many threads. Kernels of one kind are
// taken to be alike in length where nothing else is known. 0: no kind. A hash: it rarely misleads.
constexpr uint32_t kernel_kind(KernelId id) { return static_cast<uint32_t>(id.value >> 32); }

// 0 highest .. 9 lowest. Names: realtime 0, high 2, normal 5, low 7, idle 9.
struct Priority {
  uint8_t level = 5;
  auto operator<=>(const Priority&) const = default;  // smaller is more important
};

// What a task may lose to less important ones, in thousandths of its own time: in the mean of its
// iterations or requests, and at their p99. Negative: the policy's setting counts.
struct SlowdownBound {
  int32_t mean_per_mille = -1;
  int32_t p99_per_mille = -1;
  auto operator<=>(const SlowdownBound&) const = default;
  bool is_set() const { return mean_per_mille >= 0; }
};
inline constexpr int32_t kMostSlowdownPerMille = 10'000;

// Limits a bound that a client states: to 0 .. 1000 %, and at p99 to no less than in the mean.
constexpr SlowdownBound in_range(SlowdownBound stated) {
  if (stated.mean_per_mille < 0) return {};
  const int32_t mean = std::min(stated.mean_per_mille, kMostSlowdownPerMille);
  return {mean, std::clamp(stated.p99_per_mille, mean, kMostSlowdownPerMille)};
}

}  // namespace lull
