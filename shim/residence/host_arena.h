// Host memory for the contents of a client's device memory: private anonymous memory, on huge pages where
// the machine has them, populated and registered with the driver ahead of need. Service thread only.
//
//   wanted bytes -> [allowance, MemAvailable, cgroup memory.max] -> reserve addresses -> piece by piece:
//   populate -> register (pinned) -> ready
//
// A fork child does not inherit it (MADV_DONTFORK). Nothing in it outlives the process.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

inline constexpr uint64_t kHostPieceBytes = 64ULL << 20;

enum class HostMemory { kReady, kMoreToDo, kRefused };
// One piece at most, so that an order that comes meanwhile is not kept waiting. kRefused: `reason` (one
// line, static) says what has too little and what would help; nothing is lost.
HostMemory prepare_host_arena(uint64_t wanted_bytes, uint64_t allowance_bytes, const char*& reason);
uint64_t host_arena_bytes();   // ready
char* host_arena_at(uint64_t offset);
// Gives back what is beyond `wanted_bytes`, in whole pieces.
void trim_host_arena(uint64_t wanted_bytes);
// Registrations that died with a context, or with a checkpoint, are made again.
void host_arena_context_gone(CUcontext context);

}  // namespace lull::shim
