// Streams: what they are, when they are done, and values written and awaited in their order.
#include <algorithm>
#include <cstdlib>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
constexpr int kGreatestPriority = -5;

// What has to be complete for the stream to be done. The legacy stream stands for the blocking
// streams of its context too.
std::vector<simgpu::OpPoint> points_of(const Stream& stream) {
  std::vector<simgpu::OpPoint> points{stream.point()};
  if (stream.kind != StreamKind::kLegacy) return points;
  if (const auto context = stream.context.lock()) {
    for (const auto& other : context->streams) {
      if (other->is_blocking()) points.push_back(other->point());
    }
  }
  return points;
}

// NVIDIA does not document whether a query of the legacy stream covers the blocking streams.
bool legacy_query_is_narrow() {
  static const char* value = std::getenv("SIMGPU_NARROW_LEGACY_QUERY");
  return value != nullptr && value[0] == '1';
}

CUresult refuse_asking(State& state, const Stream& stream) {
  if (stream.capture) return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return refuse_legacy_in_capture(state, stream, /*invalidates=*/true);
}

CUresult create(CUstream* out, unsigned flags, int priority) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return kWrong;
  const auto stream = call.state.create_stream(*call.context, StreamKind::kCreated, flags,
                                               std::clamp(priority, kGreatestPriority, 0));
  if (!stream) return stream.error();
  call.state.streams.add(*stream);
  *out = to_handle<CUstream>((*stream)->handle);
  return CUDA_SUCCESS;
}

CUresult destroy(CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.state.streams.find(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) {
    invalidate(*stream->capture, CUDA_SUCCESS);
    stream->capture.reset();
  }
  call.state.retire_stream(stream);
  return CUDA_SUCCESS;
}

template <class Body>
CUresult with_stream(CUstream handle, const void* out, Body body) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  const auto stream = call.stream(handle);
  return stream ? body(call.state, **stream) : stream.error();
}

CUresult values(CUstream handle, unsigned count, const CUstreamBatchMemOpParams* operations,
                unsigned flags) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  auto work = make_value_work(call.state, count, operations, flags);
  return work ? enqueue(call, *stream, std::move(*work)) : work.error();
}

CUresult value(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t wanted,
               unsigned flags, unsigned known_flags) {
  if (const CUresult refused = refuse_call()) return refused;
  if ((flags & ~known_flags) != 0) return kWrong;
  CUstreamBatchMemOpParams operation = {};
  operation.operation = type;
  operation.writeValue.address = address;
  operation.writeValue.value64 = wanted;
  operation.writeValue.flags = flags;
  return values(stream, 1, &operation, 0);
}

constexpr unsigned kWaitFlags = 3u | CU_STREAM_WAIT_VALUE_FLUSH;
constexpr unsigned kWriteFlags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

}  // namespace

SIM_API cuStreamCreate(CUstream* stream, unsigned flags) { return create(stream, flags, 0); }
SIM_API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return create(stream, flags, priority);
}
SIM_API cuStreamDestroy(CUstream stream) { return destroy(stream); }
SIM_API cuStreamDestroy_v2(CUstream stream) { return destroy(stream); }

SIM_API cuStreamQuery(CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if (const CUresult refused = refuse_asking(call.state, **stream)) return refused;
  const auto points =
      legacy_query_is_narrow() ? std::vector{(*stream)->point()} : points_of(**stream);
  if (!call.state.device->are_complete(points)) return CUDA_ERROR_NOT_READY;
  call.state.effects->pump();
  return call.state.effects->failure((*stream)->lane.context);
}

SIM_API cuStreamSynchronize(CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if (const CUresult refused = refuse_asking(call.state, **stream)) return refused;
  return call.wait(points_of(**stream));
}

SIM_API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  Call call;
  if (!call) return call.error;
  if (flags > CU_EVENT_WAIT_EXTERNAL) return kWrong;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const auto event = call.state.events.find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Capture>& own = (*stream)->capture;
  if (const std::shared_ptr<Capture> capture = event->capture) {
    const bool open = std::ranges::any_of(
        call.state.captures, [&](const auto& other) { return other.lock() == capture; });
    if (!open) return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (own && own != capture) {
      invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
      return invalidate(*own, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if ((*stream)->kind == StreamKind::kLegacy) {
      return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (!own) {
      (*stream)->capture = capture;
      (*stream)->frontier.clear();
      capture->streams.push_back(*stream);
    }
    for (GraphNode* node : event->captured) {
      auto& frontier = (*stream)->frontier;
      if (std::ranges::find(frontier, node) == frontier.end()) frontier.push_back(node);
    }
    return CUDA_SUCCESS;
  }
  if (own) {
    if (own->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags == CU_EVENT_WAIT_EXTERNAL) return enqueue(call, *stream, WaitWork{event});
    if (!event->recording) return CUDA_SUCCESS;
    return invalidate(*own, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (const CUresult refused = refuse_legacy_in_capture(call.state, **stream, true)) return refused;
  return event->recording ? enqueue(call, *stream, WaitWork{event}) : CUDA_SUCCESS;
}

SIM_API cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return with_stream(handle, out, [&](State&, Stream& stream) {
    const auto context = stream.context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = to_handle<CUcontext>(context->handle);
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamGetCtx_v2(CUstream handle, CUcontext* out, CUgreenCtx* green) {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, out);
}

SIM_API cuStreamGetDevice(CUstream handle, CUdevice* out) {
  return with_stream(handle, out, [&](State&, Stream& stream) {
    const auto context = stream.context.lock();
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = context->device;
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamGetFlags(CUstream handle, unsigned* out) {
  return with_stream(handle, out, [&](State&, Stream& stream) {
    *out = stream.flags;
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamGetPriority(CUstream handle, int* out) {
  return with_stream(handle, out, [&](State&, Stream& stream) {
    *out = stream.priority;
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamGetId(CUstream handle, unsigned long long* out) {
  return with_stream(handle, out, [&](State&, Stream& stream) {
    *out = stream.id;
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* out) {
  return with_stream(handle, out, [&](State&, Stream& stream) {
    *out = {};
    const auto set = stream.attributes.find(id);
    if (set != stream.attributes.end()) {
      *out = set->second;
    } else if (id == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
      out->syncPolicy = CU_SYNC_POLICY_AUTO;
    } else if (id == CU_STREAM_ATTRIBUTE_PRIORITY) {
      out->priority = stream.priority;
    } else if (id != CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
               id != CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN &&
               id != CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
      return kWrong;
    }
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamSetAttribute(CUstream handle, CUstreamAttrID id,
                             const CUstreamAttrValue* value_in) {
  return with_stream(handle, value_in, [&](State&, Stream& stream) {
    if (id != CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
        id != CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY && id != CU_STREAM_ATTRIBUTE_PRIORITY &&
        id != CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN &&
        id != CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
      return kWrong;
    }
    stream.attributes[id] = *value_in;
    if (id == CU_STREAM_ATTRIBUTE_PRIORITY) stream.priority = value_in->priority;
    return CUDA_SUCCESS;
  });
}

SIM_API cuStreamCopyAttributes(CUstream target_handle, CUstream source_handle) {
  Call call;
  if (!call) return call.error;
  const auto target = call.stream(target_handle);
  const auto source = call.stream(source_handle);
  if (!target) return target.error();
  if (!source) return source.error();
  (*target)->attributes = (*source)->attributes;
  return CUDA_SUCCESS;
}

// Managed memory is plain memory here: it is attached wherever it is used.
SIM_API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t, unsigned) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const auto range = call.state.memory.find(address);
  if (!range || range->kind != MemoryKind::kManaged) return kWrong;
  return enqueue(call, *stream, EmptyWork{});
}

SIM_API cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t wanted,
                             unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, wanted, flags, kWriteFlags);
}
SIM_API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t wanted,
                                unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, wanted, flags, kWriteFlags);
}
SIM_API cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t wanted,
                             unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, wanted, flags, kWriteFlags);
}
SIM_API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t wanted,
                                unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, wanted, flags, kWriteFlags);
}
SIM_API cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t wanted,
                            unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, wanted, flags, kWaitFlags);
}
SIM_API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t wanted,
                               unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, wanted, flags, kWaitFlags);
}
SIM_API cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t wanted,
                            unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, wanted, flags, kWaitFlags);
}
SIM_API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t wanted,
                               unsigned flags) {
  return value(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, wanted, flags, kWaitFlags);
}
SIM_API cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                           unsigned flags) {
  return values(stream, count, operations, flags);
}
SIM_API cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                              unsigned flags) {
  return values(stream, count, operations, flags);
}
