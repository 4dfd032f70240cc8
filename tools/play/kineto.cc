#include "tools/play/kineto.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "tools/play/json_scanner.h"

namespace lull::play {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxKeptEvents = 20'000'000;
constexpr size_t kMaxDevices = 1024;
constexpr std::string_view kWorkloadKey = "lull_workload";
constexpr size_t kMostKeysSaid = 6, kMostKeyChars = 40;  // of a file that is neither
constexpr int64_t kMaxBaseNs = 4'000'000'000'000'000'000;
constexpr double kMaxTimestampUs = 4e15;  // in ns, and the distance of two, it fits 63 bits

enum class Category : uint8_t { None, HostCall, Kernel, Copy, Memset, Sync, Range };

Category category_of(std::string_view name) {
  if (name == "cuda_runtime" || name == "cuda_driver") return Category::HostCall;
  if (name == "kernel") return Category::Kernel;
  if (name == "gpu_memcpy") return Category::Copy;
  if (name == "gpu_memset") return Category::Memset;
  if (name == "cuda_sync") return Category::Sync;
  if (name == "user_annotation") return Category::Range;
  return Category::None;
}

// One event of the file while it is being read; timestamps as the file has them, in us.
struct Event {
  Category category = Category::None;
  bool complete = false;  // ph "X"
  bool has_start = false, has_correlation = false;
  double start_us = 0, length_us = 0;
  int64_t thread = 0, stream = -1, wait_on_stream = -1, device = 0;
  uint64_t correlation = 0, bytes = 0;
  uint32_t shared_bytes = 0;
  std::string name;  // as in the file
  uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
};

struct KeptEvent {
  double start_us, length_us;
  int64_t thread, stream, wait_on_stream, device;
  uint64_t correlation, bytes;
  uint32_t name, shared_bytes;
  Extent grid, block;
  Category category;
};

uint32_t clamp_u32(double value) {
  return value <= 0 ? 0 : static_cast<uint32_t>(std::min(value, 4294967295.0));
}

int64_t integer(std::string_view text, int64_t otherwise) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? value : otherwise;
}
bool positive(std::string_view text, uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}
double real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size()
             ? value
             : std::numeric_limits<double>::quiet_NaN();
}

// Of the scanner: keeps what kineto.h names, passes over the rest.
//   { "traceEvents": [ { "ph": .., "args": { "grid": [..] } } ] }   or the bare list
//   { "deviceProperties": [ { "id": .., "name": .., "totalGlobalMem": .. } ],
//     "baseTimeNanoseconds": .. }                                     where they are there
class TraceHandler {
 public:
  std::vector<KeptEvent> kept;
  std::vector<std::string> names;
  std::vector<TracedDevice> devices;
  int64_t base_unix_ns = 0;
  bool found_list = false;
  std::vector<std::string> keys;  // the first few of the outermost object
  std::string failure;

  Then key(std::string_view key) {
    if (depth_ == 1 && !in_list_) return outermost(key);
    if (at_event()) {
      field_ = key == "ph"     ? Field::kPhase
               : key == "cat"  ? Field::kCategory
               : key == "name" ? Field::kName
               : key == "ts"   ? Field::kStart
               : key == "dur"  ? Field::kLength
               : key == "tid"  ? Field::kThread
               : key == "args" ? Field::kArgs
                               : Field::kNone;
    } else if (at_args()) {
      field_ = key == "correlation"     ? Field::kCorrelation
               : key == "stream"        ? Field::kStream
               : key == "device"        ? Field::kDevice
               : key == "wait_on_stream" ? Field::kWaitOn
               : key == "bytes"         ? Field::kBytes
               : key == "shared memory" ? Field::kShared
               : key == "grid"          ? Field::kGrid
               : key == "block"         ? Field::kBlock
                                        : Field::kNone;
    } else if (at_device()) {
      field_ = key == "id"               ? Field::kDevice
               : key == "name"           ? Field::kName
               : key == "totalGlobalMem" ? Field::kBytes
                                         : Field::kNone;
    } else {
      field_ = Field::kNone;
    }
    return field_ == Field::kNone ? Then::kPassValue : Then::kOn;
  }

  Then string(std::string_view text) {
    if (at_event()) {
      if (field_ == Field::kPhase) event_.complete = text == "X";
      if (field_ == Field::kCategory) {
        event_.category = category_of(text);
        // Nine of ten events are of the host: nothing of them is wanted.
        if (event_.category == Category::None) return Then::kPassRest;
      }
      if (field_ == Field::kName) event_.name = text;
    } else if (at_device() && field_ == Field::kName) {
      devices.back().name = plain(text);
    }
    return go_on();
  }
  Then literal(std::string_view) { return element_done(); }
  Then number(std::string_view text) {
    if (at_event()) {
      if (field_ == Field::kThread) event_.thread = integer(text, event_.thread);
      if (field_ == Field::kStart) {
        event_.start_us = real(text);
        event_.has_start = true;
      }
      if (field_ == Field::kLength) event_.length_us = real(text);
    } else if (at_args()) {
      if (field_ == Field::kCorrelation && positive(text, event_.correlation)) {
        event_.has_correlation = true;
      }
      if (field_ == Field::kStream) event_.stream = integer(text, event_.stream);
      if (field_ == Field::kDevice) event_.device = integer(text, event_.device);
      if (field_ == Field::kWaitOn) event_.wait_on_stream = integer(text, event_.wait_on_stream);
      if (field_ == Field::kBytes) positive(text, event_.bytes);
      if (field_ == Field::kShared) event_.shared_bytes = clamp_u32(real(text));
    } else if (at_args_list() && index_ < 3) {
      (field_ == Field::kGrid ? event_.grid : event_.block)[index_] = clamp_u32(real(text));
    } else if (at_device()) {
      if (field_ == Field::kDevice) devices.back().number = integer(text, 0);
      if (field_ == Field::kBytes) positive(text, devices.back().total_bytes);
    } else if (depth_ == 1 && !in_list_ && in_base_) {
      base_unix_ns = integer(text, 0);
    }
    return element_done();
  }
  Then start_object() {
    ++depth_;
    if (at_event()) event_ = Event();
    if (in_devices_ && depth_ == 3) {
      if (devices.size() == kMaxDevices) return Then::kPassRest;
      devices.emplace_back();
    }
    if (in_list_ && depth_ == list_depth_ + 2) in_args_ = field_ == Field::kArgs;
    if (in_list_ && depth_ > list_depth_ + (in_args_ ? 2 : 1)) return Then::kPassRest;
    return Then::kOn;
  }
  Then end_object() {
    if (at_event()) keep();
    if (in_list_ && depth_ == list_depth_ + 2) in_args_ = false;
    --depth_;
    return go_on();
  }
  Then start_array() {
    ++depth_;
    if (!in_list_ && !found_list && (depth_ == 1 || (depth_ == 2 && in_events_))) {
      in_list_ = found_list = true;
      list_depth_ = depth_;
    }
    index_ = 0;
    return Then::kOn;
  }
  Then end_array() {
    if (in_list_ && depth_ == list_depth_) in_list_ = false;
    if (depth_ == 2) in_devices_ = false;
    --depth_;
    return Then::kOn;
  }

 private:
  enum class Field : uint8_t {
    kNone, kPhase, kCategory, kName, kStart, kLength, kThread, kArgs,
    kCorrelation, kStream, kDevice, kWaitOn, kBytes, kShared, kGrid, kBlock,
  };

  bool at_event() const { return in_list_ && depth_ == list_depth_ + 1; }
  bool at_args() const { return in_list_ && in_args_ && depth_ == list_depth_ + 2; }
  bool at_args_list() const {
    return in_list_ && in_args_ && depth_ == list_depth_ + 3 &&
           (field_ == Field::kGrid || field_ == Field::kBlock);
  }
  bool at_device() const { return in_devices_ && depth_ == 3; }
  Then go_on() const { return failure.empty() ? Then::kOn : Then::kStop; }
  Then element_done() {
    if (at_args_list()) ++index_;
    return Then::kOn;
  }

  Then outermost(std::string_view key) {
    if (key == kWorkloadKey) {
      failure = kIsWorkload;
      return Then::kStop;
    }
    if (keys.size() < kMostKeysSaid) keys.push_back(plain(key).substr(0, kMostKeyChars));
    in_events_ = key == "traceEvents";
    in_devices_ = key == "deviceProperties";
    in_base_ = key == "baseTimeNanoseconds";
    return in_events_ || in_devices_ || in_base_ ? Then::kOn : Then::kPassValue;
  }

  // A string of the file without its escapes. What is no valid string of JSON ends the reading.
  std::string plain(std::string_view raw) {
    const Json value = Json::parse(fmt::format("\"{}\"", raw), nullptr, /*allow_exceptions=*/false);
    if (!value.is_string()) {
      failure = fmt::format("it is not JSON: a string that is none after {} events", kept.size());
      return {};
    }
    return value.get<std::string>();
  }
  uint32_t name_index(std::string_view raw) {
    const auto found = name_index_.find(raw);
    if (found != name_index_.end()) return found->second;
    const auto index = static_cast<uint32_t>(names.size());
    names.push_back(plain(raw));
    name_index_.emplace(raw, index);
    return index;
  }

  void keep() {
    const Event& e = event_;
    if (e.category == Category::None || !e.complete) return;
    if (!e.has_correlation && e.category != Category::Range) return;
    if (!e.has_start || !(e.length_us >= 0) || !(std::fabs(e.start_us) <= kMaxTimestampUs) ||
        e.length_us * 1e3 > static_cast<double>(kMaxTimeNs)) {
      failure = fmt::format(
          "the event \"{}\" (number {} of its kind) has no sensible ts and dur: "
          "give a recording with times in us",
          e.name.substr(0, 60), kept.size());
      return;
    }
    if (kept.size() >= kMaxKeptEvents) {
      failure =
          fmt::format("it holds more than {} CUDA events: record fewer steps", kMaxKeptEvents);
      return;
    }
    KeptEvent k{};
    k.start_us = e.start_us, k.length_us = e.length_us;
    k.thread = e.thread, k.stream = e.stream, k.wait_on_stream = e.wait_on_stream;
    k.device = e.device;
    k.correlation = e.correlation, k.bytes = e.bytes, k.shared_bytes = e.shared_bytes;
    k.grid = {e.grid[0], e.grid[1], e.grid[2]};
    k.block = {e.block[0], e.block[1], e.block[2]};
    k.category = e.category;
    k.name = name_index(e.name);
    kept.push_back(k);
  }

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  int depth_ = 0, list_depth_ = 0;
  bool in_list_ = false, in_args_ = false;
  bool in_events_ = false, in_devices_ = false, in_base_ = false;  // of the outermost object
  Field field_ = Field::kNone;
  size_t index_ = 0;
  Event event_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> name_index_;  // as in the file
};

int64_t quantile(std::vector<int64_t>& values, double q) {
  if (values.empty()) return 0;
  const size_t at =
      std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<long>(at), values.end());
  return values[at];
}

enum class CallKind : uint8_t { Other, Work, StreamSync, DeviceSync, EventWait };

CallKind kind_by_name(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("StreamSynchronize") || has("EventSynchronize")) return CallKind::StreamSync;
  if (has("DeviceSynchronize") || has("CtxSynchronize") || has("ThreadSynchronize")) {
    return CallKind::DeviceSync;
  }
  if (has("StreamWaitEvent")) return CallKind::EventWait;
  if (has("Launch") || has("Memcpy") || has("Memset")) return CallKind::Work;
  return CallKind::Other;
}

class Importer {
 public:
  Importer(const KinetoTrace& trace, Import& out) : trace_(trace), out_(out) {}

  std::expected<void, std::string> run(Unmatched unmatched) {
    match();
    if (first_call_ == trace_.calls.size()) {
      return std::unexpected(
          "none of its device operations has a host call: record with "
          "ProfilerActivity.CPU and ProfilerActivity.CUDA together");
    }
    if (unmatched == Unmatched::IssueFirst) {
      for (const auto& op : trace_.device) {
        if (!call_of_.contains(op.correlation)) emit(op, 0, 0);
      }
    } else {
      out_.cropped = unmatched_;
    }
    host_ns_ = trace_.calls[first_call_].start_ns;
    for (size_t i = first_call_; i < trace_.calls.size(); ++i) replay_call(i);
    close_iteration(out_.workload);
    out_.workload.streams = std::max<uint32_t>(1, static_cast<uint32_t>(streams_.size()));
    if (streams_.size() > kMaxStreams) {
      return std::unexpected(
          fmt::format("it uses {} streams: at most {}", streams_.size(), kMaxStreams));
    }
    if (out_.workload.ops.size() > kMaxOps) {
      return std::unexpected(fmt::format("it holds {} operations: at most {}, record fewer steps",
                                         out_.workload.ops.size(), kMaxOps));
    }
    if (out_.workload.kernels.size() > kMaxKernels) {
      return std::unexpected(fmt::format("it holds {} kernels: at most {}, record fewer steps",
                                         out_.workload.kernels.size(), kMaxKernels));
    }
    for (const Op& op : out_.workload.ops) {
      if (op.pause_ns <= kMaxTimeNs) continue;
      return std::unexpected(
          fmt::format("its host does nothing for {} s between two calls: at most {}",
                      op.pause_ns / 1'000'000'000, kMaxTimeNs / 1'000'000'000));
    }
    // One event for each stream that is waited for is enough: a wait takes the event's last record.
    out_.workload.events = any_wait_ ? out_.workload.streams : 0;
    out_.recorded_ns = std::max(last_end_ns_, host_ns_) - trace_.calls[first_call_].start_ns;
    return {};
  }

 private:
  void match() {
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      call_of_.try_emplace(trace_.calls[i].correlation, i);
    }
    first_call_ = trace_.calls.size();
    for (size_t i = 0; i < trace_.device.size(); ++i) {
      const auto found = call_of_.find(trace_.device[i].correlation);
      if (found == call_of_.end()) {
        ++unmatched_;
        continue;
      }
      work_of_[found->second].push_back(i);
      first_call_ = std::min(first_call_, found->second);
    }
  }

  uint32_t stream_index(int64_t stream) {
    return streams_.try_emplace(stream, static_cast<uint32_t>(streams_.size())).first->second;
  }

  // Counted from the end of all replayed calls so far.
  uint64_t pause_before(const TracedCall& call) {
    return call.start_ns > host_ns_ ? static_cast<uint64_t>(call.start_ns - host_ns_) : 0;
  }
  // The part of an asynchronous call that no earlier call covers.
  uint64_t own_length(const TracedCall& call) const {
    const int64_t from = std::max(call.start_ns, host_ns_);
    return call.end_ns > from ? static_cast<uint64_t>(call.end_ns - from) : 0;
  }

  void replay_call(size_t index) {
    const TracedCall& call = trace_.calls[index];
    const auto work = work_of_.find(index);
    const std::string_view name = trace_.names[call.name];
    const CallKind kind = kind_by_name(name);
    if (work != work_of_.end()) {
      replay_work(call, name, work->second);
    } else if (kind == CallKind::StreamSync || kind == CallKind::DeviceSync) {
      Op op;
      op.kind = kind == CallKind::DeviceSync ? OpKind::DeviceSync : OpKind::StreamSync;
      if (kind == CallKind::StreamSync) op.stream = stream_of_sync(call);
      op.pause_ns = pause_before(call);
      out_.workload.ops.push_back(op);
      host_ns_ = std::max(host_ns_, call.end_ns);
    } else if (kind == CallKind::EventWait) {
      replay_wait(index);
    } else if (kind == CallKind::Work) {
      ++out_.calls_without_work;
    }
  }

  void replay_work(const TracedCall& call, std::string_view name, const std::vector<size_t>& work) {
    const bool copy_call = name.find("emcpy") != std::string_view::npos;
    const bool synchronous = copy_call && name.find("Async") == std::string_view::npos;
    bool waits = synchronous;
    for (const size_t at : work) waits |= is_pageable(trace_.device[at]);
    const uint64_t pause = pause_before(call);
    const uint64_t length = waits ? 0 : own_length(call);
    host_ns_ = std::max(host_ns_, call.end_ns);
    for (size_t i = 0; i < work.size(); ++i) {
      const TracedDeviceOp& op = trace_.device[work[i]];
      emit(op, i == 0 ? pause : 0, i + 1 == work.size() ? length : 0);
      thread_stream_[call.thread] = op.stream;
      last_on_stream_[op.stream] = work[i];
    }
    if (synchronous) {
      Op sync;
      sync.kind = OpKind::StreamSync;
      sync.stream = stream_index(trace_.device[work.back()].stream);
      out_.workload.ops.push_back(sync);
    }
  }

  bool is_pageable(const TracedDeviceOp& op) const {
    return op.work == DeviceWork::Copy &&
           trace_.names[op.name].find("Pageable") != std::string::npos;
  }

  void emit(const TracedDeviceOp& traced, uint64_t pause_ns, uint64_t call_ns) {
    Op op;
    op.stream = stream_index(traced.stream);
    op.pause_ns = pause_ns;
    op.call_ns = call_ns;
    const auto length =
        static_cast<uint64_t>(std::max<int64_t>(1, traced.end_ns - traced.start_ns));
    if (traced.work == DeviceWork::Kernel) {
      op.kind = OpKind::Launch;
      op.kernel = kernel_index(traced);
      op.duration_ns = length;
    } else {
      op.bytes = std::clamp<uint64_t>(traced.bytes, 1, kMaxCopyBytes);
      op.recorded_ns = length;
      if (traced.work == DeviceWork::Memset) {
        op.kind = OpKind::Memset;
      } else {
        const std::string& name = trace_.names[traced.name];
        if (name.find("HtoD") != std::string::npos)
          op.kind = OpKind::CopyToDevice;
        else if (name.find("DtoH") != std::string::npos)
          op.kind = OpKind::CopyToHost;
        else
          op.kind = OpKind::CopyOnDevice;
        op.pageable = op.kind != OpKind::CopyOnDevice && is_pageable(traced);
      }
    }
    out_.workload.ops.push_back(op);
    last_end_ns_ = std::max(last_end_ns_, traced.end_ns);
  }

  uint32_t kernel_index(const TracedDeviceOp& op) {
    Kernel kernel;
    kernel.name = trace_.names[op.name].substr(0, kMaxKernelNameChars);
    for (char& c : kernel.name) {
      if (static_cast<unsigned char>(c) < 32) c = ' ';
    }
    if (kernel.name.empty()) kernel.name = "unnamed";
    kernel.grid = {std::clamp(op.grid.x, 1u, 2147483647u), std::clamp(op.grid.y, 1u, 65535u),
                   std::clamp(op.grid.z, 1u, 65535u)};
    kernel.block = {std::clamp(op.block.x, 1u, 1024u), std::clamp(op.block.y, 1u, 1024u),
                    std::clamp(op.block.z, 1u, 64u)};
    if (uint64_t{kernel.block.x} * kernel.block.y * kernel.block.z > 1024) {
      kernel.block.z = 1;
      kernel.block.y = std::max(1u, 1024 / kernel.block.x);
    }
    kernel.shared_bytes = std::min(op.shared_bytes, kMaxSharedBytes);
    const KernelKey key{op.name,        kernel.grid.x,  kernel.grid.y,  kernel.grid.z,
                        kernel.block.x, kernel.block.y, kernel.block.z, kernel.shared_bytes};
    const auto [found, added] =
        kernels_.try_emplace(key, static_cast<uint32_t>(out_.workload.kernels.size()));
    if (added) out_.workload.kernels.push_back(std::move(kernel));
    return found->second;
  }

  uint32_t stream_of_sync(const TracedCall& call) {
    if (call.stream >= 0 && streams_.contains(call.stream)) return streams_[call.stream];
    const auto used = thread_stream_.find(call.thread);
    return used != thread_stream_.end() ? stream_index(used->second) : 0;
  }

  void replay_wait(size_t index) {
    const TracedCall& call = trace_.calls[index];
    int64_t waiting = call.stream, waited_for = call.wait_on_stream;
    if (waiting < 0 || waited_for < 0) {
      const TracedDeviceOp* next = next_work_of_thread(index);
      if (next == nullptr) return;
      waiting = next->stream;
      int64_t latest_ns = std::numeric_limits<int64_t>::min();
      for (const auto& [stream, at] : last_on_stream_) {
        const TracedDeviceOp& last = trace_.device[at];
        if (stream == waiting || last.end_ns > next->start_ns || last.end_ns <= latest_ns) continue;
        latest_ns = last.end_ns;
        waited_for = stream;
      }
      if (waited_for < 0) return;
      ++out_.guessed_waits;
    }
    if (waiting == waited_for || !last_on_stream_.contains(waited_for)) return;
    any_wait_ = true;
    Op record;
    record.kind = OpKind::EventRecord;
    record.stream = record.event = stream_index(waited_for);
    record.pause_ns = pause_before(call);
    out_.workload.ops.push_back(record);
    Op wait;
    wait.kind = OpKind::EventWait;
    wait.stream = stream_index(waiting);
    wait.event = record.event;
    wait.call_ns = own_length(call);
    out_.workload.ops.push_back(wait);
    host_ns_ = std::max(host_ns_, call.end_ns);
  }

  const TracedDeviceOp* next_work_of_thread(size_t index) const {
    for (size_t i = index + 1; i < trace_.calls.size(); ++i) {
      if (trace_.calls[i].thread != trace_.calls[index].thread) continue;
      const auto work = work_of_.find(i);
      if (work != work_of_.end()) return &trace_.device[work->second.front()];
    }
    return nullptr;
  }

  using KernelKey = std::array<uint32_t, 8>;
  const KinetoTrace& trace_;
  Import& out_;
  std::unordered_map<uint64_t, size_t> call_of_;             // correlation -> call
  std::unordered_map<size_t, std::vector<size_t>> work_of_;  // call -> device operations
  std::map<int64_t, uint32_t> streams_;                      // as recorded -> index
  std::unordered_map<int64_t, int64_t> thread_stream_;       // host thread -> stream used last
  std::map<int64_t, size_t> last_on_stream_;                 // stream -> operation issued last
  std::map<KernelKey, uint32_t> kernels_;
  size_t first_call_ = 0;
  uint64_t unmatched_ = 0;
  bool any_wait_ = false;
  int64_t host_ns_ = 0;      // end of all calls so far
  int64_t last_end_ns_ = 0;  // end of the last emitted device operation
};

}  // namespace

std::expected<KinetoTrace, std::string> read_kineto(TextSource& source) {
  TraceHandler handler;
  JsonScanner scanner(source, handler);
  const bool whole = scanner.run();
  if (!source.error().empty()) {
    return std::unexpected(source.error() + ": copy or record it again");
  }
  if (!whole) {
    const std::string why = handler.failure.empty() ? scanner.problem() : handler.failure;
    return std::unexpected(why.find(": ") != std::string::npos
                               ? why
                               : why + ": give a whole workload or PyTorch profiler trace");
  }
  if (!handler.found_list) {
    return std::unexpected(fmt::format(
        "it is JSON {}, with neither \"{}\" nor \"traceEvents\": give a workload "
        "(examples/workloads/README.md) or a PyTorch profiler trace",
        handler.keys.empty() ? "without a key" : fmt::format("of {}", fmt::join(handler.keys, ", ")),
        kWorkloadKey));
  }
  double base_us = std::numeric_limits<double>::max();
  for (const auto& k : handler.kept) base_us = std::min(base_us, k.start_us);
  const auto relative_ns = [&](double us) { return std::llround((us - base_us) * 1e3); };

  KinetoTrace trace;
  trace.names = std::move(handler.names);
  trace.devices = std::move(handler.devices);
  // Without a base of its own the file counts from 1970.
  if (!handler.kept.empty() && base_us >= 0 && handler.base_unix_ns >= 0 &&
      handler.base_unix_ns <= kMaxBaseNs) {
    trace.started_unix_ns = handler.base_unix_ns + std::llround(base_us * 1e3);
  }
  std::unordered_map<uint64_t, const KeptEvent*> syncs;
  for (const auto& k : handler.kept) {
    const int64_t start_ns = relative_ns(k.start_us);
    const int64_t end_ns = start_ns + std::llround(k.length_us * 1e3);
    if (k.category == Category::Range) {
      trace.ranges.push_back({start_ns, end_ns, k.thread, k.name});
    } else if (k.category == Category::Sync) {
      syncs[k.correlation] = &k;
    } else if (k.category == Category::HostCall) {
      TracedCall call;
      call.start_ns = start_ns, call.end_ns = end_ns;
      call.thread = k.thread, call.correlation = k.correlation, call.name = k.name;
      trace.calls.push_back(call);
    } else {
      TracedDeviceOp op;
      op.work = k.category == Category::Kernel ? DeviceWork::Kernel
                : k.category == Category::Copy ? DeviceWork::Copy
                                               : DeviceWork::Memset;
      op.start_ns = start_ns, op.end_ns = end_ns, op.stream = k.stream;
      op.device = k.device;
      op.correlation = k.correlation, op.bytes = k.bytes, op.name = k.name;
      op.shared_bytes = k.shared_bytes, op.grid = k.grid, op.block = k.block;
      trace.device.push_back(op);
    }
  }
  for (auto& call : trace.calls) {
    const auto sync = syncs.find(call.correlation);
    if (sync == syncs.end()) continue;
    call.stream = sync->second->stream;
    call.wait_on_stream = sync->second->wait_on_stream;
  }
  const auto by_start = [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; };
  std::stable_sort(trace.calls.begin(), trace.calls.end(), by_start);
  std::stable_sort(trace.device.begin(), trace.device.end(), by_start);
  std::stable_sort(trace.ranges.begin(), trace.ranges.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.start_ns, b.end_ns) < std::tuple(b.start_ns, a.end_ns);
  });
  if (trace.device.empty()) {
    return std::unexpected("it records no work on a GPU: record with ProfilerActivity.CUDA");
  }
  return trace;
}

std::expected<KinetoTrace, std::string> read_kineto_file(const std::string& path,
                                                         std::function<void(double)> progress) {
  auto source = TextSource::open(path);
  if (!source) return std::unexpected(source.error());
  (*source)->watch(std::move(progress));
  return read_kineto(**source);
}

TraceSummary summarize(const KinetoTrace& trace) {
  TraceSummary sum;
  std::unordered_map<uint64_t, bool> calls;
  for (const auto& call : trace.calls) calls[call.correlation] = true;
  std::map<int64_t, bool> streams;
  std::vector<int64_t> lengths, gaps;
  int64_t busy_from = 0, busy_until = 0, first = 0, last = 0;
  for (const auto& op : trace.device) {
    ++sum.operations;
    ++(op.work == DeviceWork::Kernel ? sum.kernels
       : op.work == DeviceWork::Copy ? sum.copies
                                     : sum.memsets);
    sum.with_call += calls.contains(op.correlation) ? 1 : 0;
    streams[op.stream] = true;
    lengths.push_back(op.end_ns - op.start_ns);
    sum.work_ns += op.end_ns - op.start_ns;
    if (sum.operations == 1) {
      first = busy_from = op.start_ns;
      busy_until = op.end_ns;
    } else if (op.start_ns > busy_until) {
      gaps.push_back(op.start_ns - busy_until);
      sum.busy_ns += busy_until - busy_from;
      busy_from = op.start_ns;
      busy_until = op.end_ns;
    } else {
      busy_until = std::max(busy_until, op.end_ns);
    }
    last = std::max(last, op.end_ns);
  }
  sum.busy_ns += busy_until - busy_from;
  sum.span_ns = last - first;
  sum.streams = streams.size();
  sum.operation_p50_ns = quantile(lengths, 0.5);
  sum.operation_p90_ns = quantile(lengths, 0.9);
  sum.operation_max_ns = quantile(lengths, 1.0);
  sum.gap_p50_ns = quantile(gaps, 0.5);
  sum.gap_p90_ns = quantile(gaps, 0.9);
  sum.gap_max_ns = quantile(gaps, 1.0);
  return sum;
}

std::expected<Import, std::string> import_kineto(const KinetoTrace& trace, const std::string& name,
                                                 Unmatched unmatched) {
  Import import;
  import.workload.name = name;
  import.workload.kind = "other";
  if (auto done = Importer(trace, import).run(unmatched); !done) {
    return std::unexpected(done.error());
  }
  import.workload.description = "PyTorch profiler trace";
  if (import.cropped > 0) {
    import.workload.description +=
        fmt::format("; {} device operations without a host call are left out", import.cropped);
  }
  return import;
}

}  // namespace lull::play
