// Events. Their times are the device's own, in model time, exact however late anybody looks.
#include <algorithm>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult record(CUevent event_handle, CUstream handle, unsigned flags) {
  Call call;
  if (!call) return call.error;
  if (flags > CU_EVENT_RECORD_EXTERNAL) return kWrong;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const auto event = call.state.events.find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context.lock() != (*stream)->context.lock()) return CUDA_ERROR_INVALID_HANDLE;
  if ((*stream)->capture && flags != CU_EVENT_RECORD_EXTERNAL) {
    if ((*stream)->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->capture = (*stream)->capture;
    event->captured = (*stream)->frontier;
    return CUDA_SUCCESS;
  }
  return enqueue(call, *stream, RecordWork{event});
}

CUresult destroy(CUevent handle) {
  Call call;
  if (!call) return call.error;
  if (!call.state.events.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
  call.state.events.remove(reinterpret_cast<uint64_t>(handle));
  return CUDA_SUCCESS;
}

// Recorded in a capture: there is nothing to ask about.
CUresult refuse_captured(Event& event) {
  return event.capture ? invalidate(*event.capture, CUDA_ERROR_CAPTURED_EVENT) : CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Call call;
  if (!call) return call.error;
  if (milliseconds == nullptr) return kWrong;
  const auto start = call.state.events.find(start_handle);
  const auto end = call.state.events.find(end_handle);
  if (!start || !end || start->context.lock() != end->context.lock())
    return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refuse_captured(*start)) return refused;
  if (const CUresult refused = refuse_captured(*end)) return refused;
  if (!start->timed() || !end->timed() || !start->recording || !end->recording) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  // Pairs with the release of the action that set the time.
  const auto known = [&] {
    return start->recording->complete.load(std::memory_order_acquire) &&
           end->recording->complete.load(std::memory_order_acquire);
  };
  if (!known()) call.state.effects->pump();
  const CUresult failed = call.state.effects->failure(start->recording->point.stream.context);
  if (failed != CUDA_SUCCESS) return failed;
  if (!known()) return CUDA_ERROR_NOT_READY;
  const auto from = static_cast<double>(start->recording->at_ns.load(std::memory_order_relaxed));
  const auto to = static_cast<double>(end->recording->at_ns.load(std::memory_order_relaxed));
  *milliseconds = static_cast<float>((to - from) / 1e6);
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuEventCreate(CUevent* out, unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr || (flags & ~kEventFlags) != 0) return kWrong;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) return kWrong;
  auto event = std::make_shared<Event>();
  event->handle = call.state.new_handle();
  event->context = call.context;
  event->flags = flags;
  call.state.events.add(event);
  *out = to_handle<CUevent>(event->handle);
  return CUDA_SUCCESS;
}

SIM_API cuEventDestroy(CUevent event) { return destroy(event); }
SIM_API cuEventDestroy_v2(CUevent event) { return destroy(event); }
SIM_API cuEventRecord(CUevent event, CUstream stream) { return record(event, stream, 0); }
SIM_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return record(event, stream, flags);
}

SIM_API cuEventQuery(CUevent handle) {
  Call call(Call::kUnsafeInCapture);
  if (!call) return call.error;
  const auto event = call.state.events.find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refuse_captured(*event)) return refused;
  const auto recording = event->recording;
  if (!recording) return CUDA_SUCCESS;
  call.lock.unlock();
  if (recording->complete.load(std::memory_order_acquire)) {
    // Its effects were applied in order, so all before it are too.
    return CUDA_SUCCESS;
  }
  if (!call.state.effects->is_complete(recording->point)) return CUDA_ERROR_NOT_READY;
  return call.state.effects->failure(recording->point.stream.context);
}

SIM_API cuEventSynchronize(CUevent handle) {
  Call call(Call::kUnsafeInCapture);
  if (!call) return call.error;
  const auto event = call.state.events.find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult refused = refuse_captured(*event)) return refused;
  const auto recording = event->recording;
  if (!recording || recording->complete.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  return call.wait(recording->point);
}

SIM_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(milliseconds, start, end);
}
SIM_API cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return elapsed(milliseconds, start, end);
}
