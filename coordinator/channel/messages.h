// What travels over lulld's Unix socket (SOCK_SEQPACKET), and in which order.
//
//   shim                              lulld                          tool (lull status, ...)
//   hello  ------------------------>  checks SO_PEERCRED, version
//          <------ welcome + memfd    (status kWelcome*)
//   1 byte doorbell --------------->  drains the rings
//   end of file  <--------------->    either side has gone: gates open / claims are dropped
//                                     <-------------------------- one JSON request, starts with '{'
//                                     JSON reply in packets, then end of file ------------------>
//
// Replies are pages of bounded length. One with "next": N has more to say: the tool asks the same
// again with "from": N, on a connection of its own, until a page says no next. Lists of a page
// follow those of the one before; an entry that says "continues" goes on with the last entry there,
// whose own lists follow each other likewise.
//
// A connection is a tool's when its first packet starts with '{', a client's when it starts with
// kMagic. Everything else is closed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "coordinator/channel/layout.h"

namespace lull::channel {

inline constexpr int32_t kPriorityUnset = -1;
inline constexpr uint32_t kPriorityLevels = 10;  // 0 highest
inline constexpr int32_t kSlowdownUnset = -1;
inline constexpr size_t kReplyChunkBytes = 32768;

// How much of a client's work is timed. A client may wish for more or less than the daemon's own
// setting; the daemon decides (it grants the wish) and writes lull_control.timing_period.
enum lull_timing : uint32_t {
  kTimingUnset = 0,    // as the daemon is set
  kTimingOff = 1,
  kTimingSampled = 2,
  kTimingFull = 3,
};

// How a client can be moved: what it wishes (hello), what the operator lets it (welcome).
enum lull_moves : uint32_t {
  kMovesSwap = 1,           // `lull run --suspendable`: device memory in an arena
  kMovesMigrate = 2,        // --migratable: and all GPUs visible, its own first; implies kMovesSwap
  kMovesOversubscribe = 4,  // --oversubscribe: takes turns where memory does not suffice; as above
};

struct lull_hello {
  uint32_t magic;
  uint32_t version;
  int32_t priority;       // 0 .. 9 or kPriorityUnset
  uint32_t timing;        // lull_timing
  uint64_t memory_limit;  // bytes for this process or, with a job name, for the whole job; 0: none
  // What this task may lose to less important ones, in thousandths, 0 .. 10000: in the mean, and at
  // p99 (no less). The daemon brings what is out of range into it. kSlowdownUnset: as it is set.
  int32_t slowdown_mean;
  int32_t slowdown_p99;
  uint32_t moves;         // lull_moves
  uint32_t uncounted;     // 1: may have launched before, without a coordinator or under an earlier one
  char name[64];          // task name; empty: the program's file name
  char job[64];           // empty: a job of its own
  char program[128];      // file name of the executable
};
static_assert(sizeof(lull_hello) == 296);

enum lull_welcome_status : uint32_t {
  kWelcomeOk = 0,
  kWelcomeClamped = 1,   // the asked priority is not allowed; `message` says which one holds
  kWelcomeVersion = 2,   // refused: another channel version
  kWelcomeFull = 3,      // refused: no client slot left, of all or of this user
  kWelcomeRefused = 4,   // refused for the reason in `message`
};

struct lull_welcome {
  uint32_t magic;
  uint32_t version;
  uint32_t status;  // lull_welcome_status
  uint32_t client_id;
  uint64_t region_bytes;
  uint32_t priority;
  uint32_t moves;   // lull_moves granted; decided once, before the client's first allocation
  char message[224];  // one line for the user, empty when all is well
};
static_assert(sizeof(lull_welcome) == 256);

}  // namespace lull::channel
