#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

namespace {
struct Stream {
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) { OK(cuStreamCreate(&handle, flags)); }
  operator CUstream() const { return handle; }
  CUstream handle = nullptr;
};
size_t nodes_of(CUgraph graph) {
  size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  return count;
}
CUDA_KERNEL_NODE_PARAMS kernel_node(CUfunction function, void** arguments) {
  CUDA_KERNEL_NODE_PARAMS p = {};
  p.func = function;
  p.gridDimX = p.gridDimY = p.gridDimZ = 1;
  p.blockDimX = 32;
  p.blockDimY = p.blockDimZ = 1;
  p.kernelParams = arguments;
  return p;
}
// How long one launch of the graph takes on the device.
float launch_ms(Program& program, CUgraphExec exec, CUstream stream) {
  CUevent from, to;
  OK(cuEventCreate(&from, 0));
  OK(cuEventCreate(&to, 0));
  *program.gate = 0;
  OK(program.hold(stream));
  OK(cuEventRecord(from, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuEventRecord(to, stream));
  program.open_gate();
  OK(cuStreamSynchronize(stream));
  return elapsed_ms(from, to);
}
}  // namespace

TEST_CASE("a graph of explicit nodes runs in the order of its edges, branches beside each other") {
  Program program;
  Stream stream;
  CUgraph graph;
  OK(cuGraphCreate(&graph, 0));
  unsigned long long ns = 1'000'000;
  void* arguments[] = {&ns};
  const auto kernel = kernel_node(program.spin, arguments);
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 64));
  unsigned* host = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&host), 64, 0));
  host[0] = 0;
  CUDA_MEMSET_NODE_PARAMS fill = {memory, 0, 5, 4, 16, 1};
  CUgraphNode set, left, right, copy, call, nothing;
  OK(cuGraphAddMemsetNode(&set, graph, nullptr, 0, &fill, program.context));
  OK(cuGraphAddKernelNode_v2(&left, graph, &set, 1, &kernel));
  OK(cuGraphAddKernelNode_v2(&right, graph, &set, 1, &kernel));
  CUgraphNode both[] = {left, right};
  CUDA_MEMCPY3D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = memory;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = host;
  down.WidthInBytes = 64;
  down.Height = down.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy, graph, both, 2, &down, program.context));
  CHECK(nodes_of(graph) == 4);
  size_t count = 0;
  OK(cuGraphGetEdges(graph, nullptr, nullptr, &count));
  CHECK(count == 4);
  OK(cuGraphGetRootNodes(graph, nullptr, &count));
  CHECK(count == 1);
  OK(cuGraphNodeGetDependencies(copy, nullptr, &count));
  CHECK(count == 2);
  OK(cuGraphNodeGetDependentNodes_v2(set, nullptr, nullptr, &count));
  CHECK(count == 2);
  CUgraphNodeType type;
  OK(cuGraphNodeGetType(copy, &type));
  CHECK(type == CU_GRAPH_NODE_TYPE_MEMCPY);
  CUDA_KERNEL_NODE_PARAMS got;
  OK(cuGraphKernelNodeGetParams_v2(left, &got));
  CHECK(got.func == program.spin);
  CHECK(*static_cast<unsigned long long*>(got.kernelParams[0]) == 1'000'000);
  CHECK(cuGraphKernelNodeGetParams_v2(copy, &got) == CUDA_ERROR_INVALID_VALUE);

  CUgraphExec exec;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const float together = launch_ms(program, exec, stream);
  CHECK(together >= 1.0f);
  CHECK(together < 2.0f);
  CHECK(host[0] == 5);
  // In one line they add up; the executable graph keeps the shape it was made from.
  OK(cuGraphAddDependencies(graph, &left, &right, 1));
  CUgraphExec in_line;
  OK(cuGraphInstantiate_v2(&in_line, graph, nullptr, nullptr, 0));
  CHECK(launch_ms(program, in_line, stream) >= 2.0f);
  // New arguments in place.
  ns = 3'000'000;
  OK(cuGraphExecKernelNodeSetParams_v2(exec, left, &kernel));
  CHECK(launch_ms(program, exec, stream) >= 3.0f);
  OK(cuGraphNodeSetEnabled(exec, left, 0));
  CHECK(launch_ms(program, exec, stream) < 2.0f);
  static unsigned seen;
  seen = 0;
  CUDA_HOST_NODE_PARAMS host_call = {[](void* p) { seen = *static_cast<unsigned*>(p); }, host};
  OK(cuGraphAddHostNode(&call, graph, &copy, 1, &host_call));
  OK(cuGraphAddEmptyNode(&nothing, graph, &call, 1));
  CUgraphExec with_call;
  OK(cuGraphInstantiateWithFlags(&with_call, graph, 0));
  OK(cuGraphLaunch(with_call, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(seen == 5);
  OK(cuGraphExecUpdate(exec, graph, nullptr, nullptr) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
         ? CUDA_SUCCESS
         : CUDA_ERROR_UNKNOWN);

  CUgraph clone;
  OK(cuGraphClone(&clone, graph));
  CUgraphNode cloned;
  OK(cuGraphNodeFindInClone(&cloned, copy, clone));
  CHECK(cloned != copy);
  CHECK(cuGraphAddDependencies(graph, &nothing, &set, 1) == CUDA_SUCCESS);
  CUgraphExec cycle;
  CHECK(cuGraphInstantiateWithFlags(&cycle, graph, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphDestroyNode(nothing));
  CHECK(nodes_of(graph) == 5);
  OK(cuGraphExecDestroy(exec));
  CHECK(cuGraphLaunch(exec, stream) == CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphDestroy(graph));
  CHECK(cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a captured stream runs nothing until its graph is launched, forks and joins by events") {
  Program program;
  Stream origin, side;
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 8));
  OK(cuMemsetD32_v2(memory, 0, 2));
  CUevent fork, join;
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status;
  OK(cuStreamIsCapturing(origin, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamIsCapturing(side, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  OK(program.launch(origin, 1'000'000));
  OK(cuEventRecord(fork, origin));
  OK(cuStreamWaitEvent(side, fork, 0));
  OK(cuStreamIsCapturing(side, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(program.launch(side, 1'000'000));
  OK(cuMemsetD32Async(memory, 6, 1, side));
  OK(program.launch(origin, 1'000'000));
  OK(cuEventRecord(join, side));
  OK(cuStreamWaitEvent(origin, join, 0));
  OK(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, origin));
  cuuint64_t id = 0;
  CUgraph so_far = nullptr, graph = nullptr;
  const CUgraphNode* after = nullptr;
  size_t count = 0;
  OK(cuStreamGetCaptureInfo_v2(origin, &status, &id, &so_far, &after, &count));
  CHECK(count == 1);
  CHECK(nodes_of(so_far) == 5);
  CHECK(cuEventQuery(join) == CUDA_ERROR_CAPTURED_EVENT);
  OK(cuStreamIsCapturing(origin, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(cuStreamEndCapture(origin, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(graph == nullptr);

  // Once more without the forbidden question.
  OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(program.launch(origin, 1'000'000));
  OK(cuEventRecord(fork, origin));
  OK(cuStreamWaitEvent(side, fork, 0));
  OK(program.launch(side, 1'000'000));
  OK(cuMemsetD32Async(memory, 6, 1, side));
  OK(program.launch(origin, 1'000'000));
  OK(cuEventRecord(join, side));
  OK(cuStreamWaitEvent(origin, join, 0));
  OK(cuMemcpyDtoDAsync_v2(memory + 4, memory, 4, origin));
  OK(cuStreamEndCapture(origin, &graph));
  CHECK(nodes_of(graph) == 5);
  OK(cuStreamIsCapturing(side, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  unsigned got[2];
  OK(cuMemcpyDtoH_v2(got, memory, 8));
  CHECK(got[1] == 0);
  CUgraphExec exec;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const float ms = launch_ms(program, exec, origin);
  CHECK(ms >= 2.0f);
  CHECK(ms < 3.0f);
  OK(cuMemcpyDtoH_v2(got, memory, 8));
  CHECK(got[1] == 6);
}

TEST_CASE(
    "what may not be done during a capture fails with the driver's error and spoils the capture") {
  Program program;
  Stream blocking(CU_STREAM_DEFAULT), other;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status;
  const auto begin = [&](CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    OK(cuStreamBeginCapture_v2(blocking, mode));
  };
  const auto spoilt = [&] {
    CHECK(cuStreamEndCapture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  };
  CHECK(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(blocking, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  begin();
  CHECK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL) ==
        CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuStreamSynchronize(blocking) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(program.launch(blocking, 1) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  spoilt();
  begin();
  CHECK(cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  OK(cuStreamIsCapturing(blocking, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(program.launch(nullptr, 1) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  spoilt();
  CUdeviceptr memory = 0;
  begin();
  std::thread([&] {
    cuCtxSetCurrent(program.context);
    CHECK(cuMemAlloc_v2(&memory, 4) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  spoilt();
  begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  std::thread([&] {
    cuCtxSetCurrent(program.context);
    CHECK(cuMemAlloc_v2(&memory, 4) == CUDA_SUCCESS);
  }).join();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(cuMemAlloc_v2(&memory, 4) == CUDA_SUCCESS);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(cuMemAlloc_v2(&memory, 4) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  spoilt();
  CUevent event;
  OK(cuEventCreate(&event, 0));
  OK(cuEventRecord(event, other));
  begin();
  CHECK(cuStreamWaitEvent(blocking, event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  spoilt();
  begin();
  OK(program.launch(blocking, 1));
  OK(cuEventRecord(event, blocking));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(program.launch(other, 1));
  CHECK(cuStreamEndCapture(other, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  spoilt();
  begin();
  OK(program.launch(blocking, 1));
  OK(cuEventRecord(event, blocking));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(program.launch(other, 1));
  CHECK(cuStreamEndCapture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  begin();
  std::thread([&] {
    cuCtxSetCurrent(program.context);
    CUgraph mine;
    CHECK(cuStreamEndCapture(blocking, &mine) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  OK(cuStreamEndCapture(blocking, &graph));
  CHECK(nodes_of(graph) == 0);
  CUgraphExec empty;
  OK(cuGraphInstantiateWithFlags(&empty, graph, 0));
  OK(cuGraphLaunch(empty, other));
  OK(cuCtxSynchronize());
}

TEST_CASE("graphs inside graphs, events in graphs, and memory that a capture allocates") {
  Program program;
  Stream stream;
  CUgraph inner, outer;
  OK(cuGraphCreate(&inner, 0));
  OK(cuGraphCreate(&outer, 0));
  unsigned long long ns = 1'000'000;
  void* arguments[] = {&ns};
  const auto kernel = kernel_node(program.spin, arguments);
  CUgraphNode inside, child, record, node;
  OK(cuGraphAddKernelNode_v2(&inside, inner, nullptr, 0, &kernel));
  OK(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, inner));
  CUevent event;
  OK(cuEventCreate(&event, 0));
  OK(cuGraphAddEventRecordNode(&record, outer, &child, 1, event));
  CUgraphNodeParams p = {};
  p.type = CU_GRAPH_NODE_TYPE_KERNEL;
  p.kernel.func = program.spin;
  p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = 1;
  p.kernel.blockDimX = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
  p.kernel.kernelParams = arguments;
  OK(cuGraphAddNode_v2(&node, outer, &record, nullptr, 1, &p));
  CUgraphExec exec;
  OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
  CHECK(launch_ms(program, exec, stream) >= 2.0f);
  CHECK(cuEventQuery(event) == CUDA_SUCCESS);
  ns = 4'000'000;
  OK(cuGraphKernelNodeSetParams_v2(node, &kernel));
  CUgraphExecUpdateResultInfo info;
  OK(cuGraphExecUpdate_v2(exec, outer, &info));
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  CHECK(launch_ms(program, exec, stream) >= 5.0f);

  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, 4096, stream));
  OK(cuMemsetD8Async(memory, 1, 4096, stream));
  OK(cuMemFreeAsync(memory, stream));
  OK(cuGraphLaunch(exec, stream));
  CUgraph captured;
  OK(cuStreamEndCapture(stream, &captured));
  CHECK(nodes_of(captured) == 4);
  CUgraphExec all;
  OK(cuGraphInstantiateWithFlags(&all, captured, 0));
  OK(cuGraphLaunch(all, stream));
  OK(cuGraphUpload(all, stream));
  OK(cuStreamSynchronize(stream));
}
