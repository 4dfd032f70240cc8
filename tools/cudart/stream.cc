// Streams, events and stream capture.
#include <cstring>

#include "tools/cudart/runtime.h"

using namespace lull::cudart;

LULL_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return with_context([&](const Driver& d) { return d.cuStreamCreate(stream, flags); });
}

LULL_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

LULL_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                  int priority) {
  return with_context(
      [&](const Driver& d) { return d.cuStreamCreateWithPriority(stream, flags, priority); });
}

LULL_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return with_context([&](const Driver& d) { return d.cuStreamDestroy(stream); });
}

LULL_TWIN(cudaStreamSynchronize, ptsz, (stream), cudaStream_t stream) {
  return with_context([&](const Driver& d) { return d.cuStreamSynchronize[twin](stream); });
}

LULL_TWIN(cudaStreamQuery, ptsz, (stream), cudaStream_t stream) {
  return with_context([&](const Driver& d) { return d.cuStreamQuery[twin](stream); });
}

LULL_TWIN(cudaStreamWaitEvent, ptsz, (stream, event, flags), cudaStream_t stream, cudaEvent_t event,
          unsigned flags) {
  return with_context(
      [&](const Driver& d) { return d.cuStreamWaitEvent[twin](stream, event, flags); });
}

LULL_TWIN(cudaStreamGetFlags, ptsz, (stream, flags), cudaStream_t stream, unsigned* flags) {
  return with_context([&](const Driver& d) { return d.cuStreamGetFlags[twin](stream, flags); });
}

LULL_TWIN(cudaStreamGetPriority, ptsz, (stream, priority), cudaStream_t stream, int* priority) {
  return with_context(
      [&](const Driver& d) { return d.cuStreamGetPriority[twin](stream, priority); });
}

LULL_TWIN(cudaStreamGetId, ptsz, (stream, id), cudaStream_t stream, unsigned long long* id) {
  return with_context([&](const Driver& d) { return d.cuStreamGetId[twin](stream, id); });
}

LULL_TWIN(cudaStreamGetDevice, ptsz, (stream, device), cudaStream_t stream, int* device) {
  return with_context([&](const Driver& d) { return d.cuStreamGetDevice[twin](stream, device); });
}

LULL_TWIN(cudaStreamAddCallback, ptsz, (stream, callback, data, flags), cudaStream_t stream,
          cudaStreamCallback_t callback, void* data, unsigned flags) {
  return with_context([&](const Driver& d) {
    // Runtime and driver number their errors alike, so the callback takes either.
    return d.cuStreamAddCallback[twin](stream, reinterpret_cast<CUstreamCallback>(callback), data,
                                       flags);
  });
}

LULL_TWIN(cudaStreamAttachMemAsync, ptsz, (stream, pointer, bytes, flags), cudaStream_t stream,
          void* pointer, size_t bytes, unsigned flags) {
  return with_context([&](const Driver& d) {
    return d.cuStreamAttachMemAsync[twin](stream, reinterpret_cast<CUdeviceptr>(pointer), bytes,
                                          flags);
  });
}

LULL_TWIN(cudaStreamBeginCapture, ptsz, (stream, mode), cudaStream_t stream,
          cudaStreamCaptureMode mode) {
  return with_context([&](const Driver& d) {
    return d.cuStreamBeginCapture[twin](stream, static_cast<CUstreamCaptureMode>(mode));
  });
}

LULL_TWIN(cudaStreamBeginCaptureToGraph, ptsz, (stream, graph, dependencies, edges, count, mode),
          cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
          const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode) {
  static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
  return with_context([&](const Driver& d) {
    return d.cuStreamBeginCaptureToGraph[twin](stream, graph, dependencies,
                                               reinterpret_cast<const CUgraphEdgeData*>(edges),
                                               count, static_cast<CUstreamCaptureMode>(mode));
  });
}

LULL_TWIN(cudaStreamEndCapture, ptsz, (stream, graph), cudaStream_t stream, cudaGraph_t* graph) {
  return with_context([&](const Driver& d) { return d.cuStreamEndCapture[twin](stream, graph); });
}

LULL_TWIN(cudaStreamIsCapturing, ptsz, (stream, status), cudaStream_t stream,
          cudaStreamCaptureStatus* status) {
  return with_context([&](const Driver& d) {
    return d.cuStreamIsCapturing[twin](stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}

LULL_TWIN(cudaStreamGetCaptureInfo, ptsz, (stream, status, id, graph, dependencies, edges, count),
          cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
          cudaGraph_t* graph, const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
          size_t* count) {
  return with_context([&](const Driver& d) {
    return d.cuStreamGetCaptureInfo[twin](stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                          reinterpret_cast<cuuint64_t*>(id), graph, dependencies,
                                          reinterpret_cast<const CUgraphEdgeData**>(edges), count);
  });
}

LULL_TWIN(cudaStreamUpdateCaptureDependencies, ptsz, (stream, dependencies, edges, count, flags),
          cudaStream_t stream, cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
          size_t count, unsigned flags) {
  return with_context([&](const Driver& d) {
    return d.cuStreamUpdateCaptureDependencies[twin](
        stream, dependencies, reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
  });
}

LULL_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return with_driver([&](const Driver& d) {
    return d.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

LULL_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return with_context([&](const Driver& d) { return d.cuEventCreate(event, flags); });
}

LULL_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

LULL_TWIN(cudaEventRecord, ptsz, (event, stream), cudaEvent_t event, cudaStream_t stream) {
  return with_context([&](const Driver& d) { return d.cuEventRecord[twin](event, stream); });
}

LULL_TWIN(cudaEventRecordWithFlags, ptsz, (event, stream, flags), cudaEvent_t event,
          cudaStream_t stream, unsigned flags) {
  return with_context(
      [&](const Driver& d) { return d.cuEventRecordWithFlags[twin](event, stream, flags); });
}

LULL_API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_context([&](const Driver& d) { return d.cuEventQuery(event); });
}

LULL_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return with_context([&](const Driver& d) { return d.cuEventSynchronize(event); });
}

LULL_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return with_context([&](const Driver& d) { return d.cuEventDestroy(event); });
}

LULL_API cudaError_t cudaEventElapsedTime(float* elapsed_ms, cudaEvent_t start, cudaEvent_t end) {
  return with_context(
      [&](const Driver& d) { return d.cuEventElapsedTime(elapsed_ms, start, end); });
}

LULL_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));
  return with_context([&](const Driver& d) {
    return d.cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event);
  });
}

LULL_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  CUipcEventHandle driver_handle;
  std::memcpy(&driver_handle, &handle, sizeof driver_handle);
  return with_context(
      [&](const Driver& d) { return d.cuIpcOpenEventHandle(event, driver_handle); });
}
