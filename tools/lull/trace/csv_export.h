// A trace's launches as CSV, one row each, for spreadsheets, pandas and the Python package. Used by
// `lull trace export --format csv`; one thread; writes as it reads, memory is bounded.
//
// A launch's time comes some time after it in a trace: a row waits for its own until kMaxWaiting
// launches have come after it. Rows are in the order of the launches. Times are ns since the
// trace's beginning; what is not known is empty.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <expected>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/trace/events.h"

namespace lull::trace {

class CsvExport {
 public:
  static constexpr size_t kMaxWaiting = size_t{1} << 18;

  // Writes to `out`, which it does not close.
  CsvExport(const FileInfo& info, std::FILE* out);

  void feed(const Event& event);
  // The error is half a line.
  std::expected<void, std::string> finish();
  // Times that came too late for their row, or for a launch that the trace does not have.
  uint64_t lost_times() const { return lost_times_; }

 private:
  struct Row {
    Launch launch;
    Timing timing;
    bool cancelled = false;
  };
  struct Kernel {
    std::string text;  // the cells of kind, name and shape
  };

  void on(const DeviceInfo& device);
  void on(const ClientStarted& client);
  void on(const KernelInfo& kernel);
  void on(const Launch& launch);
  void on(const Timing& timing);
  void on(const Cancelled& cancelled);
  void on(const auto&) {}

  Row* row_of(ClientId client, StreamSlot stream, uint64_t sequence);
  void write_oldest();
  void write(const std::string& text);

  int64_t origin_ns_;
  std::FILE* out_;
  int error_ = 0;
  std::deque<Row> waiting_;
  uint64_t first_ = 0;  // number of the oldest that waits
  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<Kernel> kernels_;
  std::unordered_map<uint32_t, std::string> tasks_;
  std::unordered_map<uint32_t, std::string> devices_;
  uint64_t lost_times_ = 0;
};

}  // namespace lull::trace
