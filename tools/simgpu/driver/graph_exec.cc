// Executable graphs: instantiation, launch, and changing parameters in place.
#include <algorithm>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph_params.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

CUresult instantiate(CUgraphExec* out, CUgraph handle, uint64_t flags, CUgraphNode* error_node) {
  Call call;
  if (!call) return call.error;
  constexpr uint64_t kKnown =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (error_node != nullptr) *error_node = nullptr;
  const auto graph = call.state.graphs.find(handle);
  if (out == nullptr || !graph || (flags & ~kKnown) != 0) return kWrong;
  // Launching from the device: kernels do not run code here.
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return CUDA_ERROR_NOT_SUPPORTED;
  if (!graph->nodes.empty() && in_order(*graph).empty()) return kWrong;  // a cycle
  auto exec = std::make_shared<GraphExec>();
  exec->handle = call.state.new_handle();
  exec->graph = clone_graph(call.state, *graph, /*owned=*/true);
  exec->flags = flags;
  call.state.execs.add(exec);
  *out = to_handle<CUgraphExec>(exec->handle);
  return CUDA_SUCCESS;
}

// The node of the executable graph that stands for a node of the graph it came from.
template <class Body>
CUresult with_exec_node(CUgraphExec exec_handle, CUgraphNode node_handle, Body body) {
  Call call;
  if (!call) return call.error;
  const auto exec = call.state.execs.find(exec_handle);
  if (!exec) return kWrong;
  GraphNode* node = find_clone(*exec->graph, reinterpret_cast<uint64_t>(node_handle));
  return node == nullptr ? kWrong : body(call, *node);
}

template <class Parameters>
CUresult set(CUgraphExec exec, CUgraphNode node_handle, Parameters* p) {
  if (p == nullptr) return kWrong;
  return with_exec_node(exec, node_handle, [&](Call& call, GraphNode& node) {
    return replace_work(node, work_of(call, *p));
  });
}

bool same_shape(const Graph& a, const Graph& b, GraphNode** wrong, CUgraphExecUpdateResult* why) {
  if (a.nodes.size() != b.nodes.size()) {
    *why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return false;
  }
  const auto index_of = [](const Graph& graph, const GraphNode* node) {
    return std::ranges::find_if(graph.nodes,
                                [&](const auto& other) { return other.get() == node; }) -
           graph.nodes.begin();
  };
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const GraphNode& left = *a.nodes[i];
    const GraphNode& right = *b.nodes[i];
    *wrong = b.nodes[i].get();
    if (left.work.index() != right.work.index()) {
      *why = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
      return false;
    }
    *why = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (left.dependencies.size() != right.dependencies.size()) return false;
    for (const GraphNode* dependency : right.dependencies) {
      const auto at = index_of(b, dependency);
      const GraphNode* ours = a.nodes[static_cast<size_t>(at)].get();
      if (std::ranges::find(left.dependencies, ours) == left.dependencies.end()) return false;
    }
    const auto* left_child = std::get_if<ChildWork>(&left.work);
    const auto* right_child = std::get_if<ChildWork>(&right.work);
    if (left_child && !same_shape(*left_child->graph, *right_child->graph, wrong, why))
      return false;
  }
  return true;
}

void take_over(Graph& to, const Graph& from) {
  for (size_t i = 0; i < to.nodes.size(); ++i) {
    GraphNode& node = *to.nodes[i];
    node.original = from.nodes[i]->handle;
    if (auto* child = std::get_if<ChildWork>(&node.work)) {
      take_over(*child->graph, *std::get<ChildWork>(from.nodes[i]->work).graph);
    } else {
      node.work = from.nodes[i]->work;
      if (auto* kernel = std::get_if<KernelWork>(&node.work)) kernel->point_to_arguments();
    }
  }
}

CUresult update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphNode* error_node,
                CUgraphExecUpdateResult* result) {
  Call call;
  if (!call) return call.error;
  const auto exec = call.state.execs.find(exec_handle);
  const auto graph = call.state.graphs.find(graph_handle);
  if (!exec || !graph) return kWrong;
  GraphNode* wrong = nullptr;
  CUgraphExecUpdateResult why = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  if (error_node != nullptr) *error_node = nullptr;
  if (!same_shape(*exec->graph, *graph, &wrong, &why)) {
    if (error_node != nullptr && wrong) *error_node = to_handle<CUgraphNode>(wrong->handle);
    if (result != nullptr) *result = why;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  take_over(*exec->graph, *graph);
  if (result != nullptr) *result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                           size_t log_bytes) {
  if (log != nullptr && log_bytes > 0) log[0] = '\0';
  return instantiate(out, graph, 0, error_node);
}
SIM_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                              size_t log_bytes) {
  if (log != nullptr && log_bytes > 0) log[0] = '\0';
  return instantiate(out, graph, 0, error_node);
}
SIM_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return instantiate(out, graph, flags, nullptr);
}
SIM_API cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                     CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return kWrong;
  const CUresult result = instantiate(out, graph, parameters->flags, &parameters->hErrNode_out);
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

SIM_API cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  Call call;
  if (!call) return call.error;
  const auto exec = call.state.execs.find(handle);
  if (!exec || flags == nullptr) return kWrong;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

SIM_API cuGraphExecDestroy(CUgraphExec handle) {
  Call call;
  if (!call) return call.error;
  const auto exec = call.state.execs.find(handle);
  if (!exec) return kWrong;
  // Work in flight runs on; its lanes are given up to the context, which ends them when idle.
  if (const auto context = exec->context.lock()) {
    for (const simgpu::StreamId& lane : exec->lanes) {
      auto retired = std::make_shared<Stream>();
      retired->handle = call.state.new_handle();
      retired->context = context;
      retired->lane = lane;
      retired->flags = CU_STREAM_NON_BLOCKING;
      call.state.retire_stream(retired);
    }
  }
  forget_graph(call.state, exec->graph);
  call.state.execs.remove(exec->handle);
  return CUDA_SUCCESS;
}

SIM_API cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(stream_handle);
  if (!stream) return stream.error();
  return call.state.execs.find(handle) ? CUDA_SUCCESS : kWrong;
}

SIM_API cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  Call call;
  if (!call) return call.error;
  const auto exec = call.state.execs.find(handle);
  if (!exec) return kWrong;
  const auto found = call.stream(stream_handle);
  if (!found) return found.error();
  const std::shared_ptr<Stream>& stream = *found;
  const auto context = call.state.context_of(*stream);
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (stream->capture) {
    // A launch that is captured is a child graph.
    return enqueue(call, stream, ChildWork{clone_graph(call.state, *exec->graph, /*owned=*/true)});
  }
  if (const CUresult refused = refuse_legacy_in_capture(call.state, *stream, true)) return refused;
  if (const auto before = exec->context.lock(); before != context) {
    exec->lanes.clear();
    exec->context = context;
  }
  std::vector<simgpu::OpPoint> waits = legacy_order(call.state, *stream);
  waits.push_back(exec->last);
  tell_log_where(call.state, *context, *stream, ++call.state.graph_launches);
  const auto point =
      submit_graph(call.state, *context, *exec->graph, stream->lane, std::move(waits), exec->lanes);
  if (!point) return point.error();
  stream->last = std::max(stream->last, point->seq);
  exec->last = *point;
  return CUDA_SUCCESS;
}

// Memory of allocation nodes is there from the node on, and as long as its context: what is in use
// and what is reserved are the same, and nothing can be trimmed.
namespace {

template <class Value>
CUresult graph_memory(CUdevice device, Value* value, auto act) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return value == nullptr ? kWrong : act(call.state);
}

}  // namespace

SIM_API cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return graph_memory(device, value, [&](State& state) {
    auto* const out = static_cast<cuuint64_t*>(value);
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *out = state.memory.graph_bytes(device);
        return CUDA_SUCCESS;
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *out = state.graph_high_bytes[device];
        return CUDA_SUCCESS;
      default:
        return kWrong;
    }
  });
}
SIM_API cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return graph_memory(device, value, [&](State& state) {
    const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                      attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!high || *static_cast<const cuuint64_t*>(value) != 0) return kWrong;
    state.graph_high_bytes[device] = state.memory.graph_bytes(device);
    return CUDA_SUCCESS;
  });
}
SIM_API cuDeviceGraphMemTrim(CUdevice device) {
  return graph_memory(device, &device, [](State&) { return CUDA_SUCCESS; });
}

SIM_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                          const CUDA_KERNEL_NODE_PARAMS* p) {
  return set(exec, node, p);
}
SIM_API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (p == nullptr) return kWrong;
  const CUDA_KERNEL_NODE_PARAMS all = wide(*p);
  return set(exec, node, &all);
}
SIM_API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p,
                                       CUcontext) {
  return set(exec, node, p);
}
SIM_API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                       const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
  return set(exec, node, p);
}
SIM_API cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                     const CUDA_HOST_NODE_PARAMS* p) {
  return set(exec, node, p);
}
SIM_API cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return set(exec, node, p);
}
SIM_API cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p) {
  return set(exec, node, p);
}
SIM_API cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode handle, CUgraph graph) {
  return with_exec_node(exec, handle, [&](Call& call, GraphNode& node) {
    return replace_work(node, child_work(call, graph));
  });
}
SIM_API cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  return with_exec_node(exec, handle, [&](Call& call, GraphNode& node) {
    return replace_work(node, event_work<RecordWork>(call, event));
  });
}
SIM_API cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode handle, CUevent event) {
  return with_exec_node(exec, handle, [&](Call& call, GraphNode& node) {
    return replace_work(node, event_work<WaitWork>(call, event));
  });
}

SIM_API cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned enabled) {
  return with_exec_node(exec, handle, [&](Call&, GraphNode& node) {
    const bool can = std::holds_alternative<KernelWork>(node.work) ||
                     std::holds_alternative<CopyWork>(node.work) ||
                     std::holds_alternative<SetWork>(node.work);
    if (!can) return kWrong;
    node.enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode handle, unsigned* enabled) {
  return with_exec_node(exec, handle, [&](Call&, GraphNode& node) {
    if (enabled == nullptr) return kWrong;
    *enabled = node.enabled;
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                          CUgraphExecUpdateResult* result) {
  return update(exec, graph, error_node, result);
}
SIM_API cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return kWrong;
  *info = {};
  return update(exec, graph, &info->errorNode, &info->result);
}
