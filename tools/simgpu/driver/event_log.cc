#include "tools/simgpu/driver/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

namespace simgpu::driver {
namespace {

constexpr size_t kFlushBytes = 64 << 10;

const char* word_for(OpKind kind) {
  switch (kind) {
    case OpKind::kKernel:
      return "kernel";
    case OpKind::kCopyH2D:
      return "copy_h2d";
    case OpKind::kCopyD2H:
      return "copy_d2h";
    case OpKind::kCopyD2D:
      return "copy_d2d";
    case OpKind::kMemset:
      return "memset";
    default:
      return "copy_h2h";
  }
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::expected<std::unique_ptr<EventLog>, std::string> EventLog::open_from_environment() {
  const char* path = std::getenv("SIMGPU_EVENT_LOG");
  if (path == nullptr || *path == '\0') return nullptr;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) {
    return std::unexpected(
        fmt::format("lull: cannot write the simulated device's event log {}: {}: set "
                    "SIMGPU_EVENT_LOG to a path in a writable folder",
                    path, std::strerror(errno)));
  }
  return std::unique_ptr<EventLog>(new EventLog(file));
}

EventLog::~EventLog() {
  flush();
  close(file_);
}

void EventLog::go_to(const LogPlace& place, uint64_t* count) {
  place_ = place;
  count_ = count;
}

std::shared_ptr<LoggedOperation> EventLog::next(OpKind kind) {
  auto operation = std::make_shared<LoggedOperation>();
  operation->place = place_;
  operation->order = count_ != nullptr ? ++*count_ : 0;
  operation->kind = kind;
  return operation;
}

std::shared_ptr<const LoggedOperation> EventLog::kernel(const KernelLaunch& launch,
                                                        uint32_t shared_bytes) {
  auto operation = next(OpKind::kKernel);
  operation->name = launch.name;
  std::copy_n(launch.grid, 3, operation->grid);
  std::copy_n(launch.block, 3, operation->block);
  operation->shared_bytes = shared_bytes;
  return operation;
}

std::shared_ptr<const LoggedOperation> EventLog::bytes(OpKind kind, uint64_t bytes) {
  auto operation = next(kind);
  operation->bytes = bytes;
  return operation;
}

void EventLog::add(const LoggedOperation& operation, const Completion& completion) {
  const LogPlace& place = operation.place;
  fmt::format_to(
      std::back_inserter(lines_),
      "{{\"pid\":{},\"device\":{},\"context\":{},\"stream\":{},\"order\":{},\"graph_launch\":{},"
      "\"kind\":\"{}\",",
      getpid(), place.device, place.context, place.stream, operation.order, place.graph_launch,
      word_for(operation.kind));
  if (operation.kind == OpKind::kKernel) {
    fmt::format_to(std::back_inserter(lines_),
                   "\"name\":{},\"grid\":[{},{},{}],\"block\":[{},{},{}],\"shared_bytes\":{},",
                   quoted(operation.name), operation.grid[0], operation.grid[1], operation.grid[2],
                   operation.block[0], operation.block[1], operation.block[2],
                   operation.shared_bytes);
  } else {
    fmt::format_to(std::back_inserter(lines_), "\"bytes\":{},", operation.bytes);
  }
  fmt::format_to(std::back_inserter(lines_),
                 "\"submitted_ns\":{},\"start_ns\":{},\"end_ns\":{}}}\n", completion.submitted_ns,
                 completion.started_ns, completion.completed_ns);
  if (lines_.size() >= kFlushBytes) flush();
}

void EventLog::flush() {
  if (lines_.empty()) return;
  const int before = errno;
  // Appending is one step for a regular file, so lines of other processes never come in between.
  // What a full disk refuses is lost, and a line that it took a part of ends there.
  if (torn_) lines_.insert(0, 1, '\n');
  size_t done = 0;
  while (done < lines_.size()) {
    const ssize_t put = write(file_, lines_.data() + done, lines_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    done += static_cast<size_t>(put);
  }
  if (done > 0) torn_ = lines_[done - 1] != '\n';
  lines_.clear();
  errno = before;
}

}  // namespace simgpu::driver
