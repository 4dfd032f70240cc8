// The calls that build a graph and look at it: nodes, edges, parameters.
#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph_params.h"
#include "tools/simgpu/driver/memory.h"

namespace simgpu::driver {

std::expected<Work, CUresult> work_of(Call& call, const CUDA_KERNEL_NODE_PARAMS& p) {
  const CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  std::shared_ptr<Context> context = call.context;
  if (const auto function = call.state.functions.find(handle)) {
    const auto module = function->module.lock();
    context = module ? module->context.lock() : nullptr;
  } else if (p.func == nullptr && p.ctx != nullptr) {
    context = call.state.contexts.find(p.ctx);
  }
  if (!context) return std::unexpected(CUDA_ERROR_INVALID_CONTEXT);
  const uint32_t grid[3] = {p.gridDimX, p.gridDimY, p.gridDimZ};
  const uint32_t block[3] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  auto work = make_kernel_work(call.state, *context, handle, grid, block, p.sharedMemBytes,
                               p.kernelParams, p.extra);
  if (!work) return std::unexpected(work.error());
  return Work(std::move(*work));
}

std::expected<Work, CUresult> work_of(Call& call, const CUDA_MEMCPY3D& p) {
  auto work = make_copy_work(call.state, p);
  if (!work) return std::unexpected(work.error());
  return Work(std::move(*work));
}

std::expected<Work, CUresult> work_of(Call& call, const CUDA_MEMSET_NODE_PARAMS& p) {
  auto work = make_set_work(call.state, p);
  if (!work) return std::unexpected(work.error());
  return Work(std::move(*work));
}

std::expected<Work, CUresult> work_of(Call&, const CUDA_HOST_NODE_PARAMS& p) {
  if (p.fn == nullptr) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
  return Work(HostWork{p.fn, p.userData});
}

std::expected<Work, CUresult> work_of(Call& call, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) {
  auto work = make_value_work(call.state, p.count, p.paramArray, p.flags);
  if (!work) return std::unexpected(work.error());
  return Work(std::move(*work));
}

std::expected<Work, CUresult> child_work(Call& call, CUgraph graph) {
  const auto found = call.state.graphs.find(graph);
  if (!found) return std::unexpected(CUDA_ERROR_INVALID_VALUE);
  return Work(ChildWork{clone_graph(call.state, *found, /*owned=*/true)});
}

template <class Kind>
std::expected<Work, CUresult> event_work(Call& call, CUevent handle) {
  const auto event = call.state.events.find(handle);
  if (!event) return std::unexpected(CUDA_ERROR_INVALID_HANDLE);
  return Work(Kind{event});
}
template std::expected<Work, CUresult> event_work<RecordWork>(Call&, CUevent);
template std::expected<Work, CUresult> event_work<WaitWork>(Call&, CUevent);

std::expected<Work, CUresult> work_of(Call& call, CUgraphNodeParams& p) {
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS kernel;
      static_assert(sizeof kernel == sizeof p.kernel);
      std::memcpy(&kernel, &p.kernel, sizeof kernel);
      return work_of(call, kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return work_of(call, p.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return work_of(
          call, CUDA_MEMSET_NODE_PARAMS{p.memset.dst, p.memset.pitch, p.memset.value,
                                        p.memset.elementSize, p.memset.width, p.memset.height});
    case CU_GRAPH_NODE_TYPE_HOST:
      return work_of(call, CUDA_HOST_NODE_PARAMS{p.host.fn, p.host.userData});
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return child_work(call, p.graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return Work(EmptyWork{});
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_work<WaitWork>(call, p.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_work<RecordWork>(call, p.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return work_of(call, CUDA_BATCH_MEM_OP_NODE_PARAMS{p.memOp.ctx, p.memOp.count,
                                                         p.memOp.paramArray, p.memOp.flags});
    default:
      return std::unexpected(CUDA_ERROR_NOT_SUPPORTED);
  }
}

CUresult replace_work(GraphNode& node, std::expected<Work, CUresult> work) {
  if (!work) return work.error();
  if (work->index() != node.work.index()) return CUDA_ERROR_INVALID_VALUE;
  node.work = std::move(*work);
  if (auto* kernel = std::get_if<KernelWork>(&node.work)) kernel->point_to_arguments();
  return CUDA_SUCCESS;
}

CUDA_KERNEL_NODE_PARAMS wide(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  CUDA_KERNEL_NODE_PARAMS all = {};
  std::memcpy(&all, &p, sizeof p);  // the newer struct begins as the older one
  return all;
}

}  // namespace simgpu::driver

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

CUgraphNode handle_of(const GraphNode& node) { return to_handle<CUgraphNode>(node.handle); }

CUresult add(Call& call, CUgraphNode* out, CUgraph graph_handle, const CUgraphNode* dependencies,
             size_t count, std::expected<Work, CUresult> work,
             const CUgraphEdgeData* edges = nullptr) {
  if (out == nullptr || (dependencies == nullptr && count > 0)) return kWrong;
  const auto graph = call.state.graphs.find(graph_handle);
  if (!graph) return kWrong;
  if (!work) return work.error();
  std::vector<GraphNode*> before;
  for (size_t i = 0; i < count; ++i) {
    const auto node = call.state.nodes.find(dependencies[i]);
    if (!node || node->graph != graph.get()) return kWrong;
    if (std::ranges::find(before, node.get()) != before.end()) return kWrong;
    before.push_back(node.get());
  }
  GraphNode* node = add_node(call.state, *graph, std::move(*work), before);
  for (size_t i = 0; edges != nullptr && i < count; ++i) node->edge[before[i]] = edges[i];
  *out = handle_of(*node);
  return CUDA_SUCCESS;
}

// The two-step form of all lists: count alone, or as many as there is room for, the rest nulled.
CUresult list(const std::vector<GraphNode*>& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return kWrong;
  if (out == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? handle_of(*nodes[i]) : nullptr;
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

template <class Kind, class Body>
CUresult with_node(CUgraphNode handle, const void* out, Body body) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  if (!node || out == nullptr) return kWrong;
  Kind* work = std::get_if<Kind>(&node->work);
  return work == nullptr ? kWrong : body(*work);
}

CUDA_KERNEL_NODE_PARAMS describe(KernelWork& work) {
  CUDA_KERNEL_NODE_PARAMS p = {};
  p.func = work.handle;
  p.gridDimX = work.grid[0];
  p.gridDimY = work.grid[1];
  p.gridDimZ = work.grid[2];
  p.blockDimX = work.block[0];
  p.blockDimY = work.block[1];
  p.blockDimZ = work.block[2];
  p.sharedMemBytes = work.shared_bytes;
  p.kernelParams = work.argument_pointers.empty() ? nullptr : work.argument_pointers.data();
  return p;
}

template <class Parameters>
CUresult set(CUgraphNode handle, const Parameters* p) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  if (!node || p == nullptr) return kWrong;
  return replace_work(*node, work_of(call, *p));
}

CUresult edges_of(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                  size_t* count) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (!graph || count == nullptr || (from == nullptr) != (to == nullptr)) return kWrong;
  size_t found = 0;
  for (const auto& node : graph->nodes) {
    for (const GraphNode* dependency : node->dependencies) {
      if (from != nullptr && found < *count) {
        from[found] = handle_of(*dependency);
        to[found] = handle_of(*node);
        const auto edge = node->edge.find(dependency);
        if (data != nullptr)
          data[found] = edge == node->edge.end() ? CUgraphEdgeData{} : edge->second;
      }
      ++found;
    }
  }
  for (size_t i = found; from != nullptr && i < *count; ++i) from[i] = to[i] = nullptr;
  *count = from == nullptr ? found : std::min(*count, found);
  return CUDA_SUCCESS;
}

CUresult neighbours(CUgraphNode handle, bool before, CUgraphNode* out, CUgraphEdgeData* data,
                    size_t* count) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  if (!node || count == nullptr) return kWrong;
  if (out != nullptr && data != nullptr) std::fill_n(data, *count, CUgraphEdgeData{});
  return list(before ? node->dependencies : node->dependents, out, count);
}

CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                      const CUgraphEdgeData* data, size_t count, bool adding) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (!graph || (count > 0 && (from == nullptr || to == nullptr))) return kWrong;
  for (size_t i = 0; i < count; ++i) {
    const auto a = call.state.nodes.find(from[i]);
    const auto b = call.state.nodes.find(to[i]);
    if (!a || !b || a->graph != graph.get() || b->graph != graph.get()) return kWrong;
    if (adding) {
      if (!add_edge(*a, *b, data == nullptr ? nullptr : &data[i])) return kWrong;
    } else {
      if (std::erase(b->dependencies, a.get()) == 0) return kWrong;
      std::erase(a->dependents, b.get());
      b->edge.erase(a.get());
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuGraphCreate(CUgraph* out, unsigned flags) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || flags != 0) return kWrong;
  *out = to_handle<CUgraph>(create_graph(call.state)->handle);
  return CUDA_SUCCESS;
}

SIM_API cuGraphDestroy(CUgraph handle) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (!graph || graph->owned) return kWrong;
  forget_graph(call.state, graph);
  return CUDA_SUCCESS;
}

SIM_API cuGraphClone(CUgraph* out, CUgraph handle) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (out == nullptr || !graph) return kWrong;
  *out = to_handle<CUgraph>(clone_graph(call.state, *graph, /*owned=*/false)->handle);
  return CUDA_SUCCESS;
}

SIM_API cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph handle) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (out == nullptr || !graph || graph->original == 0) return kWrong;
  const GraphNode* node = find_clone(*graph, reinterpret_cast<uint64_t>(original));
  if (node == nullptr) return kWrong;
  *out = handle_of(*node);
  return CUDA_SUCCESS;
}

SIM_API cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, const CUDA_KERNEL_NODE_PARAMS* p) {
  Call call;
  if (!call) return call.error;
  return p == nullptr ? kWrong : add(call, out, graph, dependencies, count, work_of(call, *p));
}
SIM_API cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (p == nullptr) return kWrong;
  const CUDA_KERNEL_NODE_PARAMS all = wide(*p);
  return cuGraphAddKernelNode_v2(out, graph, dependencies, count, &all);
}

SIM_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* p) {
  return with_node<KernelWork>(node, p, [&](KernelWork& work) {
    *p = describe(work);
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* p) {
  return with_node<KernelWork>(node, p, [&](KernelWork& work) {
    const CUDA_KERNEL_NODE_PARAMS all = describe(work);
    std::memcpy(p, &all, sizeof *p);
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
  return set(node, p);
}
SIM_API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  if (p == nullptr) return kWrong;
  const CUDA_KERNEL_NODE_PARAMS all = wide(*p);
  return set(node, &all);
}

SIM_API cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                      CUkernelNodeAttrValue* out) {
  return with_node<KernelWork>(node, out, [&](KernelWork& work) {
    const auto found = work.attributes.find(id);
    *out = found == work.attributes.end() ? CUkernelNodeAttrValue{} : found->second;
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) out->cooperative = work.cooperative;
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                      const CUkernelNodeAttrValue* value) {
  return with_node<KernelWork>(node, value, [&](KernelWork& work) {
    work.attributes[id] = *value;
    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) work.cooperative = value->cooperative != 0;
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphKernelNodeCopyAttributes(CUgraphNode target_handle, CUgraphNode source_handle) {
  Call call;
  if (!call) return call.error;
  const auto target = call.state.nodes.find(target_handle);
  const auto source = call.state.nodes.find(source_handle);
  if (!target || !source) return kWrong;
  auto* to = std::get_if<KernelWork>(&target->work);
  const auto* from = std::get_if<KernelWork>(&source->work);
  if (to == nullptr || from == nullptr) return kWrong;
  to->attributes = from->attributes;
  return CUDA_SUCCESS;
}

SIM_API cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count, const CUDA_MEMCPY3D* p, CUcontext) {
  Call call;
  if (!call) return call.error;
  return p == nullptr ? kWrong : add(call, out, graph, dependencies, count, work_of(call, *p));
}
SIM_API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* p) {
  return with_node<CopyWork>(node, p, [&](CopyWork& work) {
    *p = work.description;
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* p) {
  return set(node, p);
}

SIM_API cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
  Call call;
  if (!call) return call.error;
  return p == nullptr ? kWrong : add(call, out, graph, dependencies, count, work_of(call, *p));
}
SIM_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* p) {
  return with_node<SetWork>(node, p, [&](SetWork& work) {
    *p = work.description;
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p) {
  return set(node, p);
}

SIM_API cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                           size_t count, const CUDA_HOST_NODE_PARAMS* p) {
  Call call;
  if (!call) return call.error;
  return p == nullptr ? kWrong : add(call, out, graph, dependencies, count, work_of(call, *p));
}
SIM_API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* p) {
  return with_node<HostWork>(node, p, [&](HostWork& work) {
    *p = {work.function, work.user_data};
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* p) {
  return set(node, p);
}

SIM_API cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUgraph child) {
  Call call;
  if (!call) return call.error;
  return add(call, out, graph, dependencies, count, child_work(call, child));
}
SIM_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return with_node<ChildWork>(node, out, [&](ChildWork& work) {
    *out = to_handle<CUgraph>(work.graph->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count) {
  Call call;
  if (!call) return call.error;
  return add(call, out, graph, dependencies, count, Work(EmptyWork{}));
}

SIM_API cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUevent event) {
  Call call;
  if (!call) return call.error;
  return add(call, out, graph, dependencies, count, event_work<RecordWork>(call, event));
}
SIM_API cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, CUevent event) {
  Call call;
  if (!call) return call.error;
  return add(call, out, graph, dependencies, count, event_work<WaitWork>(call, event));
}
SIM_API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return with_node<RecordWork>(node, out, [&](RecordWork& work) {
    *out = to_handle<CUevent>(work.event->handle);
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return with_node<WaitWork>(node, out, [&](WaitWork& work) {
    *out = to_handle<CUevent>(work.event->handle);
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphEventRecordNodeSetEvent(CUgraphNode handle, CUevent event) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  return node ? replace_work(*node, event_work<RecordWork>(call, event)) : kWrong;
}
SIM_API cuGraphEventWaitNodeSetEvent(CUgraphNode handle, CUevent event) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  return node ? replace_work(*node, event_work<WaitWork>(call, event)) : kWrong;
}

SIM_API cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  Call call;
  if (!call) return call.error;
  return p == nullptr ? kWrong : add(call, out, graph, dependencies, count, work_of(call, *p));
}
SIM_API cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return with_node<ValueWork>(node, p, [&](ValueWork& work) {
    *p = {nullptr, static_cast<unsigned>(work.operations.size()), work.operations.data(),
          work.flags};
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  return set(node, p);
}

SIM_API cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                               size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (p == nullptr || p->bytesize == 0) return kWrong;
  const auto address = allocate_device(call.state, *call.context, p->bytesize, MemoryKind::kDevice);
  if (!address) return address.error();
  becomes_graph_memory(call.state, *address);
  p->dptr = *address;
  return add(call, out, graph, dependencies, count, Work(AllocWork{*p}));
}
SIM_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  return with_node<AllocWork>(node, p, [&](AllocWork& work) {
    *p = work.description;
    return CUDA_SUCCESS;
  });
}
SIM_API cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, CUdeviceptr address) {
  Call call;
  if (!call) return call.error;
  if (!call.state.memory.find(address)) return kWrong;
  return add(call, out, graph, dependencies, count, Work(FreeWork{address}));
}
SIM_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return with_node<FreeWork>(node, out, [&](FreeWork& work) {
    *out = work.address;
    return CUDA_SUCCESS;
  });
}

SIM_API cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                          const CUgraphEdgeData* edges, size_t count, CUgraphNodeParams* p) {
  Call call;
  if (!call) return call.error;
  if (p == nullptr) return kWrong;
  const CUresult result = add(call, out, graph, dependencies, count, work_of(call, *p), edges);
  if (result == CUDA_SUCCESS && p->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    const auto node = call.state.nodes.find(*out);
    p->graph.graph = to_handle<CUgraph>(std::get<ChildWork>(node->work).graph->handle);
  }
  return result;
}
SIM_API cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                       size_t count, CUgraphNodeParams* p) {
  return cuGraphAddNode_v2(out, graph, dependencies, nullptr, count, p);
}
SIM_API cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams* p) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  return node && p != nullptr ? replace_work(*node, work_of(call, *p)) : kWrong;
}

SIM_API cuGraphDestroyNode(CUgraphNode handle) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  if (!node) return kWrong;
  for (GraphNode* dependency : node->dependencies) std::erase(dependency->dependents, node.get());
  for (GraphNode* dependent : node->dependents) {
    std::erase(dependent->dependencies, node.get());
    dependent->edge.erase(node.get());
  }
  if (const auto* child = std::get_if<ChildWork>(&node->work))
    forget_graph(call.state, child->graph);
  call.state.nodes.remove(node->handle);
  std::erase(node->graph->nodes, node);
  return CUDA_SUCCESS;
}

SIM_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  Call call;
  if (!call) return call.error;
  const auto node = call.state.nodes.find(handle);
  if (!node || type == nullptr) return kWrong;
  // In the order of Work's alternatives.
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,      CU_GRAPH_NODE_TYPE_KERNEL,
      CU_GRAPH_NODE_TYPE_MEMCPY,     CU_GRAPH_NODE_TYPE_MEMSET,
      CU_GRAPH_NODE_TYPE_HOST,       CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
      CU_GRAPH_NODE_TYPE_GRAPH,      CU_GRAPH_NODE_TYPE_MEM_ALLOC,
      CU_GRAPH_NODE_TYPE_MEM_FREE};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  *type = kTypes[node->work.index()];
  return CUDA_SUCCESS;
}

SIM_API cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (!graph) return kWrong;
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes) nodes.push_back(node.get());
  return list(nodes, out, count);
}

SIM_API cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  Call call;
  if (!call) return call.error;
  const auto graph = call.state.graphs.find(handle);
  if (!graph) return kWrong;
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) nodes.push_back(node.get());
  }
  return list(nodes, out, count);
}

SIM_API cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return edges_of(graph, from, to, nullptr, count);
}
SIM_API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                           size_t* count) {
  return edges_of(graph, from, to, data, count);
}
SIM_API cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return neighbours(node, true, out, nullptr, count);
}
SIM_API cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                      size_t* count) {
  return neighbours(node, true, out, data, count);
}
SIM_API cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return neighbours(node, false, out, nullptr, count);
}
SIM_API cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                        size_t* count) {
  return neighbours(node, false, out, data, count);
}
SIM_API cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                               size_t count) {
  return change_edges(graph, from, to, nullptr, count, true);
}
SIM_API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  const CUgraphEdgeData* data, size_t count) {
  return change_edges(graph, from, to, data, count, true);
}
SIM_API cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  size_t count) {
  return change_edges(graph, from, to, nullptr, count, false);
}
SIM_API cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                     const CUgraphEdgeData*, size_t count) {
  return change_edges(graph, from, to, nullptr, count, false);
}
