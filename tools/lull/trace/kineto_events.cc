#include "tools/lull/trace/kineto_events.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "coordinator/channel/identity.h"

namespace lull::trace {
namespace {

using play::DeviceWork;
using play::TracedCall;
using play::TracedDeviceOp;

constexpr size_t kNoCall = SIZE_MAX;

uint32_t narrow(int64_t number) { return static_cast<uint32_t>(number); }

UnitKind kind_of(DeviceWork work) {
  return work == DeviceWork::Kernel ? UnitKind::kKernel
         : work == DeviceWork::Copy ? UnitKind::kCopy
                                    : UnitKind::kMemset;
}

class Converter {
 public:
  Converter(const play::KinetoTrace& trace, const std::function<void(const Event&)>& use)
      : trace_(trace), use_(use) {}

  void run(const std::string& task) {
    begin(task);
    match();
    // What happens at one time happens in this order: launch, its timing, the wait for it, the end of a
    // range.
    struct Step {
      int64_t at_ns;
      int order;
      size_t index;  // in order_ or in the calls
      auto operator<=>(const Step&) const = default;
    };
    std::vector<Step> steps;
    for (size_t i = 0; i < order_.size(); ++i) {
      const TracedDeviceOp& op = trace_.device[order_[i]];
      steps.push_back({launched_ns_[order_[i]], 0, i});
      steps.push_back({std::max(op.end_ns, launched_ns_[order_[i]]), 1, i});
    }
    nest();
    for (size_t i = 0; i < trace_.ranges.size(); ++i) {
      steps.push_back({trace_.ranges[i].end_ns, 3, i});
    }
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      if (trace_.names[trace_.calls[i].name].find("Synchronize") != std::string::npos) {
        steps.push_back({trace_.calls[i].end_ns, 2, i});
      }
    }
    std::sort(steps.begin(), steps.end());
    for (const Step& step : steps) {
      if (step.order == 0) launch(step.index);
      if (step.order == 1) timing(step.index);
      if (step.order == 2) synced(trace_.calls[step.index]);
      if (step.order == 3) range(step.index);
    }
    ended_.at = {steps.empty() ? 0 : steps.back().at_ns};
    use_(ended_);
  }

 private:
  void begin(const std::string& task) {
    std::set<int64_t> used;
    for (const TracedDeviceOp& op : trace_.device) used.insert(op.device);
    for (const int64_t number : used) {
      DeviceInfo info;
      info.device = {narrow(number)};
      for (const auto& known : trace_.devices) {
        if (known.number != number) continue;
        info.name = known.name;
        info.total_bytes = known.total_bytes;
      }
      use_(info);
    }
    ClientStarted started;
    started.client = ended_.client = kKinetoClient;
    started.task = task;
    started.program = "PyTorch";
    use_(started);
  }

  // Which call launched each operation; the order of launching; threads and sequence numbers.
  void match() {
    std::unordered_map<uint64_t, size_t> call_of;
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      call_of.try_emplace(trace_.calls[i].correlation, i);
    }
    const size_t count = trace_.device.size();
    launched_ns_.resize(count);
    thread_.resize(count);
    sequence_.resize(count);
    gap_ns_.assign(count, -1);
    for (size_t i = 0; i < count; ++i) {
      const TracedDeviceOp& op = trace_.device[i];
      const auto found = call_of.find(op.correlation);
      if (found == call_of.end()) {
        launched_ns_[i] = op.start_ns;
        continue;
      }
      const TracedCall& call = trace_.calls[found->second];
      launched_ns_[i] = std::min(call.start_ns, op.start_ns);
      thread_[i] = thread_slot(call.thread);
    }
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return std::tie(launched_ns_[a], trace_.device[a].start_ns) <
             std::tie(launched_ns_[b], trace_.device[b].start_ns);
    });
    std::unordered_map<uint32_t, size_t> before;  // thread -> its last operation
    for (const size_t i : order_) {
      sequence_[i] = ++last_sequence_[trace_.device[i].stream];
      if (thread_[i] == 0) continue;
      const auto [last, first] = before.try_emplace(thread_[i], i);
      if (first) continue;
      gap_ns_[last->second] =
          std::max<int64_t>(0, trace_.device[i].start_ns - trace_.device[last->second].end_ns);
      last->second = i;
    }
  }

  uint32_t thread_slot(int64_t thread) {
    return threads_.try_emplace(thread, narrow(static_cast<int64_t>(threads_.size()) + 1))
        .first->second;
  }

  KernelIndex kernel_of(const TracedDeviceOp& op) {
    const Shape key{op.name,    op.grid.x,       op.grid.y,
                    op.grid.z,  op.block.x,      op.block.y,
                    op.block.z, op.shared_bytes, static_cast<uint32_t>(op.work)};
    const auto [found, added] =
        kernels_.try_emplace(key, narrow(static_cast<int64_t>(kernels_.size())));
    if (!added) return found->second;
    KernelInfo info;
    info.index = found->second;
    info.kind = kind_of(op.work);
    info.name = trace_.names[op.name];
    info.grid = {op.grid.x, op.grid.y, op.grid.z};
    info.block = {op.block.x, op.block.y, op.block.z};
    info.shared_bytes = op.shared_bytes;
    info.id = {channel::kernel_id(info.name.c_str(), 0, info.grid.data(), info.block.data(),
                                  info.shared_bytes)};
    use_(info);
    return info.index;
  }

  void launch(size_t index) {
    const size_t i = order_[index];
    const TracedDeviceOp& op = trace_.device[i];
    Launch launch;
    launch.client = kKinetoClient;
    launch.device = {narrow(op.device)};
    launch.thread = {thread_[i]};
    launch.stream = {narrow(op.stream)};
    launch.kernel = kernel_of(op);
    launch.sequence = sequence_[i];
    launch.at = {launched_ns_[i]};
    launch.bytes = op.bytes;
    use_(launch);
    issued_[op.stream] = sequence_[i];
    thread_stream_[thread_[i]] = op.stream;
    ++(op.work == DeviceWork::Kernel ? ended_.launches
       : op.work == DeviceWork::Copy ? ended_.copies
                                     : ended_.memsets);
  }

  void timing(size_t index) {
    const size_t i = order_[index];
    const TracedDeviceOp& op = trace_.device[i];
    Timing timing;
    timing.client = kKinetoClient;
    timing.device = {narrow(op.device)};
    timing.stream = {narrow(op.stream)};
    timing.sequence = sequence_[i];
    timing.kernel = kernel_of(op);
    timing.start = {op.start_ns};
    timing.duration = {op.end_ns - op.start_ns};
    timing.gap = {gap_ns_[i]};
    use_(timing);
  }

  void synced(const TracedCall& call) {
    Waited waited;
    waited.client = kKinetoClient;
    waited.thread = {thread_slot(call.thread)};
    waited.from = {call.start_ns};
    waited.until = {call.end_ns};
    use_(waited);
    const std::string_view name = trace_.names[call.name];
    const bool one_stream = name.find("Stream") != std::string_view::npos ||
                            name.find("Event") != std::string_view::npos;
    int64_t only = call.stream;
    if (one_stream && only < 0) {
      const auto last = thread_stream_.find(thread_slot(call.thread));
      if (last == thread_stream_.end()) return;
      only = last->second;
    }
    for (const auto& [stream, sequence] : issued_) {
      if (one_stream && stream != only) continue;
      Synced synced;
      synced.client = kKinetoClient;
      synced.stream = {narrow(stream)};
      synced.sequence = sequence;
      synced.at = {call.end_ns};
      use_(synced);
    }
  }

  // How many ranges of its thread are open around each one.
  void nest() {
    std::unordered_map<int64_t, std::vector<int64_t>> open;  // thread -> their ends
    depth_.reserve(trace_.ranges.size());
    for (const play::TracedRange& range : trace_.ranges) {
      std::vector<int64_t>& ends = open[range.thread];
      while (!ends.empty() && ends.back() <= range.start_ns) ends.pop_back();
      depth_.push_back(narrow(static_cast<int64_t>(ends.size())));
      ends.push_back(range.end_ns);
    }
  }

  void range(size_t index) {
    const play::TracedRange& traced = trace_.ranges[index];
    const auto [found, added] =
        ranges_.try_emplace(traced.name, narrow(static_cast<int64_t>(ranges_.size())));
    if (added) use_(RangeInfo{found->second, "", trace_.names[traced.name]});
    Range range;
    range.client = kKinetoClient;
    range.thread = {thread_slot(traced.thread)};
    range.range = found->second;
    range.depth = depth_[index];
    range.from = {traced.start_ns};
    range.until = {traced.end_ns};
    use_(range);
  }

  using Shape = std::array<uint32_t, 9>;
  const play::KinetoTrace& trace_;
  const std::function<void(const Event&)>& use_;
  std::vector<size_t> order_;  // operations in order of launching
  // By operation.
  std::vector<int64_t> launched_ns_, gap_ns_;
  std::vector<uint32_t> thread_;
  std::vector<uint64_t> sequence_;
  std::unordered_map<int64_t, uint32_t> threads_;
  std::map<int64_t, uint64_t> last_sequence_, issued_;  // by stream
  std::unordered_map<uint32_t, int64_t> thread_stream_;
  std::map<Shape, KernelIndex> kernels_;
  std::vector<uint32_t> depth_;  // of the ranges
  std::unordered_map<uint32_t, RangeIndex> ranges_;  // by name
  ClientEnded ended_;
};

}  // namespace

FileInfo kineto_file_info(const play::KinetoTrace& trace, const std::string& file_name,
                          const std::string& lull_version) {
  FileInfo info;
  info.created_unix_ns = trace.started_unix_ns;
  info.created_at = {0};
  info.lull_version = lull_version;
  info.source = "kineto " + file_name;
  return info;
}

void kineto_events(const play::KinetoTrace& trace, const std::string& task,
                   const std::function<void(const Event&)>& use) {
  Converter(trace, use).run(task);
}

}  // namespace lull::trace
