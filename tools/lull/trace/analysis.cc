#include "tools/lull/trace/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/lull/trace/kernel_display.h"
#include "tools/lull/trace/sampled_total.h"

namespace lull::trace {
namespace {

bool is_copy(UnitKind kind) { return kind == UnitKind::kCopy || kind == UnitKind::kMemset; }

}  // namespace

struct Analysis::ClientState {
  ClientRow row;
  Iterations iterations;
};

Analysis::Analysis(FileInfo info) {
  // What a file says goes to terminals as it is.
  for (std::string* text :
       {&info.lull_version, &info.host, &info.source, &info.command, &info.sharing}) {
    *text = without_controls(std::move(*text));
  }
  report_.info = std::move(info);
  report_.info.created_at = sane_origin(report_.info);
}
Analysis::~Analysis() = default;

Instant sane_origin(const FileInfo& info) {
  return {std::clamp<int64_t>(info.created_at.ns, 0, int64_t{1} << 62)};
}

const ClientRow* Report::client(ClientId id) const {
  const auto found = client_places.find(id.value);
  return found != client_places.end() ? &clients[found->second] : nullptr;
}

std::string Report::range_name(RangeIndex index) const {
  if (index >= range_infos.size()) return "?";
  const RangeInfo& known = range_infos[index];
  const std::string name = known.name.empty() ? "?" : known.name;
  return known.domain.empty() ? name : known.domain + ": " + name;
}

std::string Report::task_name(ClientId id) const {
  if (id.value == 0) return "nobody in particular";
  const ClientRow* row = client(id);
  return fmt::format("{} ({})", row != nullptr ? row->started.task : "?", id.value);
}

void Analysis::feed(const Event& event) {
  report_.events += 1;
  std::visit(
      [this](const auto& one) {
        on(one);
        idle_.feed(one);
      },
      event);
}

void Analysis::saw(Instant at) {
  if (!any_time_) {
    report_.first_ns = report_.last_ns = at.ns;
    any_time_ = true;
  }
  report_.first_ns = std::min(report_.first_ns, at.ns);
  report_.last_ns = std::max(report_.last_ns, at.ns);
}

void Analysis::on(const DeviceInfo& info) {
  DeviceInfo& kept = device(info.device).info = info;
  kept.uuid = without_controls(std::move(kept.uuid));
  kept.name = without_controls(std::move(kept.name));
}

void Analysis::on(const ClientStarted& started) {
  saw(started.at);
  ClientState& state = client(started.client);
  state.row.started = started;
  for (std::string* text :
       {&state.row.started.task, &state.row.started.job, &state.row.started.program}) {
    *text = without_controls(std::move(*text));
  }
  state.row.priority = started.priority;
}

void Analysis::on(const ClientEnded& ended) {
  saw(ended.at);
  ClientRow& row = client(ended.client).row;
  row.has_ended = true;
  row.ended = ended;
}

void Analysis::on(const PriorityChange& change) {
  client(change.client).row.priority = change.priority;
}

void Analysis::on(const PolicyChange& change) {
  if (report_.policies.size() < kMaxPolicies) {
    report_.policies.push_back({change.at, without_controls(change.policy)});
  } else {
    report_.policies_left_out += 1;
  }
}

void Analysis::on(const KernelInfo& kernel) {
  if (kernel.index != report_.kernel_infos.size()) return;  // the reader has checked it
  report_.kernel_infos.push_back(kernel);
  kernels_.emplace_back();
}

void Analysis::on(const Launch& launch) {
  report_.launches += 1;
  saw(launch.at);
  KernelRow& kernel = kernel_row(launch.kernel, launch.device);
  kernel.total.count += 1;
  kernel.bytes += launch.bytes;
  ClientState& state = client(launch.client);
  ClientRow& row = state.row;
  if (row.first_ns < 0) row.first_ns = launch.at.ns;
  row.last_ns = std::max(row.last_ns, launch.at.ns);
  static const KernelInfo kUnknown;
  const KernelInfo& info =
      launch.kernel < report_.kernel_infos.size() ? report_.kernel_infos[launch.kernel] : kUnknown;
  const UnitKind kind = info.kind;
  for (Total* sum : {&stream(launch.client, launch.device, launch.stream).total,
                     &device(launch.device).total, &row.total}) {
    sum->count += 1;
    sum->untimed_copies += is_copy(kind);
  }
  if (!is_copy(kind)) count_untimed(last_stream_, launch.kernel, 1);
  ++(kind == UnitKind::kCopy ? row.copies : kind == UnitKind::kMemset ? row.memsets : row.launches);
  state.iterations.launched(info.id, launch.at, row.last_bytes);
  if (launch.held.ns <= 0) return;
  kernel.held += 1;
  kernel.held_ns = add_ns(kernel.held_ns, launch.held.ns);
  row.held += 1;
  row.held_ns = add_ns(row.held_ns, launch.held.ns);
  const uint64_t pair = uint64_t{launch.client.value} << 32 | launch.held_by.value;
  auto found = held_index_.find(pair);
  if (found == held_index_.end() && report_.held.size() < kMaxHeldPairs) {
    report_.held.push_back({launch.client, launch.held_by, {}});
    found = held_index_.emplace(pair, report_.held.size() - 1).first;
  }
  HeldRow& held = found != held_index_.end() ? report_.held[found->second] : report_.held.back();
  held.held.add(launch.held.ns);
}

void Analysis::on(const Timing& timing) {
  report_.timings += 1;
  const auto add = [&](Total& total) {
    total.timed += 1;
    total.measured_ns = add_ns(total.measured_ns, timing.duration.ns);
  };
  KernelRow& kernel = kernel_row(timing.kernel, timing.device);
  add(kernel.total);
  kernel.duration.add(timing.duration.ns);
  if (timing.gap.ns >= 0) kernel.gap.add(timing.gap.ns);
  const bool copy = timing.kernel < report_.kernel_infos.size() &&
                    is_copy(report_.kernel_infos[timing.kernel].kind);
  DeviceRow& on_device = device(timing.device);
  for (Total* sum : {&stream(timing.client, timing.device, timing.stream).total, &on_device.total,
                     &client(timing.client).row.total}) {
    add(*sum);
    sum->untimed_copies -= copy;
  }
  if (!copy) count_untimed(last_stream_, timing.kernel, -1);
  if (timing.start.ns < 0) {
    on_device.without_start += 1;
    on_device.without_start_ns = add_ns(on_device.without_start_ns, timing.duration.ns);
    return;
  }
  saw(timing.start);
  saw(timing.start + timing.duration);
  on_device.busy.add(timing.start.ns, timing.start.ns + timing.duration.ns);
}

void Analysis::on(const Synced& synced) {
  saw(synced.at);
  if (last_stream_ < report_.streams.size()) {
    StreamRow& row = report_.streams[last_stream_];
    if (row.client == synced.client && row.stream == synced.stream) {
      row.syncs += 1;
      return;
    }
  }
  // A Synced names no device: the stream's first one will do, a stream lives on one device.
  const uint64_t key = uint64_t{synced.client.value} << 32 | synced.stream.value;
  const auto found = stream_index_.find(key);
  if (found != stream_index_.end()) report_.streams[found->second.front()].syncs += 1;
}

void Analysis::on(const MemoryUse& use) {
  saw(use.at);
  ClientRow& row = client(use.client).row;
  row.last_bytes = use.used_bytes;
  row.peak_bytes = std::max(row.peak_bytes, use.used_bytes);
}

void Analysis::on(const Lost& lost) {
  saw(lost.at);
  report_.lost += lost.records;
  client(lost.client).row.lost += lost.records;
}

void Analysis::on(const Cancelled& cancelled) {
  saw(cancelled.at);
  report_.cancelled += 1;
}

void Analysis::on(const Waited& waited) {
  saw(waited.until);
  client(waited.client).row.waited_ns =
      add_ns(client(waited.client).row.waited_ns, waited.until.ns - waited.from.ns);
}

void Analysis::on(const RangeInfo& info) {
  if (info.index != report_.range_infos.size()) return;  // the reader has checked it
  report_.range_infos.push_back(
      {info.index, without_controls(info.domain), without_controls(info.name)});
}

void Analysis::on(const Range& range) {
  saw(range.from);
  saw(range.until);
  const std::tuple key{range.client.value, range.range, range.kind};
  const auto found = range_places_.find(key);
  size_t place = found != range_places_.end() ? found->second : kMaxRangeRows - 1;
  if (found == range_places_.end() && report_.ranges.size() < kMaxRangeRows) {
    place = report_.ranges.size();
    range_places_.emplace(key, place);
    report_.ranges.push_back({range.client, range.range, range.kind, {}});
  }
  report_.ranges[place].lengths.add(range.until.ns - range.from.ns);
}

KernelRow& Analysis::kernel_row(KernelIndex kernel, DeviceId device) {
  if (kernel >= kernels_.size()) kernels_.resize(size_t{kernel} + 1);
  std::vector<KernelRow>& rows = kernels_[kernel];
  for (KernelRow& row : rows) {
    if (row.device == device) return row;
  }
  rows.emplace_back();
  rows.back().kernel = kernel;
  rows.back().device = device;
  return rows.back();
}

Analysis::ClientState& Analysis::client(ClientId id) {
  if (last_client_ != nullptr && last_client_->row.started.client == id) return *last_client_;
  const auto [found, added] = client_index_.try_emplace(id.value, clients_.size());
  if (added) {
    clients_.push_back(std::make_unique<ClientState>());
    clients_.back()->row.started.client = id;
  }
  last_client_ = clients_[found->second].get();
  return *last_client_;
}

void Analysis::count_untimed(size_t stream_row, KernelIndex kernel, int64_t change) {
  const uint64_t key = uint64_t{stream_row} << 32 | kernel;
  if (const auto found = untimed_.find(key); found != untimed_.end()) {
    found->second += change;
  } else if (untimed_.size() < kMaxUntimed) {
    untimed_.emplace(key, change);
  }
}

// Each kernel on a device is estimated from its own samples; a stream, a task and a device are the
// sums of their kernels.
void Analysis::estimate() {
  std::unordered_map<uint64_t, SampleMean> means;  // by device (high word) and kernel
  LogHistogram all;
  for (KernelRow& row : report_.kernels) {
    const SampleMean mean = sample_mean(row.duration);
    Total& total = row.total;
    if (total.is_estimate()) {
      const uint64_t untimed = total.to_time() - total.timed;
      total.untimed_ns = mean.mean_ns * static_cast<double>(untimed);
      total.error_ns = error_ns(mean, untimed);
    }
    means.emplace(uint64_t{row.device.value} << 32 | row.kernel, mean);
  }
  struct Sum {
    double untimed_ns = 0, squared_error = 0;
    uint64_t launches = 0;
  };
  std::unordered_map<uint32_t, Sum> tasks, devices;
  const auto set = [](Total& total, Sum sum) {
    if (!total.is_estimate()) return;
    // Of kernels without a sample the others' mean is all there is, give or take as much.
    const uint64_t untimed = total.to_time() - total.timed;
    if (untimed > sum.launches) {
      const double guess = static_cast<double>(total.measured_ns) /
                           static_cast<double>(total.timed) *
                           static_cast<double>(untimed - sum.launches);
      sum.untimed_ns += guess;
      sum.squared_error += guess * guess;
    }
    total.untimed_ns = sum.untimed_ns;
    total.error_ns = std::sqrt(sum.squared_error);
  };
  // In order, so that sums of the same file are the same to the last bit.
  std::vector<std::pair<uint64_t, int64_t>> pairs(untimed_.begin(), untimed_.end());
  std::sort(pairs.begin(), pairs.end());
  std::vector<Sum> streams(report_.streams.size());
  for (const auto& [key, untimed] : pairs) {
    const size_t at = key >> 32;
    if (untimed <= 0 || at >= streams.size()) continue;
    const StreamRow& row = report_.streams[at];
    const auto found = means.find(uint64_t{row.device.value} << 32 | (key & UINT32_MAX));
    if (found == means.end() || found->second.samples == 0) continue;
    const auto launches = static_cast<uint64_t>(untimed);
    const double error = error_ns(found->second, launches);
    for (Sum* sum : {&streams[at], &tasks[row.client.value], &devices[row.device.value]}) {
      sum->untimed_ns += found->second.mean_ns * static_cast<double>(untimed);
      sum->squared_error += error * error;
      sum->launches += launches;
    }
  }
  for (size_t i = 0; i < streams.size(); ++i) set(report_.streams[i].total, streams[i]);
  for (DeviceRow& row : report_.devices) set(row.total, devices[row.info.device.value]);
  for (auto& state : clients_) {
    set(state->row.total, tasks[state->row.started.client.value]);
  }
}

StreamRow& Analysis::stream(ClientId client, DeviceId device, StreamSlot stream) {
  const auto is_it = [&](const StreamRow& row) {
    return row.client == client && row.device == device && row.stream == stream;
  };
  if (last_stream_ < report_.streams.size() && is_it(report_.streams[last_stream_])) {
    return report_.streams[last_stream_];
  }
  const uint64_t key = uint64_t{client.value} << 32 | stream.value;
  if (const auto found = stream_index_.find(key); found != stream_index_.end()) {
    for (const size_t index : found->second) {
      if (!is_it(report_.streams[index])) continue;
      last_stream_ = index;
      return report_.streams[index];
    }
  }
  if (report_.streams.size() >= kMaxStreams) {
    last_stream_ = report_.streams.size() - 1;
    return report_.streams.back();
  }
  std::vector<size_t>& rows = stream_index_[key];
  report_.streams.push_back({client, device, stream, {}, 0});
  last_stream_ = report_.streams.size() - 1;
  rows.push_back(last_stream_);
  return report_.streams[last_stream_];
}

DeviceRow& Analysis::device(DeviceId id) {
  for (DeviceRow& row : report_.devices) {
    if (row.info.device == id) return row;
  }
  report_.devices.emplace_back();
  report_.devices.back().info.device = id;
  return report_.devices.back();
}

Report Analysis::finish(std::string problem) {
  report_.problem = std::move(problem);
  for (auto& rows : kernels_) {
    for (KernelRow& row : rows) report_.kernels.push_back(std::move(row));
  }
  kernels_.clear();
  estimate();
  // Ties go by index, so that the same file always gives the same table.
  std::stable_sort(report_.kernels.begin(), report_.kernels.end(),
                   [](const KernelRow& a, const KernelRow& b) {
                     return a.total.total_ns() > b.total.total_ns();
                   });
  for (auto& state : clients_) {
    const ClientId id = state->row.started.client;
    IterationRow row = state->iterations.finish();
    row.client = id;
    if (row.launches_each > 0 || row.iterations > 0) report_.iterations.push_back(std::move(row));
    report_.client_places.emplace(id.value, report_.clients.size());
    report_.clients.push_back(std::move(state->row));
  }
  for (DeviceRow& row : report_.devices) row.busy.finish();
  report_.idle = idle_.finish();
  std::stable_sort(report_.ranges.begin(), report_.ranges.end(), [](const auto& a, const auto& b) {
    return a.lengths.total_ns() > b.lengths.total_ns();
  });
  std::sort(
      report_.streams.begin(), report_.streams.end(), [](const StreamRow& a, const StreamRow& b) {
        return std::tie(a.client, a.device, a.stream) < std::tie(b.client, b.device, b.stream);
      });
  std::stable_sort(report_.held.begin(), report_.held.end(), [](const auto& a, const auto& b) {
    return a.held.total_ns() > b.held.total_ns();
  });
  return std::move(report_);
}

size_t Analysis::kept_bytes() const {
  size_t bytes = sizeof *this;
  for (const auto& rows : kernels_) {
    bytes += sizeof rows + rows.capacity() * sizeof(KernelRow);
    for (const KernelRow& row : rows) bytes += row.duration.kept_bytes() + row.gap.kept_bytes();
  }
  for (const KernelInfo& kernel : report_.kernel_infos) {
    bytes += sizeof kernel + kernel.name.capacity() + kernel.call_site.capacity();
  }
  for (const auto& state : clients_) bytes += sizeof *state + state->iterations.kept_bytes();
  for (const DeviceRow& row : report_.devices) bytes += sizeof row + row.busy.kept_bytes();
  for (const HeldRow& row : report_.held) bytes += sizeof row + row.held.kept_bytes();
  for (const RangeInfo& info : report_.range_infos) {
    bytes += sizeof info + info.domain.capacity() + info.name.capacity();
  }
  for (const RangeRow& row : report_.ranges) bytes += sizeof row + 64 + row.lengths.kept_bytes();
  bytes += untimed_.size() * 48 + idle_.kept_bytes();
  bytes += report_.streams.capacity() * (sizeof(StreamRow) + 64);
  return bytes;
}

}  // namespace lull::trace
