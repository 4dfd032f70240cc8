// Streams: made, destroyed, waited for, captured; memory operations in a stream.
#include "shim/captures.h"
#include "shim/residence/live_contexts.h"
#include "shim/submit.h"

using namespace lull::shim;

namespace {

template <typename Call>
CUresult create_stream(CUstream* stream, unsigned int flags, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS && stream != nullptr && shim_enabled()) {
    stream_created(*stream, (flags & CU_STREAM_NON_BLOCKING) == 0);
    stream_lives(*stream);
  }
  return result;
}

template <typename Call>
CUresult destroy_stream(CUstream stream, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0 || !shim_enabled()) return forward(thread, call);
  stream_destroyed(stream);
  stream_ends(stream);
  const bool captures = begins_in_stream(stream);
  const CUresult result = forward(thread, call);
  if (captures) stream_with_capture_gone(stream, result == CUDA_SUCCESS);
  return result;
}

// Work of no length of its own, so neither held nor counted; what follows does not follow on.
template <typename Call>
CUresult memory_operation(Call call) {
  if (thread_state.depth == 0) break_chain(thread_state);
  return forward_use(thread_state, call);
}

// The count goes up before the capture exists and down after it is over: it may read high.
template <typename Call>
CUresult begin_capture(uintptr_t stream, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  // Streams of a program that captures cannot be looked at: while memory moves none begins.
  const MemoryUse use(thread);
  capture_begins();
  const CUresult result = forward(thread, call);
  capture_began(thread, stream, result == CUDA_SUCCESS);
  return result;
}

template <typename Call>
CUresult end_capture(uintptr_t stream, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const bool before = is_capturing(stream);
  const CUresult result = forward(thread, call);
  // Ending also ends a capture that was invalidated; a wrong thread or stream ends nothing.
  if (before && (result == CUDA_SUCCESS || !is_capturing(stream))) capture_ended(thread, stream);
  return result;
}

template <typename Call>
CUresult synchronise_stream(uintptr_t stream, Call call) {
  return synchronise(
      [&](ThreadState& thread, SeenSequences& seen) { remember_stream(thread, stream, seen); },
      call);
}

template <typename Call>
CUresult synchronise_context(Call call) {
  return synchronise(
      [&](ThreadState&, SeenSequences& seen) {
        const uint32_t device = current_device();
        if (device != kNoDevice) remember_device(device, seen);
      },
      call);
}

}  // namespace

LULL_ENTRY(cuStreamCreate)(CUstream* stream, unsigned int flags) {
  return create_stream(stream, flags, [&] { return driver().cuStreamCreate(stream, flags); });
}
LULL_ENTRY(cuStreamCreateWithPriority)(CUstream* stream, unsigned int flags, int priority) {
  return create_stream(stream, flags, [&] {
    return driver().cuStreamCreateWithPriority(stream, flags, priority);
  });
}
LULL_ENTRY(cuGreenCtxStreamCreate)
(CUstream* stream, CUgreenCtx context, unsigned int flags, int priority) {
  return create_stream(stream, flags, [&] {
    return driver().cuGreenCtxStreamCreate(stream, context, flags, priority);
  });
}
LULL_ENTRY(cuStreamDestroy)(CUstream stream) {
  return destroy_stream(stream, [&] { return driver().cuStreamDestroy(stream); });
}
LULL_ENTRY(cuStreamDestroy_v2)(CUstream stream) {
  return destroy_stream(stream, [&] { return driver().cuStreamDestroy_v2(stream); });
}
LULL_ENTRY(cuStreamBeginCapture)(CUstream stream) {
  return begin_capture(normalise(stream, DefaultStream::kLegacy),
                       [&] { return driver().cuStreamBeginCapture(stream); });
}
LULL_ENTRY(cuStreamBeginCapture_ptsz)(CUstream stream) {
  return begin_capture(normalise(stream, DefaultStream::kPerThread),
                       [&] { return driver().cuStreamBeginCapture_ptsz(stream); });
}

#define LULL_STREAM(suffix, variant)                                                              \
  LULL_ENTRY(cuStreamSynchronize##suffix)(CUstream stream) {                                      \
    return synchronise_stream(normalise(stream, variant), [&] {                                   \
      return driver().cuStreamSynchronize##suffix(stream);                                        \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuStreamQuery##suffix)(CUstream stream) {                                            \
    return synchronise_stream(normalise(stream, variant),                                         \
                              [&] { return driver().cuStreamQuery##suffix(stream); });            \
  }                                                                                               \
  LULL_ENTRY(cuStreamBeginCapture_v2##suffix)(CUstream stream, CUstreamCaptureMode mode) {        \
    return begin_capture(normalise(stream, variant), [&] {                                        \
      return driver().cuStreamBeginCapture_v2##suffix(stream, mode);                              \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuStreamBeginCaptureToGraph##suffix)                                                 \
  (CUstream stream, CUgraph graph, const CUgraphNode* dependencies,                               \
   const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {                        \
    return begin_capture(normalise(stream, variant), [&] {                                        \
      return driver().cuStreamBeginCaptureToGraph##suffix(stream, graph, dependencies, edges,     \
                                                          count, mode);                           \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuStreamEndCapture##suffix)(CUstream stream, CUgraph * graph) {                      \
    return end_capture(normalise(stream, variant), [&] {                                          \
      return driver().cuStreamEndCapture##suffix(stream, graph);                                  \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuStreamBatchMemOp##suffix)                                                          \
  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* params, unsigned int flags) {   \
    return memory_operation([&] {                                                                 \
      return driver().cuStreamBatchMemOp##suffix(stream, count, params, flags);                   \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuStreamBatchMemOp_v2##suffix)                                                       \
  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams* params, unsigned int flags) {   \
    return memory_operation([&] {                                                                 \
      return driver().cuStreamBatchMemOp_v2##suffix(stream, count, params, flags);                \
    });                                                                                           \
  }                                                                                               \
  LULL_VALUES(cuStreamWaitValue, suffix)                                                          \
  LULL_VALUES(cuStreamWriteValue, suffix)
#define LULL_VALUES(base, suffix)                                                                 \
  LULL_VALUE(base##32##suffix, cuuint32_t)                                                        \
  LULL_VALUE(base##32_v2##suffix, cuuint32_t)                                                     \
  LULL_VALUE(base##64##suffix, cuuint64_t)                                                        \
  LULL_VALUE(base##64_v2##suffix, cuuint64_t)
#define LULL_VALUE(name, Value)                                                                   \
  LULL_ENTRY(name)(CUstream stream, CUdeviceptr address, Value value, unsigned int flags) {       \
    return memory_operation([&] { return driver().name(stream, address, value, flags); });        \
  }
LULL_STREAM(, DefaultStream::kLegacy)
LULL_STREAM(_ptsz, DefaultStream::kPerThread)
#undef LULL_STREAM
#undef LULL_VALUES
#undef LULL_VALUE

LULL_ENTRY(cuCtxSynchronize)() {
  return synchronise_context([&] { return driver().cuCtxSynchronize(); });
}
LULL_ENTRY(cuCtxSynchronize_v2)(CUcontext context) {
  CUcontext current = nullptr;
  if (thread_state.depth == 0) {
    OwnCall own(thread_state);
    driver().cuCtxGetCurrent(&current);
  }
  // Of another context than the current one, we do not know the device.
  if (context != current) {
    return forward(thread_state, [&] { return driver().cuCtxSynchronize_v2(context); });
  }
  return synchronise_context([&] { return driver().cuCtxSynchronize_v2(context); });
}
