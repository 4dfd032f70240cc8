#include "tools/lull/trace/csv_export.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tools/lull/trace/kernel_display.h"

namespace lull::trace {
namespace {

constexpr const char* kHeading =
    "client,task,device,thread,stream,sequence,kind,kernel,mangled,grid,block,shared_bytes,call_site,bytes,"
    "launched_ns,held_ns,held_by,start_ns,duration_ns,gap_ns,cancelled\n";

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string size_text(const std::array<uint32_t, 3>& size) {
  return fmt::format("{}x{}x{}", size[0], size[1], size[2]);
}

std::string key_of(ClientId client, StreamSlot stream, uint64_t sequence) {
  std::string key(sizeof(uint32_t) * 2 + sizeof sequence, '\0');
  const auto c = static_cast<uint32_t>(client.value), s = static_cast<uint32_t>(stream.value);
  std::memcpy(key.data(), &c, sizeof c);
  std::memcpy(key.data() + sizeof c, &s, sizeof s);
  std::memcpy(key.data() + sizeof c + sizeof s, &sequence, sizeof sequence);
  return key;
}

}  // namespace

CsvExport::CsvExport(const FileInfo& info, std::FILE* out)
    : origin_ns_(info.created_at.ns), out_(out) {
  write(kHeading);
}

void CsvExport::feed(const Event& event) {
  std::visit([this](const auto& one) { on(one); }, event);
}

void CsvExport::on(const DeviceInfo& device) {
  devices_[device.device.value] = cell(device.uuid.empty() ? fmt::format("{}", device.device.value)
                                                           : without_controls(device.uuid));
}

void CsvExport::on(const ClientStarted& client) {
  tasks_[client.client.value] = cell(without_controls(client.task));
}

void CsvExport::on(const KernelInfo& kernel) {
  if (kernels_.size() <= kernel.index) kernels_.resize(kernel.index + 1);
  const bool runs = kernel.kind == UnitKind::kKernel;
  kernels_[kernel.index].text =
      fmt::format("{},{},{},{},{},{},{}", kind_name(kernel.kind), cell(display_name(kernel.name)),
                  cell(without_controls(kernel.name)), runs ? size_text(kernel.grid) : "",
                  runs ? size_text(kernel.block) : "", kernel.shared_bytes,
                  cell(without_controls(kernel.call_site)));
}

void CsvExport::on(const Launch& launch) {
  numbers_[key_of(launch.client, launch.stream, launch.sequence)] = first_ + waiting_.size();
  waiting_.push_back({launch, Timing{.duration = {-1}}});
  if (waiting_.size() > kMaxWaiting) write_oldest();
}

void CsvExport::on(const Timing& timing) {
  if (Row* row = row_of(timing.client, timing.stream, timing.sequence)) {
    row->timing = timing;
  } else {
    ++lost_times_;
  }
}

void CsvExport::on(const Cancelled& cancelled) {
  if (Row* row = row_of(cancelled.client, cancelled.stream, cancelled.sequence)) {
    row->cancelled = true;
  }
}

CsvExport::Row* CsvExport::row_of(ClientId client, StreamSlot stream, uint64_t sequence) {
  const auto found = numbers_.find(key_of(client, stream, sequence));
  return found == numbers_.end() ? nullptr : &waiting_[found->second - first_];
}

void CsvExport::write_oldest() {
  const Row& row = waiting_.front();
  const Launch& launch = row.launch;
  const auto time = [](int64_t ns, int64_t origin) {
    return ns < 0 ? std::string() : fmt::format("{}", ns - origin);
  };
  write(fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", launch.client.value,
      tasks_[launch.client.value], devices_[launch.device.value], launch.thread.value,
      launch.stream.value, launch.sequence, kernels_[launch.kernel].text, launch.bytes,
      launch.at.ns - origin_ns_, launch.held.ns,
      launch.held_by.value == 0 ? "" : fmt::format("{}", launch.held_by.value),
      time(row.timing.start.ns, origin_ns_), time(row.timing.duration.ns, 0),
      time(row.timing.gap.ns, 0), row.cancelled ? 1 : 0));
  const auto found = numbers_.find(key_of(launch.client, launch.stream, launch.sequence));
  if (found != numbers_.end() && found->second == first_) numbers_.erase(found);
  waiting_.pop_front();
  ++first_;
}

std::expected<void, std::string> CsvExport::finish() {
  while (!waiting_.empty()) write_oldest();
  if (error_ == 0 && std::fflush(out_) != 0) error_ = errno;
  if (error_ != 0) return std::unexpected(std::strerror(error_));
  return {};
}

void CsvExport::write(const std::string& text) {
  if (error_ != 0) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), out_) != text.size()) {
    error_ = errno != 0 ? errno : EIO;
  }
}

}  // namespace lull::trace
