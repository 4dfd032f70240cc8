// Graphs. Nodes and graphs are the driver's own handles; only parameters need translating.
#include <cstring>

#include "tools/cudart/copy_shape.h"
#include "tools/cudart/runtime.h"

using namespace lull::cudart;

namespace {

CUresult driver_parameters(const cudaKernelNodeParams& from, CUDA_KERNEL_NODE_PARAMS_v2* to) {
  std::memset(to, 0, sizeof *to);
  const cudaError_t status = Registry::instance().function(from.func, &to->func);
  to->gridDimX = from.gridDim.x;
  to->gridDimY = from.gridDim.y;
  to->gridDimZ = from.gridDim.z;
  to->blockDimX = from.blockDim.x;
  to->blockDimY = from.blockDim.y;
  to->blockDimZ = from.blockDim.z;
  to->sharedMemBytes = from.sharedMemBytes;
  to->kernelParams = from.kernelParams;
  to->extra = from.extra;
  return static_cast<CUresult>(status);
}

// Runs `call(driver, parameters)` with a kernel node's parameters translated.
template <typename Call>
cudaError_t with_kernel_parameters(const cudaKernelNodeParams* from, Call&& call) {
  if (from == nullptr) return record(cudaErrorInvalidValue);
  return with_context([&](const Driver& d) {
    CUDA_KERNEL_NODE_PARAMS_v2 parameters;
    const CUresult result = driver_parameters(*from, &parameters);
    return result != CUDA_SUCCESS ? result : call(d, &parameters);
  });
}

CUresult current_context(const Driver& d, CUcontext* context) { return d.cuCtxGetCurrent(context); }

}  // namespace

LULL_API cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return with_driver([&](const Driver& d) { return d.cuGraphCreate(graph, flags); });
}

LULL_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return with_driver([&](const Driver& d) { return d.cuGraphDestroy(graph); });
}

LULL_API cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t original) {
  return with_driver([&](const Driver& d) { return d.cuGraphClone(clone, original); });
}

LULL_API cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                            const cudaGraphNode_t* dependencies, size_t count,
                                            const cudaKernelNodeParams* parameters) {
  return with_kernel_parameters(parameters, [&](const Driver& d, const auto* translated) {
    return d.cuGraphAddKernelNode(node, graph, dependencies, count, translated);
  });
}

LULL_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                  const cudaKernelNodeParams* parameters) {
  return with_kernel_parameters(parameters, [&](const Driver& d, const auto* translated) {
    return d.cuGraphKernelNodeSetParams(node, translated);
  });
}

LULL_API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable,
                                                      cudaGraphNode_t node,
                                                      const cudaKernelNodeParams* parameters) {
  return with_kernel_parameters(parameters, [&](const Driver& d, const auto* translated) {
    return d.cuGraphExecKernelNodeSetParams(executable, node, translated);
  });
}

LULL_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                                  cudaKernelNodeParams* parameters) {
  return with_driver([&](const Driver& d) {
    CUDA_KERNEL_NODE_PARAMS_v2 from{};
    const CUresult result = d.cuGraphKernelNodeGetParams(node, &from);
    const void* host = Registry::instance().host_function_of(from.kern, from.func);
    parameters->func = host != nullptr ? const_cast<void*>(host) : static_cast<void*>(from.func);
    parameters->gridDim = dim3(from.gridDimX, from.gridDimY, from.gridDimZ);
    parameters->blockDim = dim3(from.blockDimX, from.blockDimY, from.blockDimZ);
    parameters->sharedMemBytes = from.sharedMemBytes;
    parameters->kernelParams = from.kernelParams;
    parameters->extra = from.extra;
    return result;
  });
}

LULL_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                              const cudaGraphNode_t* dependencies, size_t count,
                                              void* to, const void* from, size_t bytes,
                                              cudaMemcpyKind kind) {
  return with_context([&](const Driver& d) {
    CUcontext context = nullptr;
    current_context(d, &context);
    const CUDA_MEMCPY3D shape = copy_shape_1d(to, from, bytes, kind);
    return d.cuGraphAddMemcpyNode(node, graph, dependencies, count, &shape, context);
  });
}

LULL_API cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                            const cudaGraphNode_t* dependencies, size_t count,
                                            const cudaMemcpy3DParms* parameters) {
  if (!is_pitched_copy(parameters)) return record(cudaErrorNotSupported);
  return with_context([&](const Driver& d) {
    CUcontext context = nullptr;
    current_context(d, &context);
    const CUDA_MEMCPY3D shape = copy_shape_3d(*parameters);
    return d.cuGraphAddMemcpyNode(node, graph, dependencies, count, &shape, context);
  });
}

LULL_API cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                            const cudaGraphNode_t* dependencies, size_t count,
                                            const cudaMemsetParams* parameters) {
  if (parameters == nullptr) return record(cudaErrorInvalidValue);
  return with_context([&](const Driver& d) {
    CUcontext context = nullptr;
    current_context(d, &context);
    CUDA_MEMSET_NODE_PARAMS translated{};
    translated.dst = reinterpret_cast<CUdeviceptr>(parameters->dst);
    translated.pitch = parameters->pitch;
    translated.value = parameters->value;
    translated.elementSize = parameters->elementSize;
    translated.width = parameters->width;
    translated.height = parameters->height;
    return d.cuGraphAddMemsetNode(node, graph, dependencies, count, &translated, context);
  });
}

LULL_API cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies, size_t count,
                                          const cudaHostNodeParams* parameters) {
  if (parameters == nullptr) return record(cudaErrorInvalidValue);
  const CUDA_HOST_NODE_PARAMS translated{parameters->fn, parameters->userData};
  return with_driver([&](const Driver& d) {
    return d.cuGraphAddHostNode(node, graph, dependencies, count, &translated);
  });
}

LULL_API cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* dependencies, size_t count) {
  return with_driver(
      [&](const Driver& d) { return d.cuGraphAddEmptyNode(node, graph, dependencies, count); });
}

LULL_API cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                const cudaGraphNode_t* dependencies, size_t count,
                                                cudaGraph_t child) {
  return with_driver([&](const Driver& d) {
    return d.cuGraphAddChildGraphNode(node, graph, dependencies, count, child);
  });
}

LULL_API cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                                 const cudaGraphNode_t* dependencies, size_t count,
                                                 cudaEvent_t event) {
  return with_driver([&](const Driver& d) {
    return d.cuGraphAddEventRecordNode(node, graph, dependencies, count, event);
  });
}

LULL_API cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies, size_t count,
                                               cudaEvent_t event) {
  return with_driver([&](const Driver& d) {
    return d.cuGraphAddEventWaitNode(node, graph, dependencies, count, event);
  });
}

LULL_API cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                              const cudaGraphNode_t* to,
                                              const cudaGraphEdgeData* edges, size_t count) {
  return with_driver([&](const Driver& d) {
    return d.cuGraphAddDependencies(graph, from, to,
                                    reinterpret_cast<const CUgraphEdgeData*>(edges), count);
  });
}

LULL_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return with_driver([&](const Driver& d) { return d.cuGraphGetNodes(graph, nodes, count); });
}

LULL_API cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                           size_t* count) {
  return with_driver([&](const Driver& d) { return d.cuGraphGetRootNodes(graph, nodes, count); });
}

LULL_API cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from,
                                       cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                                       size_t* count) {
  return with_driver([&](const Driver& d) {
    return d.cuGraphGetEdges(graph, from, to, reinterpret_cast<CUgraphEdgeData*>(edges), count);
  });
}

LULL_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return with_driver([&](const Driver& d) {
    return d.cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type));
  });
}

LULL_API cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return with_driver([&](const Driver& d) { return d.cuGraphDestroyNode(node); });
}

LULL_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags) {
  return with_driver([&](const Driver& d) { return d.cuGraphDebugDotPrint(graph, path, flags); });
}

LULL_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                   unsigned long long flags) {
  return with_context(
      [&](const Driver& d) { return d.cuGraphInstantiateWithFlags(executable, graph, flags); });
}

LULL_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

LULL_TWIN(cudaGraphInstantiateWithParams, ptsz, (executable, graph, parameters),
          cudaGraphExec_t* executable, cudaGraph_t graph, cudaGraphInstantiateParams* parameters) {
  static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
  return with_context([&](const Driver& d) {
    return d.cuGraphInstantiateWithParams[twin](
        executable, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(parameters));
  });
}

LULL_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return with_driver([&](const Driver& d) { return d.cuGraphExecDestroy(executable); });
}

LULL_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                         cudaGraphExecUpdateResultInfo* info) {
  static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo));
  return with_context([&](const Driver& d) {
    return d.cuGraphExecUpdate(executable, graph,
                               reinterpret_cast<CUgraphExecUpdateResultInfo*>(info));
  });
}

LULL_TWIN(cudaGraphUpload, ptsz, (executable, stream), cudaGraphExec_t executable,
          cudaStream_t stream) {
  return with_context([&](const Driver& d) { return d.cuGraphUpload[twin](executable, stream); });
}

LULL_TWIN(cudaGraphLaunch, ptsz, (executable, stream), cudaGraphExec_t executable,
          cudaStream_t stream) {
  return with_context([&](const Driver& d) { return d.cuGraphLaunch[twin](executable, stream); });
}
