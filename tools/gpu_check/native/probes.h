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

struct TurnWishes {
  int calls = 500;
  int batches = 7;
};
// Says that it is ready, then for each line on stdin launches and says {"call_ns", "done_ns"}: the
// medians of its batches. For programs that are measured in turns, bare and under lull.
nlohmann::json probe_turns(Driver& driver, const TurnWishes& wishes);

struct QueueWishes {
  int most = 8192;  // launches after which a queue counts as endless
  int fills = 5;    // times each queue is filled
  int batch = 250;  // launches in one round of a comparison; less than a queue's depth
  int rounds = 31;
  double hold_ms = 150;  // for so long the device is held while a queue is filled
  double ahead_ms = 10;  // and while a batch is queued
};
// How many launches fit before the host waits, bare and with what marks progress; what markers and
// timing events cost a device that always has work; events' times beside the kernels' own.
nlohmann::json probe_queue(Driver& driver, const QueueWishes& wishes);

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
  bool pairs = false;    // every GPU that it sees is named, each comes back as itself
  bool paused = false;   // when checkpointed, says so and waits for a line on stdin
};
// The process checkpoints itself from this thread while another one calls CUDA all the time.
nlohmann::json probe_checkpoint(Driver& driver, const CheckpointWishes& wishes);

struct SuspendWishes {
  uint64_t bytes = 1ULL << 30;
  uint64_t chunk_bytes = 64ULL << 20;
  int threads = 1;          // that populate and pin while chunks are copied
  bool prepared = false;    // all of the host's memory is pinned beforehand
  bool checkpoint = false;  // the driver's checkpoint while the memory is out, in the last round
  bool paused = false;      // with it: says so and waits for a line on stdin
  int rounds = 3;
};
// Device memory to the host and back to its addresses, in a pipeline of chunks.
nlohmann::json probe_suspend(Driver& driver, const SuspendWishes& wishes);

// Led by orders on stdin until it ends: a job that holds `bytes` of device memory and launches a
// kernel now and then.
//   check: whether every byte is what it was; checkpoint: the driver's, of itself, there and back
nlohmann::json probe_hold(Driver& driver, uint64_t bytes);

struct BystanderWishes {
  double seconds = 10;
  double spin_us = 100;
  double pause_us = 1000;
};
// A kernel, a wait, a pause, again and again; says when it works and what it was told when it no
// longer does. Ends without touching its context.
nlohmann::json probe_bystander(Driver& driver, const BystanderWishes& wishes);

// Writes where no memory is; says what it was told.
nlohmann::json probe_illegal_address(Driver& driver);

struct FloodWishes {
  double seconds = 30;
  double spin_us = 5000;
  int in_flight = 50;
};
// Keeps that many kernels queued until it is ended; says when they are there first.
nlohmann::json probe_flood(Driver& driver, const FloodWishes& wishes);

// Takes all device memory but `leave_bytes`, says so, and holds it until a line comes on stdin.
nlohmann::json probe_hog(Driver& driver, uint64_t leave_bytes);

// Host only: how long a store, a futex wake and a socket message take to reach another process.
nlohmann::json probe_wake();

}  // namespace lull::probe
