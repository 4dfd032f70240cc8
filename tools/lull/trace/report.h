// What the analysis of a trace found: plain data, read by the tables, CSV, JSON and the HTML
// report.
//
// Times are ns of model time; moments count from FileInfo::created_at. How totals are defined:
//   count        launches with a record
//   timed        of these, those whose length on the device was measured
//   measured_ns  the sum of the measured lengths
//   total_ns     what all of them took: measured_ns where every launch is timed, else an estimate
//                (sampled_total.h), marked so; unknown (< 0) without any.
//                Sums over several kernels leave untimed copies out of it: small ones never are
//                timed, and kernels say nothing about them
//   error_ns     half of the 95 % interval around an estimate; 0 where all is measured
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/trace/events.h"
#include "tools/lull/trace/busy_union.h"
#include "tools/lull/trace/idle.h"
#include "tools/lull/trace/log_histogram.h"

namespace lull::trace {

struct Total {
  uint64_t count = 0, timed = 0;
  int64_t untimed_copies = 0;  // in sums over several kernels only
  int64_t measured_ns = 0;
  uint64_t to_time() const {
    return count - std::min(count, static_cast<uint64_t>(std::max<int64_t>(0, untimed_copies)));
  }
  bool is_known() const { return timed > 0 || to_time() == 0; }
  bool is_estimate() const { return timed > 0 && timed < to_time(); }
  double total_ns() const {
    if (!is_known()) return -1;
    return static_cast<double>(measured_ns) + (is_estimate() ? untimed_ns : 0);
  }
  // Set when the analysis ends.
  double untimed_ns = 0;  // what the launches that were not timed are estimated to have taken
  double error_ns = 0;
};

// A kernel (name, image, shape, call site) on one device.
struct KernelRow {
  KernelIndex kernel = 0;  // Report::kernel_infos
  DeviceId device;
  Total total;
  LogHistogram duration;
  LogHistogram gap;  // until the next unit of the same thread, or stream, began on the device
  uint64_t held = 0;
  int64_t held_ns = 0;
  uint64_t bytes = 0;  // copies and memsets
};

struct StreamRow {
  ClientId client;
  DeviceId device;
  StreamSlot stream;
  Total total;
  uint64_t syncs = 0;
};

// How long one task waited for another (or for nobody in particular: by = 0).
struct HeldRow {
  ClientId client, by;
  LogHistogram held;
};

// A range that a task marks itself, by name (NVTX).
struct RangeRow {
  ClientId client;
  RangeIndex range = 0;  // Report::range_infos
  RangeKind kind = RangeKind::kNested;
  LogHistogram lengths;
};

struct IterationRow {
  ClientId client;
  uint64_t iterations = 0;     // whole ones seen while the period was known
  uint64_t launches_each = 0;  // the last period; 0: none found
  double confidence = 0;       // 0 .. 1
  LogHistogram length;
  // Where iterations began, in order: each, or one in `starts_every` where there were too many.
  std::vector<int64_t> starts_ns;
  uint64_t starts_every = 1;
  uint64_t lowest_position = 0;  // launches into the iteration, where least memory is in use
  uint64_t lowest_bytes = 0;
  // One whole iteration of usual length; < 0: none.
  int64_t typical_from_ns = -1, typical_until_ns = -1;
};

struct ClientRow {
  ClientStarted started;
  Priority priority;  // the last one
  bool has_ended = false;
  ClientEnded ended;
  uint64_t launches = 0, copies = 0, memsets = 0;  // with a record
  uint64_t lost = 0;
  Total total;
  uint64_t held = 0;
  int64_t held_ns = 0;
  int64_t waited_ns = 0;  // inside synchronising calls, all threads
  uint64_t peak_bytes = 0, last_bytes = 0;
  int64_t first_ns = -1, last_ns = -1;  // of its launches

  uint64_t exact_launches() const { return has_ended ? ended.launches : launches; }
  uint64_t dropped() const { return has_ended && ended.dropped > lost ? ended.dropped : lost; }
};

struct DeviceRow {
  DeviceInfo info;
  Total total;
  BusyUnion busy;  // of the measured intervals whose start is known
  uint64_t without_start = 0;
  int64_t without_start_ns = 0;

  int64_t span_ns() const { return busy.last_ns() - busy.first_ns(); }
  double busy_share() const {
    return span_ns() > 0 ? static_cast<double>(busy.busy_ns()) / static_cast<double>(span_ns()) : 0;
  }
  // The share is a lower bound: some units have no measured interval.
  bool is_partial() const { return total.timed < total.count || without_start > 0; }
};

struct PolicySpan {
  Instant at;
  std::string policy;
};

// FileInfo::created_at, which a file may have wrong, such that differences to it fit 63 bits.
Instant sane_origin(const FileInfo& info);

struct Report {
  std::string file;
  FileInfo info;
  std::string problem;  // why reading ended early; empty: it did not
  uint64_t events = 0, launches = 0, timings = 0, lost = 0;
  uint64_t cancelled = 0;             // launches that the driver refused; they are in the counts
  int64_t first_ns = 0, last_ns = 0;  // of everything with a time
  std::vector<KernelInfo> kernel_infos;
  std::vector<KernelRow> kernels;  // by total time, longest first
  std::vector<ClientRow> clients;  // in order of appearance
  std::unordered_map<uint32_t, size_t> client_places;  // in `clients`, by id
  std::vector<StreamRow> streams;  // by client, device, stream
  std::vector<DeviceRow> devices;
  std::vector<HeldRow> held;  // longest first
  std::vector<RangeInfo> range_infos;
  std::vector<RangeRow> ranges;  // longest first
  std::vector<IdleRow> idle;  // of each task on each device, longest first
  std::vector<IterationRow> iterations;
  std::vector<PolicySpan> policies;
  uint64_t policies_left_out = 0;

  const ClientRow* client(ClientId id) const;
  std::string range_name(RangeIndex index) const;  // "domain: name"
  std::string task_name(ClientId id) const;  // "train (2)" ; "nobody in particular" for 0
};

}  // namespace lull::trace
