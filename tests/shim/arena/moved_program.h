// A program on the simulated GPU whose memory can be moved, in one process with the shim.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/shim/arena/arena_probe.h"
#include "tests/simgpu/driver/sim_program.h"

namespace arena_test {

inline constexpr size_t kMiB = size_t{1} << 20;

// What `lull run --suspendable` does; no lulld.
inline bool ask_to_be_moved() {
  setenv("LULL_SUSPENDABLE", "1", 1);
  return true;
}

struct MovedProgram {
  bool moved = ask_to_be_moved();  // before cuInit
  sim_test::Program program;
  uint64_t free_at_first = free_now();

  static uint64_t free_now() {
    size_t free_bytes = 0, total = 0;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
  }

  // All of the device's memory is back but for so much. Up to ten seconds: the service thread may
  // have it in hand.
  bool is_back(uint64_t kept) const {
    for (int n = 0; n < 10'000; ++n) {
      if (arena_probe_driver_free() + kept >= free_at_first) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  // One slab is kept.
  void check_no_leak(uint64_t kept = 32 * kMiB) const {
    CHECK(is_back(kept));
    CHECK(arena_probe_counted(0) == 0);
  }
};

inline uint64_t free_bytes() { return MovedProgram::free_now(); }

// Everything out, and back.
inline uint64_t cycle() {
  OK(cuCtxSynchronize());
  const int64_t out = arena_probe_out();
  REQUIRE(out >= 0);
  REQUIRE(arena_probe_back() == 0);
  return static_cast<uint64_t>(out);
}

using Bytes = std::vector<unsigned char>;
// Eight bytes at a time: this is compiled as tests are.
inline Bytes noise(size_t bytes, uint64_t seed) {
  Bytes all(bytes);
  uint64_t word = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t at = 0; at < bytes; at += sizeof word) {
    word = word * 6364136223846793005 + 1442695040888963407;
    memcpy(&all[at], &word, std::min(sizeof word, bytes - at));
  }
  return all;
}
inline void write(CUdeviceptr to, const Bytes& bytes) {
  OK(cuMemcpyHtoD_v2(to, bytes.data(), bytes.size()));
}
inline bool holds(CUdeviceptr from, const Bytes& bytes) {
  Bytes read(bytes.size());
  OK(cuMemcpyDtoH_v2(read.data(), from, read.size()));
  return read == bytes;
}

}  // namespace arena_test
