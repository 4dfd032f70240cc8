#include "tools/lull/trace/workload_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "tools/lull/trace/kernel_display.h"

namespace lull::trace {
namespace {

using play::Op;
using play::OpKind;

constexpr int64_t kLongestHeldNs = int64_t{1} << 60;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

auto shape_of(const Op& op) {
  return std::tuple(op.kind, op.stream, op.kernel, op.event, op.bytes, op.pageable);
}

// The mean of `times` operations of one shape, `length` apart.
Op mean_of(const std::vector<Op>& ops, size_t first, size_t length, uint64_t times) {
  Op mean = ops[first];
  uint64_t pause = 0, call = 0, duration = 0, recorded = 0;
  for (uint64_t t = 0; t < times; ++t) {
    const Op& op = ops[first + t * length];
    pause += op.pause_ns;
    call += op.call_ns;
    duration += op.duration_ns;
    recorded += op.recorded_ns;
  }
  mean.pause_ns = (pause + times / 2) / times;
  mean.call_ns = (call + times / 2) / times;
  mean.duration_ns = (duration + times / 2) / times;
  mean.recorded_ns = (recorded + times / 2) / times;
  return mean;
}

}  // namespace

void WorkloadExport::feed(const Event& event) {
  const auto inside = [&](Instant at) {
    return at.ns >= choice_.from_ns && at.ns < choice_.until_ns;
  };
  if (const auto* launch = std::get_if<Launch>(&event)) {
    if (launch->client != choice_.client || !inside(launch->at)) return;
    if (calls_.size() >= play::kMaxOps) {
      too_many_ = true;
      return;
    }
    Call call;
    call.at_ns = launch->at.ns, call.held_ns = std::clamp<int64_t>(launch->held.ns, 0, kLongestHeldNs);
    call.sequence = launch->sequence, call.bytes = launch->bytes;
    call.stream = launch->stream.value, call.kernel = launch->kernel;
    by_stream_[call.stream].push_back(calls_.size());
    calls_.push_back(call);
  } else if (const auto* timing = std::get_if<Timing>(&event)) {
    if (timing->client != choice_.client) return;
    Call* call = find(timing->stream.value, timing->sequence);
    if (call == nullptr) return;
    call->duration_ns = timing->duration.ns;
    if (timing->start.ns >= 0) call->end_ns = timing->start.ns + timing->duration.ns;
  } else if (const auto* synced = std::get_if<Synced>(&event)) {
    // A wait that returns just behind the stretch belongs to its last launch.
    if (synced->client != choice_.client || synced->at.ns < choice_.from_ns) return;
    if (find(synced->stream.value, synced->sequence) == nullptr) return;
    if (calls_.size() >= play::kMaxOps) {
      too_many_ = true;
      return;
    }
    if (!calls_.empty() && calls_.back().is_sync && calls_.back().at_ns == synced->at.ns) {
      calls_.back().whole_device = true;
      return;
    }
    Call call;
    call.at_ns = synced->at.ns, call.stream = synced->stream.value;
    call.sequence = synced->sequence, call.is_sync = true;
    calls_.push_back(call);
  }
}

WorkloadExport::Call* WorkloadExport::find(uint32_t stream, uint64_t sequence) {
  const auto found = by_stream_.find(stream);
  if (found == by_stream_.end()) return nullptr;
  const auto& list = found->second;
  const auto at = std::lower_bound(
      list.begin(), list.end(), sequence,
      [&](size_t index, uint64_t wanted) { return calls_[index].sequence < wanted; });
  return at != list.end() && calls_[*at].sequence == sequence ? &calls_[*at] : nullptr;
}

int64_t WorkloadExport::usual_length_ns(KernelIndex index) const {
  for (const KernelRow& row : report_.kernels) {
    if (row.kernel == index && row.duration.count() > 0) {
      return static_cast<int64_t>(row.duration.quantile_ns(0.5));
    }
  }
  return -1;
}

std::expected<uint32_t, std::string> WorkloadExport::kernel_of(KernelIndex index,
                                                               play::Workload& work) {
  const auto found = kernels_.find(index);
  if (found != kernels_.end()) return found->second;
  if (work.kernels.size() >= play::kMaxKernels) {
    return std::unexpected(
        fmt::format("it has more than {} kernels: choose a shorter stretch", play::kMaxKernels));
  }
  const KernelInfo& info = report_.kernel_infos[index];
  play::Kernel kernel;
  kernel.name = program_name(info.name).substr(0, play::kMaxKernelNameChars);
  for (char& c : kernel.name) {
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  }
  if (kernel.name.empty()) kernel.name = "unnamed";
  kernel.grid = {std::clamp(info.grid[0], 1u, 2147483647u), std::clamp(info.grid[1], 1u, 65535u),
                 std::clamp(info.grid[2], 1u, 65535u)};
  kernel.block = {std::clamp(info.block[0], 1u, 1024u), std::clamp(info.block[1], 1u, 1024u),
                  std::clamp(info.block[2], 1u, 64u)};
  if (uint64_t{kernel.block.x} * kernel.block.y * kernel.block.z > 1024) {
    kernel.block.z = 1;
    kernel.block.y = std::max(1u, 1024 / kernel.block.x);
  }
  kernel.shared_bytes = std::min(info.shared_bytes, play::kMaxSharedBytes);
  work.kernels.push_back(std::move(kernel));
  return kernels_[index] = static_cast<uint32_t>(work.kernels.size() - 1);
}

// When the work that `sync` waited for was done; < 0: not known.
int64_t WorkloadExport::completed_ns(const std::vector<Call>& calls, size_t sync) const {
  const Call& wait = calls[sync];
  for (size_t i = sync; i-- > 0;) {
    const Call& call = calls[i];
    if (call.is_sync || (!wait.whole_device && call.stream != wait.stream)) continue;
    if (!wait.whole_device && call.sequence > wait.sequence) continue;
    return call.end_ns;
  }
  return -1;
}

std::expected<Op, std::string> WorkloadExport::op_of(const Call& call, ExportedWorkload& out) {
  Op op;
  op.stream =
      streams_.try_emplace(call.stream, static_cast<uint32_t>(streams_.size())).first->second;
  if (call.is_sync) {
    op.kind = call.whole_device ? OpKind::DeviceSync : OpKind::StreamSync;
    if (call.whole_device) op.stream = 0;
    return op;
  }
  const KernelInfo& info = report_.kernel_infos[call.kernel];
  int64_t length = call.duration_ns;
  if (length < 0) {
    out.without_length += 1;
    length = usual_length_ns(call.kernel);
  }
  if (info.kind == UnitKind::kCopy || info.kind == UnitKind::kMemset) {
    op.bytes = std::clamp<uint64_t>(call.bytes, 1, play::kMaxCopyBytes);
    op.recorded_ns = static_cast<uint64_t>(
        std::clamp<int64_t>(length, 0, static_cast<int64_t>(play::kMaxTimeNs)));
    const std::string& name = info.name;
    op.kind = info.kind == UnitKind::kMemset          ? OpKind::Memset
              : has(name, "HtoD") || has(name, "h2d") ? OpKind::CopyToDevice
              : has(name, "DtoH") || has(name, "d2h") ? OpKind::CopyToHost
                                                      : OpKind::CopyOnDevice;
    op.pageable =
        (op.kind == OpKind::CopyToDevice || op.kind == OpKind::CopyToHost) && has(name, "Pageable");
    return op;
  }
  if (length < 0) {
    return std::unexpected(fmt::format(
        "no launch of kernel '{}' was timed: record with --timing full", info.name.substr(0, 60)));
  }
  const auto kernel = kernel_of(call.kernel, out.workload);
  if (!kernel) return std::unexpected(kernel.error());
  op.kind = OpKind::Launch;
  op.kernel = *kernel;
  op.duration_ns =
      static_cast<uint64_t>(std::clamp<int64_t>(length, 1, static_cast<int64_t>(play::kMaxTimeNs)));
  return op;
}

std::expected<ExportedWorkload, std::string> WorkloadExport::finish() {
  if (too_many_) {
    return std::unexpected(fmt::format(
        "more than {} launches and waits: choose a shorter stretch with --from and --to",
        play::kMaxOps));
  }
  if (by_stream_.empty()) {
    return std::unexpected("the stretch holds no launch: choose another with --from and --to");
  }
  std::stable_sort(calls_.begin(), calls_.end(),
                   [](const Call& a, const Call& b) { return a.at_ns < b.at_ns; });
  ExportedWorkload out;
  int64_t host_ns = choice_.from_ns, device_ns = 0;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    auto op = op_of(call, out);
    if (!op) return std::unexpected(op.error());
    int64_t pause_ns = std::max<int64_t>(0, call.at_ns - host_ns);
    if (call.is_sync) {
      const int64_t done_ns = completed_ns(calls_, i);
      if (done_ns < 0 || call.at_ns <= done_ns + kLateNs) pause_ns = 0;
      host_ns = std::max(host_ns, call.at_ns);
    } else {
      const int64_t went_ns = call.at_ns + call.held_ns;
      const int64_t next_ns = i + 1 < calls_.size() ? calls_[i + 1].at_ns : went_ns + kCallNs;
      op->call_ns = static_cast<uint64_t>(std::clamp<int64_t>(next_ns - went_ns, 0, kCallNs));
      host_ns = std::max(host_ns, went_ns + static_cast<int64_t>(op->call_ns));
      if (op->pageable) host_ns = std::max(host_ns, call.end_ns);
      device_ns = std::max(device_ns, call.end_ns);
    }
    if (pause_ns > static_cast<int64_t>(play::kMaxTimeNs)) {
      return std::unexpected(fmt::format(
          "its host does nothing for {} s between two calls: choose a stretch without that",
          pause_ns / 1'000'000'000));
    }
    op->pause_ns = static_cast<uint64_t>(pause_ns);
    out.workload.ops.push_back(*op);
  }
  if (streams_.size() > play::kMaxStreams) {
    return std::unexpected(fmt::format("it uses {} streams: a workload has at most {}",
                                       streams_.size(), play::kMaxStreams));
  }
  play::close_iteration(out.workload);
  out.workload.streams = static_cast<uint32_t>(streams_.size());
  const int64_t end_ns = std::max(host_ns, device_ns);
  if (choice_.until_ns != INT64_MAX && choice_.until_ns > end_ns) {
    out.workload.pause_after_ns =
        std::min(static_cast<uint64_t>(choice_.until_ns - end_ns), play::kMaxTimeNs);
  }
  if (out.workload.ops.size() > choice_.max_ops) fold(out);
  return out;
}

// From the front: where a run of operations comes at least twice in a row, the run that saves most
// becomes a repeat, each of its operations the mean of all its turns: sums stay as recorded.
void WorkloadExport::fold(ExportedWorkload& out) const {
  std::vector<Op>& ops = out.workload.ops;
  for (size_t i = 0; i < ops.size();) {
    size_t best_length = 0, best_times = 1;
    const size_t longest = std::min(kLongestRepeat, (ops.size() - i) / 2);
    for (size_t length = 1; length <= longest; ++length) {
      size_t same = 0;  // operations that equal the one `length` before
      while (i + length + same < ops.size() &&
             shape_of(ops[i + same]) == shape_of(ops[i + length + same])) {
        ++same;
      }
      const size_t times = same / length + 1;
      if ((times - 1) * length > (best_times - 1) * best_length) {
        best_length = length;
        best_times = times;
      }
      if (same > ops.size() / 4) break;  // long enough, and each try costs as much again
    }
    if (best_times < 2) {
      ++i;
      continue;
    }
    for (size_t j = 0; j < best_length; ++j) {
      const Op mean = mean_of(ops, i + j, best_length, best_times);
      for (size_t t = 0; t < best_times; ++t) ops[i + j + t * best_length] = mean;
    }
    out.repeats.push_back({i, best_length, best_times});
    i += best_length * best_times;
  }
}

}  // namespace lull::trace
