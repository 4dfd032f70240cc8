// How fast the copies of a move may go beside a task that is more important than the one that
// moves. Pure.
//
// The task may lose the part `bound` (in the mean) of an iteration that takes `iteration`
// undisturbed. A copy of the task waits for at most the chunk that is on the copy engine when it
// comes; a chunk of n bytes takes n / link. So
//
//   chunk = link x bound x iteration / 4   a wait costs a quarter of what it may lose, at most
//   rate  = link x bound / 2               two such chunks an iteration: half of what it may lose
//
// The other half is left to what else runs beside it. `link` is what the client's fastest chunk of
// its last move had, else kLinkBytesPerS, for its first chunk. Assumed: that a task's copies wait
// for one chunk each and for no more than go by in that time, and that what a copy takes of the
// GPU's own memory bandwidth (55 of 3,350 GB/s on an H100) costs nothing that counts. A chunk below
// kLeastChunkBytes would take longer to start than to copy: then the first line does not hold, and
// the second does.
#pragma once

#include <cstdint>
#include <span>

#include "policies/vocabulary.h"

namespace lull::moves {

// Pinned copies on an H100, each way (docs/hardware). What a client claims is believed within a
// factor of 64 below that, and not above.
inline constexpr double kLinkBytesPerS = 55e9;
inline constexpr uint32_t kLeastChunkBytes = 1U << 20;
inline constexpr uint32_t kMostChunkBytes = 1U << 30;

struct Important {
  int32_t bound_per_mille = 0;  // of its own time, in the mean; 0 counts as 1
  Duration iteration;           // undisturbed; 0: not known
};
struct Pace {
  uint64_t bytes_per_s = 0;  // 0: as fast as they go
  uint32_t chunk_bytes = 0;  // 0: as the client likes
  bool operator==(const Pace&) const = default;
};

// The slowest that any of them asks for; no pace beside nobody. `link_bytes_per_s`: as the client's
// copies had it; 0: not known.
Pace pace_beside(std::span<const Important> tasks, uint64_t link_bytes_per_s = 0);

}  // namespace lull::moves
