// Host memory for the contents of a client's device memory: private anonymous memory, on huge pages
// where the machine has them, populated and registered with the driver ahead of need.
//
//   wanted bytes -> [allowance, the machine, the cgroups: host_limits.h] -> piece by piece:
//   map (reserved huge pages, else transparent ones, else small) -> populate -> register (pinned)
//   -> ready
//
// One run of offsets, in pieces that lie anywhere. A fork child does not inherit it
// (MADV_DONTFORK). Nothing in it outlives the process. Service thread, but for what is marked.
#pragma once

#include <stdint.h>

#include "shim/driver.h"

namespace lull::shim {

// A piece at most: what an order that comes meanwhile waits for (12 ms of populating huge pages, 40
// of small ones, 3 of registering; docs/hardware), and large enough that its fixed costs do not
// show.
inline constexpr uint64_t kHostPieceBytes = 64ULL << 20;

enum class HostMemory { kReady, kMoreToDo, kRefused };
// Makes one piece at most ready. kRefused: `reason` (one line; stays until the next refusal) says
// what has too little and by how much; nothing is lost. `ordinal`: the device in whose context it
// is registered.
HostMemory prepare_host_arena(uint64_t wanted_bytes, uint64_t allowance_bytes, CUdevice ordinal,
                              const char*& reason);
// Whether all of it may be had, without taking any. False: `reason` as above.
bool host_arena_fits(uint64_t wanted_bytes, uint64_t allowance_bytes, const char*& reason);
uint64_t host_arena_bytes();  // ready
// Of what is ready; `left_bytes`: how much lies in one run from there.
char* host_arena_at(uint64_t offset, uint64_t& left_bytes);
// Gives back what is beyond `wanted_bytes` and an eighth more, in whole pieces.
void trim_host_arena(uint64_t wanted_bytes);
// The driver has restored the process: registers again what it does not know any more.
void check_host_arena(CUdevice ordinal);

// Any thread. The context may end, and no piece is being registered in it any more.
void host_arena_context_pauses();
// Registrations that die with the context are made again in another. `alive`: it has not ended yet.
void host_arena_context_gone(CUcontext context, bool alive);
void forget_host_arena();  // fork child

}  // namespace lull::shim
