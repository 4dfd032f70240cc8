// Graphs: what an executable graph consists of is read when it is made or updated; its launches
// are in launch.cc.
#include "shim/residence/device_arena.h"
#include "shim/residence/memory_gate.h"
#include "shim/submit.h"

using namespace lull::shim;

namespace {

template <typename Call>
CUresult instantiate(CUgraphExec* exec, CUgraph graph, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const CUresult result = forward_use(thread, call);
  if (result == CUDA_SUCCESS && exec != nullptr && shim_enabled()) {
    graph_instantiated(*exec, graph);
    if (can_move.load(std::memory_order_relaxed)) graphs_may_allocate();
  }
  return result;
}

}  // namespace

LULL_ENTRY(cuGraphInstantiate)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
  return instantiate(exec, graph, [&] {
    return driver().cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
  });
}
LULL_ENTRY(cuGraphInstantiate_v2)
(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log, size_t log_bytes) {
  return instantiate(exec, graph, [&] {
    return driver().cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes);
  });
}
LULL_ENTRY(cuGraphInstantiateWithFlags)
(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return instantiate(exec, graph, [&] {
    return driver().cuGraphInstantiateWithFlags(exec, graph, flags);
  });
}
LULL_ENTRY(cuGraphInstantiateWithParams)
(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return instantiate(exec, graph, [&] {
    return driver().cuGraphInstantiateWithParams(exec, graph, params);
  });
}
LULL_ENTRY(cuGraphInstantiateWithParams_ptsz)
(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return instantiate(exec, graph, [&] {
    return driver().cuGraphInstantiateWithParams_ptsz(exec, graph, params);
  });
}
LULL_ENTRY(cuGraphExecUpdate)
(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* why) {
  return instantiate(&exec, graph, [&] {
    return driver().cuGraphExecUpdate(exec, graph, error_node, why);
  });
}
LULL_ENTRY(cuGraphExecUpdate_v2)
(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* why) {
  return instantiate(&exec, graph,
                     [&] { return driver().cuGraphExecUpdate_v2(exec, graph, why); });
}
// Uploads what the graph needs on the device.
LULL_ENTRY(cuGraphUpload)(CUgraphExec exec, CUstream stream) {
  return forward_use(thread_state, [&] { return driver().cuGraphUpload(exec, stream); });
}
LULL_ENTRY(cuGraphUpload_ptsz)(CUgraphExec exec, CUstream stream) {
  return forward_use(thread_state, [&] { return driver().cuGraphUpload_ptsz(exec, stream); });
}
LULL_ENTRY(cuGraphExecDestroy)(CUgraphExec exec) {
  if (thread_state.depth == 0 && shim_enabled()) graph_destroyed(exec);
  return forward_use(thread_state, [&] { return driver().cuGraphExecDestroy(exec); });
}
