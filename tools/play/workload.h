// A workload: what one iteration of a CUDA program asks of its host and its device, in the order
// in which the host asks for it. lull-play replays it, `lull compare` names it, tests model it.
// The file format (JSON, version 1) is documented in examples/workloads/README.md.
//
// Host timeline, the rule for all who replay or model a workload (times in model ns):
//
//   ready(0)   = start of the iteration
//   call(i)    = ready(i) + ops[i].pause_ns                  the moment call i is made
//   return(i)  = blocking i:   when the device has done what it waits for (>= call(i))
//                otherwise:    call(i) + max(ops[i].call_ns, what the call really took)
//   ready(i+1) = return(i)
//   end        = when all device work of the iteration is done and the last call has returned;
//                the next iteration starts pause_after_ns later
//
// So host pauses are think time: waiting for the device is never part of them, and the host runs
// ahead of the device exactly as far as the recorded calls let it.
// Pure data: no clock, no files, no CUDA.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <vector>

namespace lull::play {

inline constexpr int kWorkloadVersion = 1;
inline constexpr uint32_t kMaxStreams = 128;
inline constexpr uint32_t kMaxEvents = 65536;
inline constexpr uint32_t kMaxKernels = 65536;
inline constexpr uint64_t kMaxOps = 4'000'000;           // of one iteration, repeats written out
inline constexpr uint64_t kMaxTimeNs = 600'000'000'000;  // of any one pause, call or kernel
inline constexpr uint64_t kMaxCopyBytes = 1ULL << 40;
inline constexpr uint32_t kMaxSharedBytes = 232'448;
inline constexpr uint32_t kMaxKernelNameChars = 16384;

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Extent&) const = default;
};

// A kernel as the program launches it: one name may appear with several shapes.
struct Kernel {
  std::string name;  // as the program has it (demangled in traces), never empty
  Extent grid;
  Extent block;
  uint32_t shared_bytes = 0;
  bool operator==(const Kernel&) const = default;
};

enum class OpKind : uint8_t {
  Launch,        // kernel, stream, duration_ns
  CopyToDevice,  // bytes, stream, pageable
  CopyToHost,
  CopyOnDevice,
  Memset,       // bytes, stream
  StreamSync,   // blocking: all work so far of `stream`
  DeviceSync,   // blocking: all work so far
  EventRecord,  // event, stream
  EventWait,    // event, stream: later work of the stream waits for the event's last record
};
const char* to_string(OpKind kind);

struct Op {
  OpKind kind = OpKind::Launch;
  bool pageable = false;     // copies to or from the host: ordinary memory instead of pinned
  uint32_t stream = 0;       // < Workload::streams; unused by DeviceSync
  uint32_t kernel = 0;       // Launch: index in Workload::kernels
  uint32_t event = 0;        // EventRecord, EventWait: < Workload::events
  uint64_t pause_ns = 0;     // host time between the previous call's return and this call
  uint64_t call_ns = 0;      // host time inside the call itself; 0 for blocking calls
  uint64_t duration_ns = 0;  // Launch: length on the device
  uint64_t bytes = 0;        // copies and memset
  // Recordings only: the device time of a copy or a memset (replay takes it from the bytes); else
  // 0.
  uint64_t recorded_ns = 0;
  bool operator==(const Op&) const = default;

  bool is_copy() const {
    return kind == OpKind::CopyToDevice || kind == OpKind::CopyToHost ||
           kind == OpKind::CopyOnDevice;
  }
  bool is_sync() const { return kind == OpKind::StreamSync || kind == OpKind::DeviceSync; }
};

// Where a recorded workload comes from: one line each, empty where not known. For the eye only.
struct Recorded {
  std::string gpu, driver, model, batch, date, source;
  bool operator==(const Recorded&) const = default;
};

struct Workload {
  std::string name;             // file stem when the file does not say
  std::string kind;             // inference, training, batch or other
  std::string description;      // optional, one line
  Recorded recorded;            // optional
  uint32_t streams = 1;         // 1 .. kMaxStreams
  uint32_t events = 0;          // highest event index + 1
  uint64_t pause_after_ns = 0;  // host pause between iterations
  std::vector<Kernel> kernels;
  std::vector<Op> ops;  // one iteration, never empty
  bool operator==(const Workload&) const = default;
};

// What one iteration adds up to.
struct WorkloadTotals {
  uint64_t launches = 0, copies = 0, memsets = 0, syncs = 0;
  uint64_t kernel_ns = 0;  // recorded lengths of all kernels
  uint64_t host_ns = 0;    // pauses and calls: how long an infinitely fast device would take
  uint64_t copy_bytes = 0;
};
WorkloadTotals totals(const Workload& workload);

// Ends the iteration with a wait for all of its work, unless it does already.
void close_iteration(Workload& workload);

// The JSON format. Reading is strict: an unknown key, a missing key, a value out of range are
// errors of one line with file, JSON path and what would be right. The result is closed
// (close_iteration) and its repeats are written out. `file` is only used in messages.
std::expected<Workload, std::string> parse_workload(const std::string& text,
                                                    const std::string& file);
std::string write_workload(const Workload& workload);  // without repeats; parses back to the same

// ops[first .. first + length * times) are `length` equal operations again and again. In order of
// `first`, without overlap.
struct Repeat {
  size_t first = 0, length = 0;
  uint64_t times = 1;
};
// The same, with the repeats written as such.
std::string write_workload(const Workload& workload, const std::vector<Repeat>& repeats);

// The file of a workload that is named as a file, or else by the name of a shipped one, as
// "chatty_inference" (share/lull/workloads beside the folder of the running program); `word` where
// it is neither.
std::string workload_file(const std::string& word);

// A workload file or a PyTorch profiler trace (kineto.h), plain or gzip: found out by content.
// Errors are one line "cannot read FILE: why: what to do".
std::expected<Workload, std::string> load_workload(const std::string& path);

}  // namespace lull::play
