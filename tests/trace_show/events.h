// Events for the tests, written short.
#pragma once

#include <string>

#include "coordinator/trace/events.h"

namespace lull::trace::testing {

inline KernelInfo kernel(KernelIndex index, std::string name, UnitKind kind = UnitKind::kKernel) {
  KernelInfo info;
  info.index = index;
  info.id = {100 + index};
  info.kind = kind;
  info.name = std::move(name);
  info.grid = {8, 1, 1};
  info.block = {128, 1, 1};
  return info;
}

inline Launch launch(uint32_t client, uint32_t stream, KernelIndex kernel, uint64_t sequence,
                     int64_t at_ns, int64_t held_ns = 0, uint32_t held_by = 0) {
  Launch out;
  out.client = {client};
  out.stream = {stream};
  out.kernel = kernel;
  out.sequence = sequence;
  out.at = {at_ns};
  out.held = {held_ns};
  out.held_by = {held_by};
  return out;
}

inline Timing timing(uint32_t client, uint32_t stream, KernelIndex kernel, uint64_t sequence,
                     int64_t start_ns, int64_t duration_ns, int64_t gap_ns = -1) {
  Timing out;
  out.client = {client};
  out.stream = {stream};
  out.kernel = kernel;
  out.sequence = sequence;
  out.start = {start_ns};
  out.duration = {duration_ns};
  out.gap = {gap_ns};
  return out;
}

inline ClientStarted started(uint32_t client, std::string task) {
  ClientStarted out;
  out.client = {client};
  out.task = std::move(task);
  out.pid = static_cast<int32_t>(client * 10);
  return out;
}

}  // namespace lull::trace::testing
