// One stretch of one client's launches (an iteration, as a rule) as a workload that lull-play
// replays. Used by `lull trace export --format workload`; one thread. Pure.
//
// How the host's timeline is made from what a trace has (tools/play/workload.h states its rule):
//  - A pause is the time from the return of the previous call to the next call. How long a call
//  took
//    is not recorded: the first kCallNs of the time until the next one count as the call.
//  - Time that the gate held a launch is left out: it was the sharing's doing, not the program's.
//  - A wait (Synced) is known by its return. The host is taken to have waited from the previous
//    call on, unless the work it waited for had been complete for more than kLateNs.
//  - A launch without a measured length gets its kernel's median.
//  - Waits between streams are not in a trace, and so not in the workload.
//  - A graph is one kernel of the graph's length.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <string>
#include <vector>

#include "tools/lull/trace/report.h"
#include "tools/play/workload.h"

namespace lull::trace {

struct WorkloadChoice {
  ClientId client;
  int64_t from_ns = 0, until_ns = 0;  // launches in [from, until)
  size_t max_ops = 20'000;            // beyond, runs that repeat are written as repeats
};

struct ExportedWorkload {
  play::Workload workload;
  std::vector<play::Repeat> repeats;
  uint64_t without_length = 0;  // launches that got their kernel's median
};

class WorkloadExport {
 public:
  static constexpr int64_t kCallNs = 2000;
  static constexpr int64_t kLateNs = 100'000;
  static constexpr size_t kLongestRepeat = 1024;  // operations repeated as one

  // `report` is of the same file and outlives this.
  WorkloadExport(const Report& report, const WorkloadChoice& choice)
      : report_(report), choice_(choice) {}

  void feed(const Event& event);
  // The error is half a line.
  std::expected<ExportedWorkload, std::string> finish();

 private:
  struct Call {
    int64_t at_ns = 0, held_ns = 0;
    int64_t duration_ns = -1, end_ns = -1;
    uint64_t sequence = 0, bytes = 0;
    uint32_t stream = 0;
    KernelIndex kernel = 0;
    bool is_sync = false, whole_device = false;
  };

  Call* find(uint32_t stream, uint64_t sequence);
  std::expected<uint32_t, std::string> kernel_of(KernelIndex index, play::Workload& work);
  int64_t usual_length_ns(KernelIndex index) const;
  int64_t completed_ns(const std::vector<Call>& calls, size_t sync) const;
  std::expected<play::Op, std::string> op_of(const Call& call, ExportedWorkload& out);
  void fold(ExportedWorkload& out) const;

  const Report& report_;
  WorkloadChoice choice_;
  std::vector<Call> calls_;
  std::map<uint32_t, std::vector<size_t>> by_stream_;  // launches, by sequence
  std::map<uint32_t, uint32_t> streams_;               // as recorded -> in the workload
  std::map<KernelIndex, uint32_t> kernels_;
  bool too_many_ = false;
};

}  // namespace lull::trace
