// A trace as a Perfetto trace (protobuf, TrackEvent), for ui.perfetto.dev and trace_processor. Used
// by `lull trace export --format perfetto`; one thread; writes as it reads, memory is bounded.
//
//   GPU 0 NVIDIA ..                 a track for each device
//     task (1) stream 7             its units: begin and end on the device
//   task (1), pid 1234              a process for each client
//     thread 0                      launches (instants), and how long the gate held them (slices)
//     ranges of thread 0, level 1   what the program marks itself (NVTX), a track for each depth
//     memory                        counter, bytes
//     gate                          counter: 1 while a launch of the client is held
//
// A launch and the unit it became are tied by a flow. Units of one stream that overlap (rounding,
// programmatic launches) are drawn one after the other; duration_ns says the measured length.
#pragma once

#include <cstdio>
#include <expected>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/trace/events.h"
#include "tools/lull/trace/busy_union.h"
#include "tools/lull/trace/protobuf_writer.h"

namespace lull::trace {

class PerfettoExport {
 public:
  static constexpr size_t kBufferBytes = size_t{4} << 20;

  // Writes to `out`, which it does not close.
  PerfettoExport(const FileInfo& info, std::FILE* out);
  ~PerfettoExport();

  void feed(const Event& event);
  // The error is half a line.
  std::expected<void, std::string> finish();

 private:
  enum class TrackKind : uint8_t { kDevice, kStream, kClient, kThread, kRanges, kMemory, kGate };
  struct Track {
    uint64_t uuid = 0;
    int64_t until_ns = INT64_MIN;  // end of the last slice
  };
  struct Kernel {
    UnitKind kind = UnitKind::kKernel;
    std::string shape;
  };
  using TrackKey = std::tuple<TrackKind, uint32_t, uint32_t, uint32_t>;

  void on(const DeviceInfo& device);
  void on(const ClientStarted& client);
  void on(const KernelInfo& kernel);
  void on(const Launch& launch);
  void on(const Timing& timing);
  void on(const MemoryUse& use);
  void on(const Lost& lost);
  void on(const RangeInfo& info);
  void on(const Range& range);
  void on(const auto&) {}

  Track& track(TrackKind kind, uint32_t a, uint32_t b = 0, uint32_t c = 0);
  void describe(const TrackKey& key, uint64_t uuid);
  void packet(const ProtobufMessage& body, uint32_t field, int64_t at_ns = INT64_MIN);
  void slice(Track& track, int64_t start_ns, int64_t end_ns, ProtobufMessage begin);
  void counter(uint64_t uuid, int64_t at_ns, int64_t value);
  void write(const std::string& bytes);

  FileInfo info_;
  std::FILE* out_;
  std::string buffer_;
  int error_ = 0;
  bool first_packet_ = true;
  std::map<TrackKey, Track> tracks_;
  std::vector<Kernel> kernels_;
  std::vector<RangeInfo> ranges_;
  std::map<uint32_t, DeviceInfo> devices_;
  std::map<uint32_t, ClientStarted> clients_;
  std::map<uint32_t, std::unique_ptr<BusyUnion>> gates_;
};

}  // namespace lull::trace
