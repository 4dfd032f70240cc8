// What a trace says, as plain data: the writer takes these, the reader gives them back in the order
// in which they were written. Times are model time of the node (policies/vocabulary.h); on a real
// GPU that is CLOCK_MONOTONIC of the recording machine.
//
// A trace is in order of writing, not of time: a Timing comes some time after its Launch, threads
// are interleaved as they were drained. Within one thread of one client launches are in their order,
// and what a launch refers to (client, device, kernel) always comes before it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>

#include "policies/vocabulary.h"

namespace lull::trace {

// Said once, at the head of the file.
struct FileInfo {
  uint32_t format_version = 0;     // filled in by the reader
  int64_t created_unix_ns = 0;     // wall clock at `created_at`
  Instant created_at;              // model time of the same moment
  std::string lull_version;
  std::string host;
  std::string source;              // "lulld", "lull trace record", "kineto FILE"
  std::string command;             // of the recorded program, where there is one
  bool simulated = false;
  double slow_motion = 1;          // of the simulated GPU
  std::string sharing;             // of the simulated GPU: time_slice, mps, serial
};

struct DeviceInfo {
  DeviceId device;
  std::string uuid;   // "GPU-..." or empty
  std::string name;   // "NVIDIA H100 80GB HBM3"
  uint64_t total_bytes = 0;
};

struct ClientStarted {
  ClientId client;
  Instant at;
  int32_t pid = 0;
  Priority priority;
  std::string task;
  std::string job;      // empty: a job of its own
  std::string program;
};
struct ClientEnded {
  ClientId client;
  Instant at;
  uint64_t launches = 0;  // exact: kernels and graphs, with those that have no record
  uint64_t copies = 0;
  uint64_t memsets = 0;
  uint64_t dropped = 0;   // records lost to a full ring or a slow disk
};
struct PriorityChange { ClientId client; Instant at; Priority priority; };
struct PolicyChange { Instant at; std::string policy; };

enum class UnitKind : uint8_t { kKernel, kGraph, kCopy, kMemset };

// Index of a kernel in one file, from 0, dense, in order of definition.
using KernelIndex = uint32_t;

struct KernelInfo {
  KernelIndex index = 0;
  KernelId id;                      // the same in every process and every run
  uint64_t image_hash = 0;
  UnitKind kind = UnitKind::kKernel;
  std::string name;                 // as the driver names it (mangled)
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t shared_bytes = 0;        // dynamic
  uint32_t graph_kernels = 0;       // kGraph: kernel nodes inside
  // Host call path of its launches, innermost first: "path+0xoffset;path+0xoffset"; empty: not taken
  std::string call_site;
};

// A unit went to the driver.
struct Launch {
  ClientId client;
  DeviceId device;
  ThreadSlot thread;
  StreamSlot stream;
  KernelIndex kernel = 0;
  uint64_t sequence = 0;   // per (client, stream), ascending from 1
  Instant at;              // when the program made the call
  Duration held;           // how long the gate held it: it went to the driver at `at + held`
  ClientId held_by;        // the client that it waited for; 0: not held, or by nobody in particular
  uint64_t bytes = 0;      // copies and memsets
};

// How long a unit ran. Not every launch has one (`--timing off|sampled|full`).
struct Timing {
  ClientId client;
  DeviceId device;
  StreamSlot stream;
  uint64_t sequence = 0;   // the launch it belongs to
  KernelIndex kernel = 0;
  Instant start{-1};       // on the device; < 0: not known
  Duration duration;
  // Until the next unit that the same thread launched started on the device; < 0: not known.
  Duration gap{-1};
};

// The client waited for its device work: cuStreamSynchronize and everything that amounts to it.
struct Synced {
  ClientId client;
  StreamSlot stream;
  uint64_t sequence = 0;   // everything up to here was complete
  Instant at;
};

// Device memory that a client holds.
struct MemoryUse { ClientId client; DeviceId device; Instant at; uint64_t used_bytes = 0; };

// Launches whose records were lost at about this time (a full ring, a slow disk).
struct Lost { ClientId client; Instant at; uint64_t records = 0; };

// The driver refused this launch, which came before: it never ran.
struct Cancelled { ClientId client; StreamSlot stream; uint64_t sequence = 0; Instant at; };

// A thread of the client was inside a synchronising call, which then proved what a Synced behind it
// says.
struct Waited { ClientId client; ThreadSlot thread; Instant from; Instant until; };

// A range that the program marks itself (NVTX): what it is called, and one of them that has ended.
using RangeIndex = uint32_t;  // of one file, from 0, dense, in order of definition
struct RangeInfo {
  RangeIndex index = 0;
  std::string domain;  // empty: none
  std::string name;    // empty: not known
};
// kNested: within its thread, as deep as `depth` others; kFree: from anywhere to this thread; kMark: a
// moment.
enum class RangeKind : uint8_t { kNested, kFree, kMark };
struct Range {
  ClientId client;
  ThreadSlot thread;
  RangeIndex range = 0;
  RangeKind kind = RangeKind::kNested;
  uint32_t depth = 0;
  Instant from, until;
};

// A new kind goes to the end: its place is its number in the file.
using Event = std::variant<DeviceInfo, ClientStarted, ClientEnded, PriorityChange, PolicyChange,
                           KernelInfo, Launch, Timing, Synced, MemoryUse, Lost, Cancelled, Waited,
                           RangeInfo, Range>;

}  // namespace lull::trace
