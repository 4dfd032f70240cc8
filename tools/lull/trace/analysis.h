// Reads what a trace says, event by event, into a Report. Called by every `lull trace` subcommand
// that shows figures; one thread. Memory depends on how many kernels, clients and streams there
// are, not on how many launches: quantiles are histograms, the union of busy intervals has a
// window. Knows nothing of files.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/lull/trace/idle.h"
#include "tools/lull/trace/iterations.h"
#include "tools/lull/trace/report.h"

namespace lull::trace {

class Analysis {
 public:
  // Streams and pairs of holder and held beyond these are added up in the last row.
  static constexpr size_t kMaxStreams = 1U << 16;
  static constexpr size_t kMaxHeldPairs = 1U << 16;
  // Beyond these a stream's untimed launches of another kernel count as its launches on average.
  static constexpr size_t kMaxUntimed = 1U << 20;
  static constexpr size_t kMaxPolicies = 1000;
  static constexpr size_t kMaxRangeRows = 1U << 16;  // beyond them one row counts for all

  explicit Analysis(FileInfo info);
  ~Analysis();

  // Told each part of each task's idle time (idle.h), for drawing. Before the first event.
  void tell_idle(Idle::Sink sink) { idle_ = Idle(std::move(sink)); }
  void feed(const Event& event);
  // Ends it. `problem`: why reading ended early.
  Report finish(std::string problem = {});

  size_t kept_bytes() const;

 private:
  struct ClientState;

  void on(const DeviceInfo& device);
  void on(const ClientStarted& client);
  void on(const ClientEnded& client);
  void on(const PriorityChange& change);
  void on(const PolicyChange& change);
  void on(const KernelInfo& kernel);
  void on(const Launch& launch);
  void on(const Timing& timing);
  void on(const Synced& synced);
  void on(const MemoryUse& use);
  void on(const Lost& lost);
  void on(const Cancelled& cancelled);
  void on(const Waited& waited);
  void on(const RangeInfo& info);
  void on(const Range& range);

  void saw(Instant at);
  KernelRow& kernel_row(KernelIndex kernel, DeviceId device);
  ClientState& client(ClientId id);
  void count_untimed(size_t stream_row, KernelIndex kernel, int64_t change);
  StreamRow& stream(ClientId client, DeviceId device, StreamSlot stream);
  DeviceRow& device(DeviceId id);
  void estimate();

  Report report_;
  bool any_time_ = false;
  std::vector<std::vector<KernelRow>> kernels_;  // by index; within by device, nearly always one
  std::vector<std::unique_ptr<ClientState>> clients_;
  std::unordered_map<uint32_t, size_t> client_index_;
  ClientState* last_client_ = nullptr;
  std::unordered_map<uint64_t, std::vector<size_t>> stream_index_;
  size_t last_stream_ = SIZE_MAX;
  std::unordered_map<uint64_t, size_t> held_index_;
  Idle idle_;
  std::map<std::tuple<uint32_t, RangeIndex, RangeKind>, size_t> range_places_;
  // How many launches of a kernel (low word) in a row of streams (high word) were not timed.
  std::unordered_map<uint64_t, int64_t> untimed_;
};

}  // namespace lull::trace
