// Stream capture: the calls, and the rules about what may not be called meanwhile.
#include <algorithm>
#include <set>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"

namespace simgpu::driver {

CUresult invalidate(Capture& capture, CUresult error) {
  capture.invalidated = true;
  return error;
}

CUresult refuse_unsafe_call(State& state) {
  std::erase_if(state.captures, [](const auto& capture) { return capture.expired(); });
  if (state.captures.empty()) return CUDA_SUCCESS;
  const ThreadState& thread = thread_state();
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult refused = CUDA_SUCCESS;
  for (const auto& weak : state.captures) {
    const auto capture = weak.lock();
    if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool own = capture->thread == thread.id;
    const bool global = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                        thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || global) refused = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return refused;
}

CUresult refuse_legacy_in_capture(State& state, const Stream& stream, bool invalidates) {
  if (stream.kind != StreamKind::kLegacy || state.captures.empty()) return CUDA_SUCCESS;
  const auto context = stream.context.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  for (const auto& other : context->streams) {
    if (!other->capture || !other->is_blocking()) continue;
    if (invalidates) invalidate(*other->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

CUresult refuse_context_wait(State& state, const Context& context) {
  if (state.captures.empty()) return CUDA_SUCCESS;
  for (const auto& stream : context.streams) {
    if (stream->capture) {
      return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace simgpu::driver

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

bool is_ancestor_or_self(const GraphNode* node, const std::vector<GraphNode*>& of) {
  std::vector<GraphNode*> open = of;
  std::set<const GraphNode*> seen;
  while (!open.empty()) {
    const GraphNode* at = open.back();
    open.pop_back();
    if (at == node) return true;
    if (!seen.insert(at).second) continue;
    for (GraphNode* dependency : at->dependencies) open.push_back(dependency);
  }
  return false;
}

// Ends a stream's part in a capture.
void leave(Stream& stream) {
  stream.capture.reset();
  stream.frontier.clear();
}

CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
                       std::vector<GraphNode*> frontier, Call& call) {
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if ((*stream)->kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return kWrong;
  if ((*stream)->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = call.state.next_id++;
  capture->graph_is_given = graph != nullptr;
  capture->graph = graph ? graph : create_graph(call.state);
  capture->origin = *stream;
  capture->context = (*stream)->context;
  capture->streams = {*stream};
  capture->mode = mode;
  capture->thread = thread_state().id;
  (*stream)->capture = capture;
  (*stream)->frontier = std::move(frontier);
  call.state.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult capture_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                      CUgraph* graph, const CUgraphNode** dependencies,
                      const CUgraphEdgeData** edges, size_t* count) {
  if (status == nullptr) return kWrong;
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if (const CUresult refused = refuse_legacy_in_capture(call.state, **stream, false))
    return refused;
  const auto& capture = (*stream)->capture;
  if (!capture) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  *status =
      capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture->invalidated) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = to_handle<CUgraph>(capture->graph->handle);
  capture->reported.clear();
  for (const GraphNode* node : (*stream)->frontier) {
    capture->reported.push_back(to_handle<CUgraphNode>(node->handle));
  }
  capture->reported_edges.assign(capture->reported.size(), CUgraphEdgeData{});
  if (dependencies != nullptr) *dependencies = capture->reported.data();
  if (edges != nullptr) *edges = capture->reported_edges.data();
  if (count != nullptr) *count = capture->reported.size();
  return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream handle, CUgraphNode* dependencies, size_t count,
                             unsigned flags) {
  if ((dependencies == nullptr && count > 0) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    return kWrong;
  }
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if (!(*stream)->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if ((*stream)->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphNode*> nodes;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) nodes = (*stream)->frontier;
  for (size_t i = 0; i < count; ++i) {
    const auto node = call.state.nodes.find(dependencies[i]);
    if (!node || node->graph != (*stream)->capture->graph.get()) return kWrong;
    if (std::ranges::find(nodes, node.get()) == nodes.end()) nodes.push_back(node.get());
  }
  (*stream)->frontier = std::move(nodes);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuStreamBeginCapture(CUstream stream) {
  Call call;
  if (!call) return call.error;
  return begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {}, call);
}

SIM_API cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  Call call;
  if (!call) return call.error;
  return begin_capture(stream, mode, nullptr, {}, call);
}

SIM_API cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                    const CUgraphEdgeData* edges, size_t count,
                                    CUstreamCaptureMode mode) {
  (void)edges;
  Call call;
  if (!call) return call.error;
  const auto given = call.state.graphs.find(graph);
  if (!given || (dependencies == nullptr && count > 0)) return kWrong;
  std::vector<GraphNode*> frontier;
  for (size_t i = 0; i < count; ++i) {
    const auto node = call.state.nodes.find(dependencies[i]);
    if (!node || node->graph != given.get()) return kWrong;
    frontier.push_back(node.get());
  }
  return begin_capture(stream, mode, given, std::move(frontier), call);
}

SIM_API cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  if (graph == nullptr) return kWrong;
  Call call;
  if (!call) return call.error;
  *graph = nullptr;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const std::shared_ptr<Capture> capture = (*stream)->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin.lock() != *stream) {
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_state().id) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  for (const auto& weak : capture->streams) {
    const auto other = weak.lock();
    if (!other || other == *stream || other->capture != capture) continue;
    const bool joined = std::ranges::all_of(other->frontier, [&](const GraphNode* node) {
      return is_ancestor_or_self(node, (*stream)->frontier);
    });
    if (!joined && result == CUDA_SUCCESS) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  for (const auto& weak : capture->streams) {
    if (const auto other = weak.lock(); other && other->capture == capture) leave(*other);
  }
  leave(**stream);
  std::erase_if(call.state.captures, [&](const auto& open) { return open.lock() == capture; });
  if (result == CUDA_SUCCESS) {
    *graph = to_handle<CUgraph>(capture->graph->handle);
  } else if (!capture->graph_is_given) {
    forget_graph(call.state, capture->graph);
  }
  return result;
}

SIM_API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return capture_info(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

SIM_API cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return capture_info(handle, status, id, nullptr, nullptr, nullptr, nullptr);
}

SIM_API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                  CUgraph* graph, const CUgraphNode** dependencies, size_t* count) {
  return capture_info(handle, status, id, graph, dependencies, nullptr, count);
}

SIM_API cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                  CUgraph* graph, const CUgraphNode** dependencies,
                                  const CUgraphEdgeData** edges, size_t* count) {
  return capture_info(handle, status, id, graph, dependencies, edges, count);
}

SIM_API cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count,
                                          unsigned flags) {
  return update_dependencies(stream, dependencies, count, flags);
}

SIM_API cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies,
                                             const CUgraphEdgeData* edges, size_t count,
                                             unsigned flags) {
  (void)edges;
  return update_dependencies(stream, dependencies, count, flags);
}

SIM_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (const CUresult refused = refuse_call()) return refused;
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return kWrong;
  }
  std::swap(thread_state().capture_mode, *mode);
  return CUDA_SUCCESS;
}
