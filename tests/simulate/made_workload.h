// Workloads made by tests, in a line or two each.
#pragma once

#include <string>
#include <vector>

#include "tools/play/workload.h"
#include "tools/simulate/node.h"

namespace lull::simulate::test {

// A node whose progress markers take no time: what policies decide is asked, not what lull costs
// (markers_test.cc asks that).
inline NodeOptions free_markers() {
  NodeOptions options;
  options.profile.marker_ns = options.profile.marker_host_ns = 0;
  return options;
}

inline play::Workload workload(const std::string& name, std::vector<play::Op> ops,
                               uint64_t pause_after_ns = 0) {
  play::Workload made;
  made.name = name;
  made.pause_after_ns = pause_after_ns;
  for (uint32_t k = 0; k < 64; ++k) {
    made.kernels.push_back({.name = "k" + std::to_string(k), .grid = {1024}, .block = {256}});
  }
  for (const play::Op& op : ops) {
    made.streams = std::max(made.streams, op.stream + 1);
    made.events = std::max(made.events, op.event + 1);
  }
  made.ops = std::move(ops);
  play::close_iteration(made);
  return made;
}
inline play::Op launch(uint32_t kernel, uint64_t duration_ns, uint64_t pause_ns = 0,
                       uint64_t call_ns = 0, uint32_t stream = 0) {
  return {.kind = play::OpKind::Launch,
          .stream = stream,
          .kernel = kernel,
          .pause_ns = pause_ns,
          .call_ns = call_ns,
          .duration_ns = duration_ns};
}
inline play::Op sync_stream(uint32_t stream = 0, uint64_t pause_ns = 0) {
  return {.kind = play::OpKind::StreamSync, .stream = stream, .pause_ns = pause_ns};
}

}  // namespace lull::simulate::test
