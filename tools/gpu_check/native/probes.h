// What lull-device-probe measures, one function a subcommand: each takes an open driver and gives
// one JSON object. A failed driver call throws Refused, a machine that cannot be measured NotHere.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/gpu_check/native/driver.h"

namespace lull::probe {

// Name, driver, sizes, abilities: what a simgpu profile begins with.
nlohmann::json probe_facts(Driver& driver);

// `list_file` has lines "base version flags exported_name": does cuGetProcAddress answer with the
// address that dlsym gives for that name?
nlohmann::json probe_addresses(Driver& driver, const std::string& list_file);

struct LaunchWishes {
  int calls = 500;  // below the depth of a launch queue, so that the host is not held back
  int batches = 31;
  bool launches_only = false;  // the launch alone: for runs that alternate bare and under lull
};
// Host cost of a launch, an event record, a value write; their device cost; round trips.
nlohmann::json probe_launch(Driver& driver, const LaunchWishes& wishes);

// Bandwidth and latency of copies: pinned, pageable, both ways at once, on the device; memset.
nlohmann::json probe_copies(Driver& driver, uint64_t most_bytes);

// cuMemAddressReserve .. cuMemRelease for several sizes, and mapping again at the same address.
nlohmann::json probe_mapping(Driver& driver, uint64_t most_bytes);

// cuMemHostRegister of populated memory, small and huge pages, a memfd; copies through it.
nlohmann::json probe_registration(Driver& driver, uint64_t bytes);

// Runs `watch` (kernels.h) for `spin_ms`, once `start_file` exists: when this process's kernel ran.
nlohmann::json probe_watch(Driver& driver, double spin_ms, const std::string& start_file);

struct RoundWishes {
  double spin_us = 0;      // length of the kernel; 0: the null kernel
  double pause_us = 1000;  // between two rounds, half to one and a half of it, evenly at random
  double ms = 300;         // for so long
};
// Once `start_file` exists: a kernel, a wait for it, a pause, again and again; when each round
// began and ended on the host.
nlohmann::json probe_rounds(Driver& driver, const RoundWishes& wishes,
                            const std::string& start_file);

// Led by orders on stdin (orders.h) until it ends. One kernel again and again (load.h):
//   blocks KERNEL_US BLOCK_US | compute KERNEL_US | bandwidth KERNEL_US | cache KERNEL_US
//   mark: how many are done; idle: stops
nlohmann::json probe_load(Driver& driver);

// Led by orders on stdin until it ends. `rounds MS PAUSE_US SPIN_US BLOCKS`: a short kernel, a wait
// for it, a pause, again and again; how long each took on the host and from event to event, us.
nlohmann::json probe_waits(Driver& driver);

struct CheckpointWishes {
  uint64_t bytes = 1ULL << 30;
  bool managed = false;  // one managed allocation beside the rest
  bool mapped = false;   // an unmapped address reservation lives through it, and is mapped again
  bool paused = false;   // when checkpointed, says so and waits for a line on stdin
};
// The process checkpoints itself from this thread while another one calls CUDA all the time.
nlohmann::json probe_checkpoint(Driver& driver, const CheckpointWishes& wishes);

// Takes all device memory but `leave_bytes`, says so, and holds it until a line comes on stdin.
nlohmann::json probe_hog(Driver& driver, uint64_t leave_bytes);

// Host only: how long a store, a futex wake and a socket message take to reach another process.
nlohmann::json probe_wake();

}  // namespace lull::probe
