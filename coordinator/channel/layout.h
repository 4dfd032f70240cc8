// The memory that one client and the daemon share: the layout, and nothing else.
//
// A client (one process running under liblull.so) owns one region, a memfd that the daemon makes,
// allocates in full, seals in size and hands over a Unix socket (messages.h). No client sees
// another client's region. The structs are plain C with fixed widths, and both sides check
// `version` before they read anything else. Every word has exactly one writer; the word's comment
// names it. All atomic access goes through gate.h, ring.h and tables.h of this folder.
//
//   offset     part                 writer           what
//   0          lull_header          daemon, at birth magic, version, size, client id
//   4 KiB      lull_control         daemon           gates, predictions wanted, memory allowance, order
//   8 KiB      lull_client          shim             devices, memory in use, credit spent, residence
//   12 KiB     lull_progress        the GPU          last completed sequence number, per stream
//   16 KiB     lull_thread[64]      shim / daemon    ring indices, counters, the held launch
//   32 KiB     lull_kernel[4096]    shim / daemon    who a kernel is / how long it will run
//   288 KiB    names (1 MiB)        shim             NUL-terminated strings, append-only
//   1312 KiB   rings (64 x 16 KiB)  shim             lull_record[256], one ring a thread
//
// The daemon treats everything a client wrote as hostile: copy a record, check the copy, use the
// copy. The shim treats the daemon as possibly dead: it never waits without a deadline.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace lull::channel {

inline constexpr uint32_t kMagic = 0x4c4c554cU;  // "LULL"
inline constexpr uint32_t kVersion = 8;

inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxThreads = 64;
inline constexpr uint32_t kRingRecords = 256;  // a power of two
inline constexpr uint32_t kMaxStreams = 64;
inline constexpr uint32_t kMaxKernels = 4096;
inline constexpr uint32_t kNameBytes = 1U << 20;

// Slot of a stream without a progress word of its own (more than kMaxStreams - 1 streams, or one
// on which the shim must not enqueue anything). Its work counts as done when predicted to be.
inline constexpr uint32_t kUntrackedStream = kMaxStreams - 1;
// Slot of every kernel that found the table full.
inline constexpr uint32_t kOverflowKernel = 0;

struct lull_header {
  uint32_t magic;
  uint32_t version;
  uint64_t region_bytes;
  uint32_t client_id;
  uint32_t reserved[11];
};
static_assert(sizeof(lull_header) == 64);

// What the daemon wants of each launch. Reading the clock is a third of an open gate's cost, so the
// time is asked for only while decisions hang on it.
enum lull_record_mode : uint32_t {
  kRecordNothing = 0,   // launches are counted only
  kRecordUntimed = 1,   // a record with tsc 0: as of when it is drained
  kRecordTimed = 2,
  kRecordEverything = 3,  // timed, and the copies that no gate holds as well: a trace is written
};

// Where the device memory of a client shall be. An order names the state to be in, not a step: what is
// already so costs nothing, and a later order replaces one that is under way.
enum lull_target : uint32_t {
  kTargetResident = 0,  // on its GPUs
  kTargetOut = 1,       // swappable memory in the client's host arena, nothing of it on the GPU
  kTargetGivenUp = 2,   // and the context checkpointed by the driver: nothing at all on the GPU
};

// What is on `from` comes back on `to`; UUIDs. The driver wants every GPU of the machine named once
// on either side.
struct lull_device_pair {
  uint8_t from[16];
  uint8_t to[16];
};
static_assert(sizeof(lull_device_pair) == 32);

// Of a client that can be moved (lull_welcome.moves). residence.h has the protocol.
struct lull_order {
  uint32_t number;       // a futex. Even, goes up by 2 with each order; 0: none yet
  uint32_t target;       // lull_target
  uint32_t drain_ms;     // how long submitted work may take to complete before a way out is refused
  uint32_t pair_count;   // of a return from kTargetGivenUp; 0: every GPU stays what it is
  uint32_t chunk_bytes;  // copied at a time; 0: as the client likes
  uint32_t reserved;
  uint64_t pace_bytes_per_s;  // copies of a move take no more than that, on the device's clock; 0:
                              // as fast as they go. Read before each chunk, without a new order
  uint64_t host_allowance_bytes;  // host memory the client may take for its arena, without an order
  lull_device_pair pair[kMaxDevices];
};
static_assert(sizeof(lull_order) == 40 + 16 * 32);

// Written by the daemon only.
struct lull_control {
  uint64_t gate[kMaxDevices];              // gate.h draws the word
  uint64_t memory_allowance[kMaxDevices];  // bytes this client may hold; UINT64_MAX: no limit
  uint32_t marked_every[kMaxDevices];      // the device reports one launch in so many of each
                                           // stream (progress.h); 0: none
  uint32_t wake_sequence;                  // futex; bumped after any change a held thread waits for
  uint32_t daemon_sleeping;                // 1: ring the doorbell (CAS 1 -> 0 by the shim, the one
                                           // word with two writers) after a record
  uint32_t wants_launch_records;           // lull_record_mode
  uint32_t timing_period;                  // 0: no kernel timing; 1: every launch; N: about one in
                                           // N launches of a kernel once it is warmed up
  uint32_t priority;                       // the level granted, 0 highest .. 9
  uint32_t slow_motion_1024;               // host time a device time, times 1024 (simulated GPUs);
                                           // 0: the same
  uint32_t unknown_devices;                // a bit an index of lull_client.device: the coordinator
                                           // knows no such device, no gate of it ever closes
  // Goes up at each of lulld's looks at this client: its sign of life to held threads. In a cache line
  // of its own: it changes often, and threads that nothing holds read the words above.
  alignas(64) uint32_t looks;
  alignas(64) lull_order order;
};
static_assert(sizeof(lull_control) <= 4096);

struct lull_device {
  uint8_t uuid[16];
  uint64_t total_bytes;   // device memory
  uint64_t used_bytes;    // memory this process holds, atomic
  uint64_t wanted_bytes;  // allowance an allocation is waiting for; 0: none
  uint32_t ready;         // 1 (release): uuid, total_bytes and name may be read
  uint32_t ordinal;       // the program's own number for it
  char name[80];
};
static_assert(sizeof(lull_device) == 128);

// Where the device memory of a client is (residence.h draws the transitions).
enum lull_residence_state : uint32_t {
  kResident = 0,
  kDraining = 1,    // its calls are held; what was submitted completes
  kLeaving = 2,     // device memory is being copied out
  kOut = 3,
  kGivingUp = 4,    // the driver takes the context out
  kGivenUp = 5,
  kRestoring = 6,   // the driver brings the context back
  kReturning = 7,   // device memory is being copied back
  kLost = 8,        // the driver could not restore the context: its calls never return
};

enum lull_move_result : uint32_t {
  kMoveDone = 0,
  kMoveBusy = 1,          // submitted work did not complete in drain_ms; it goes on
  kMoveNoHostMemory = 2,  // the host, the cgroup or the allowance has not enough; it goes on
  kMoveRefused = 3,       // the driver refused (`reason`); it goes on, at worst after a way back
  kMoveNoDeviceMemory = 4,  // a return found too little: still kOut or kGivenUp, nothing lost
  kMoveReplaced = 5,      // a later order came first
};

enum lull_ability : uint32_t {
  kCanSwap = 1,        // has an arena: kTargetOut
  kCanGiveUp = 2,      // the driver has a checkpoint and nothing known forbids it: kTargetGivenUp
  kCanMigrate = 4,     // and sees every GPU: pairs
  kHasReturned = 8,    // it was out by the order of a coordinator that has gone, and came back by itself
};

struct lull_residence {
  uint32_t state;      // release; lull_residence_state
  uint32_t order;      // release: number of the newest order that has ended, one way or the other
  uint32_t result;     // lull_move_result of it
  uint32_t abilities;  // lull_ability bits
  uint64_t moving_bytes;      // of the move that is under way, or was last
  uint64_t moved_bytes;       // of them copied so far
  uint64_t move_ns;           // how long the last one took, CLOCK_MONOTONIC, without draining
  uint64_t host_bytes;        // host arena: populated and registered
  uint64_t host_wanted_bytes; // what it needs in all
  uint64_t swappable_bytes[kMaxDevices];  // device memory that a way out frees
  uint64_t fixed_bytes[kMaxDevices];      // known device memory that only a checkpoint frees
  char reason[128];    // of a result that is not kMoveDone, or of a missing ability; one line
  uint64_t copy_bytes_per_s;  // of its fastest timed chunk in the move that is under way, or was last; 0: none
  uint64_t fixed_kinds;       // why fixed_bytes cannot be swapped: bits of fixed_memory.h
};
static_assert(sizeof(lull_residence) == 56 + 16 * 16 + 128 + 16);

// Written by the shim only.
struct lull_client {
  lull_device device[kMaxDevices];
  uint64_t spent[kMaxDevices];  // credit spent, with the epoch it belongs to (gate.h)
  uint32_t device_count;        // release: device[0 .. count) have begun
  uint32_t kernel_count;        // release: kernel[0 .. count) may be read
  uint32_t name_bytes;          // bytes of the name area in use
  uint32_t detached;            // 1: the shim has let go (unload, fork child, error)
  lull_residence residence;
};
static_assert(sizeof(lull_client) <= 4096);

// Written by the device, by cuStreamWriteValue64 behind launches that progress.h names (or by the shim's host code
// after a synchronisation that proves the same). Registered with the driver, hence its own page.
struct lull_progress {
  uint64_t completed[kMaxStreams];  // sequence number of the last launch known complete
};
static_assert(sizeof(lull_progress) <= 4096);

// One per launching thread. Indices are free-running; the ring holds [tail, head).
struct lull_thread {
  // shim
  uint64_t head;        // release by the owner thread
  uint64_t launches;    // kernels and graphs, including those without a record
  uint64_t graph_kernels;  // kernel nodes inside the graphs among `launches`
  uint64_t copies;
  uint64_t memsets;
  uint64_t dropped;     // records that found the ring full
  uint64_t held_ns;     // time spent held, total (CLOCK_MONOTONIC)
  uint64_t held_since_tsc;  // the held launch: since when, 0 when none is held
  uint32_t held_ticket;     // release: names the held launch, 0 when none
  uint32_t held_kernel;     // its kernel slot
  uint32_t held_device;
  uint32_t held_stream;     // its stream slot
  uint32_t tid;             // kernel thread id, 0: free slot
  uint32_t reserved0;
  uint64_t untimed;     // launches that were to be timed, each and every one, and could not be
  uint64_t unheld;      // launches that no gate was asked for: lulld showed no sign of life
  uint64_t unrecorded;  // units whose record found the ring full
  uint8_t pad0[16];
  // daemon
  uint64_t tail;             // release by the daemon
  uint32_t released_ticket;  // release: the held launch with this ticket may go, whatever the gate
  uint32_t reserved1;
  uint8_t pad1[112];
};
static_assert(sizeof(lull_thread) == 256);
static_assert(offsetof(lull_thread, tail) == 128);

enum lull_kernel_kind : uint32_t {
  kKindKernel = 0,
  kKindGraph = 1,   // one cuGraphLaunch; name is "graph of N kernels", image_hash identifies nodes
  kKindCopy = 2,
  kKindMemset = 3,
};

// One identity: function, image, shape. `kernel_id` is the same in every process and every run.
struct lull_kernel {
  uint64_t kernel_id;    // shim: hash of name, image, shape (tables.h)
  uint64_t image_hash;   // shim: hash of the module's image
  uint32_t name_offset;  // shim: into the name area
  uint32_t grid[3];      // shim
  uint32_t block[3];     // shim
  uint32_t shared_bytes; // shim: dynamic shared memory
  uint32_t kind;         // shim: lull_kernel_kind
  uint32_t predicted_ns; // daemon: what a launch of it will cost in credit; 0: not known
  uint32_t graph_kernels;  // shim: kKindGraph: kernel nodes inside
  uint32_t call_site_offset;  // shim: into the name area, "path+0xoffset;..."; 0: not taken
};
static_assert(sizeof(lull_kernel) == 64);

enum lull_record_kind : uint32_t {
  kRecordLaunch = 1,   // a unit went to the driver (kernel, graph; copies and memsets by kind)
  kRecordHeld = 2,     // a launch is being held; the thread slot describes it
  kRecordTiming = 3,   // a measured duration, and the gap after it where known
  kRecordCancel = 4,   // the driver refused the launch with this sequence number
  kRecordSynced = 5,   // the host saw everything up to `sequence` on this stream complete
  kRecordMemory = 6,   // used_bytes or wanted_bytes changed enough to look
  kRecordResidence = 7,  // lull_residence changed: look
  kRecordRange = 8,      // of the program's own marking (NVTX) has ended; in traces only
};

// Of kRecordRange. `kernel` is where its name lies in the name area, `device` where its domain's does
// (0: none), `stream` the kind, `sequence` how deep it is nested in its thread, `tsc` its end, `value0`
// its length in ticks.
enum lull_range_kind : uint32_t {
  kRangeNested = 0,  // pushed and popped by the thread of the record
  kRangeFree = 1,    // started anywhere, ended by the thread of the record
  kRangeMark = 2,    // a moment
};

// lull_record.device_start: the number of the time base above, ns since it below. A base is an
// event of the shim's; a new one begins every few seconds, before a float of milliseconds gets
// coarse. Base 0: not known.
inline constexpr uint32_t kStartBits = 40;

inline constexpr uint32_t kFlagMarker = 1;  // the device will write `sequence` to its progress word
inline constexpr uint32_t kFlagCharged = 2;  // value1 says how much credit was spent on the launch
inline constexpr uint32_t kFlagAside = 4;    // no gate holds it, nobody waits for it: for traces only
inline constexpr uint64_t kGapUnknown = UINT64_MAX;

struct lull_record {
  uint32_t kind;       // lull_record_kind
  uint32_t kernel;     // slot in the kernel table
  uint32_t device;     // index in lull_client.device
  uint32_t stream;     // stream slot
  uint64_t sequence;   // per stream slot, from 1; timing: of the measured launch
  uint64_t tsc;        // ticks.h `ticks()` at the call; 0: not taken; timing: at the measured launch
  uint64_t value0;     // timing: duration, ns on the device clock; launch: copy bytes
  uint64_t value1;     // timing: gap until the next unit's start, ns, or kGapUnknown; launch: kFlagCharged;
                       // synced: ticks that the call took which has shown it; 0: not taken, or said before
  uint32_t flags;
  uint32_t ticket;     // held: the ticket in the thread slot; launch: the ticket it was released by
  uint64_t device_start;  // timing: when the unit started, kStartBits; 0: not known
};
static_assert(sizeof(lull_record) == 64);

inline constexpr size_t kHeaderOffset = 0;
inline constexpr size_t kControlOffset = 4096;
inline constexpr size_t kClientOffset = 2 * 4096;
inline constexpr size_t kProgressOffset = 3 * 4096;
inline constexpr size_t kThreadsOffset = 4 * 4096;
inline constexpr size_t kKernelsOffset = kThreadsOffset + kMaxThreads * sizeof(lull_thread);
inline constexpr size_t kNamesOffset = kKernelsOffset + 4096UL * 64;  // 56-byte slots, rounded up
inline constexpr size_t kRingsOffset = kNamesOffset + kNameBytes;
inline constexpr size_t kRegionBytes =
    kRingsOffset + static_cast<size_t>(kMaxThreads) * kRingRecords * sizeof(lull_record);
static_assert(kMaxKernels * sizeof(lull_kernel) <= 4096UL * 64);
static_assert(kRegionBytes % 4096 == 0);

// A mapped region, by its parts. Holds no memory of its own.
struct Region {
  char* base = nullptr;

  lull_header* header() const { return reinterpret_cast<lull_header*>(base + kHeaderOffset); }
  lull_control* control() const { return reinterpret_cast<lull_control*>(base + kControlOffset); }
  lull_client* client() const { return reinterpret_cast<lull_client*>(base + kClientOffset); }
  lull_progress* progress() const {
    return reinterpret_cast<lull_progress*>(base + kProgressOffset);
  }
  lull_thread* thread(uint32_t slot) const {
    return reinterpret_cast<lull_thread*>(base + kThreadsOffset) + slot;
  }
  lull_kernel* kernel(uint32_t slot) const {
    return reinterpret_cast<lull_kernel*>(base + kKernelsOffset) + slot;
  }
  char* names() const { return base + kNamesOffset; }
  lull_record* ring(uint32_t slot) const {
    return reinterpret_cast<lull_record*>(base + kRingsOffset) + size_t{slot} * kRingRecords;
  }
};

}  // namespace lull::channel
