// PyTorch profiler (Kineto, Chrome trace JSON) recordings, read as workloads.
// Called by load_workload and by tests; one thread; the file is streamed, only host calls and
// device operations are kept. What the importer does:
//
//  - Device work (cat kernel, gpu_memcpy, gpu_memset) is tied to its host call (cuda_runtime,
//    cuda_driver) by args.correlation. Several kernels of one call (a graph launch) are issued
//    one after the other at the call.
//  - Calls of all host threads become one timeline in order of their start. A pause is the time
//    between the return of all calls so far and the next call; an asynchronous call's own length
//    is its call_ns. The waiting inside a synchronising call, or inside a copy from or to pageable
//    memory, is not host time: it arises again from the device.
//  - The iteration begins at the first call that has device work. Device work without a host
//    call (recording began in mid-flight) is cropped, with synchronisations before that point,
//    unless Unmatched::IssueFirst puts it, in order and at once, before everything else.
//  - Synchronous copies get a stream synchronisation behind them. A stream synchronisation whose
//    stream the file does not say means the stream its thread used last; waiting for an event
//    means the same.
//  - cudaStreamWaitEvent: streams as the file's cuda_sync events say. Where it has none, the
//    waiting stream is the one its thread uses next, and the stream waited for is the one whose
//    last operation ended latest among those that, in the recording, ended before that use began.
//  - The iteration ends with a wait for everything. Names, shapes and bytes are as recorded.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/play/text_source.h"
#include "tools/play/workload.h"

namespace lull::play {

// Times are ns since the earliest kept event of the file.
struct TracedCall {
  int64_t start_ns = 0, end_ns = 0;
  int64_t thread = 0;
  uint64_t correlation = 0;
  uint32_t name = 0;  // index in KinetoTrace::names
  // From cuda_sync events, -1 where the file does not say.
  int64_t stream = -1, wait_on_stream = -1;
};

enum class DeviceWork : uint8_t { Kernel, Copy, Memset };

struct TracedDeviceOp {
  DeviceWork work = DeviceWork::Kernel;
  int64_t start_ns = 0, end_ns = 0;
  int64_t stream = 0;
  int64_t device = 0;  // as numbered in KinetoTrace::devices
  uint64_t correlation = 0;
  uint64_t bytes = 0;
  uint32_t name = 0;
  uint32_t shared_bytes = 0;
  Extent grid, block;
};

// What the program marked itself (record_function, with its profiler's steps).
struct TracedRange {
  int64_t start_ns = 0, end_ns = 0;
  int64_t thread = 0;
  uint32_t name = 0;
};

struct TracedDevice {
  int64_t number = 0;
  std::string name;
  uint64_t total_bytes = 0;
};

struct KinetoTrace {
  std::vector<TracedDevice> devices;  // as far as the file says
  int64_t started_unix_ns = 0;        // wall clock at time 0; 0: not known
  std::vector<std::string> names;
  std::vector<TracedCall> calls;       // by start
  std::vector<TracedDeviceOp> device;  // by start
  std::vector<TracedRange> ranges;     // by start, longer ones first
};

// The figures of the recording, all of its device work, matched or not.
struct TraceSummary {
  uint64_t operations = 0, kernels = 0, copies = 0, memsets = 0, with_call = 0;
  uint64_t streams = 0;
  int64_t span_ns = 0;  // first start to last end
  int64_t busy_ns = 0;  // union of all intervals
  int64_t work_ns = 0;  // sum of all intervals
  int64_t operation_p50_ns = 0, operation_p90_ns = 0, operation_max_ns = 0;
  int64_t gap_p50_ns = 0, gap_p90_ns = 0, gap_max_ns = 0;  // between busy intervals
  double busy_share() const {
    return span_ns > 0 ? static_cast<double>(busy_ns) / static_cast<double>(span_ns) : 0;
  }
};

enum class Unmatched { Crop, IssueFirst };

struct Import {
  Workload workload;
  uint64_t cropped = 0;             // device operations left out for want of a host call
  uint64_t calls_without_work = 0;  // launches and copies whose device side is not in the file
  uint64_t guessed_waits = 0;       // event waits whose streams were inferred
  int64_t recorded_ns = 0;  // first replayed call to the end of the last call and of all work
};

// What a workload of lull is refused with: it has the key of one, at whatever place.
inline constexpr std::string_view kIsWorkload =
    "it is a workload of lull, not a recording: give a PyTorch profiler trace";

// Errors say why and what would be right, without the file's name.
std::expected<KinetoTrace, std::string> read_kineto(TextSource& source);
// `progress` is told what part of the file has been read, 0 to 1, several times a second.
std::expected<KinetoTrace, std::string> read_kineto_file(
    const std::string& path, std::function<void(double)> progress = nullptr);
TraceSummary summarize(const KinetoTrace& trace);
std::expected<Import, std::string> import_kineto(const KinetoTrace& trace, const std::string& name,
                                                 Unmatched unmatched = Unmatched::Crop);

}  // namespace lull::play
