// Device time. On a real GPU it is CLOCK_MONOTONIC. On the simulated GPU it is CLOCK_MONOTONIC
// slowed down by a factor, so that the machine which plays the GPU can keep up:
//
//   model_ns = (monotonic_ns - origin_ns) / slow_motion
//
// The factor lives in the first bytes of the simulated device's shared file, so that simgpu, the
// player, the daemon and every tool read the same one. Pure but for `monotonic_ns`.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

namespace lull::channel {

// At offset 0 of the file that SIMGPU_DEVICE names. Written once by its creator, then constant.
struct sim_device_prefix {
  char magic[8];              // "simgpu\n\0"
  uint32_t version;           // of the whole file
  uint32_t ready;             // 1 (release): all of the file is initialised
  uint64_t origin_ns;         // CLOCK_MONOTONIC at creation
  double slow_motion;         // F >= 1
  uint64_t control_latency_ns;  // model time a decision takes to reach a gate
  uint32_t sharing;           // 0 time_slice, 1 mps, 2 serial
  uint32_t device_count;
  uint8_t uuid[16];       // of device 0; of device i byte kSimUuidIndex is greater by i
  uint64_t memory_bytes;  // of each
  char name[96];          // of each, NUL-terminated
  uint8_t reserved[24];
};
static_assert(sizeof(sim_device_prefix) == 192);
inline constexpr size_t kSimUuidIndex = 7;
inline constexpr char kSimMagic[8] = {'s', 'i', 'm', 'g', 'p', 'u', '\n', '\0'};
inline constexpr uint32_t kSimVersion = 2;

inline uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ULL + static_cast<uint64_t>(now.tv_nsec);
}

struct ModelClock {
  uint64_t origin_ns = 0;
  double slow_motion = 1.0;

  // Model time at a CLOCK_MONOTONIC instant; 0 before the origin.
  uint64_t to_model_ns(uint64_t monotonic) const {
    if (monotonic <= origin_ns) return 0;
    const uint64_t elapsed = monotonic - origin_ns;
    return slow_motion == 1.0 ? elapsed
                              : static_cast<uint64_t>(static_cast<double>(elapsed) / slow_motion);
  }
  // The CLOCK_MONOTONIC instant at which model time `model` is reached.
  uint64_t to_monotonic_ns(uint64_t model) const {
    return origin_ns + (slow_motion == 1.0
                            ? model
                            : static_cast<uint64_t>(static_cast<double>(model) * slow_motion));
  }
  uint64_t now_ns() const { return to_model_ns(monotonic_ns()); }
};

}  // namespace lull::channel
