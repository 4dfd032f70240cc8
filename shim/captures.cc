#include "shim/captures.h"

#include "shim/connection.h"
#include "shim/stream_slots.h"
#include "shim/system.h"

namespace lull::shim {

std::atomic<int32_t> open_captures;

namespace {

// Of those beyond only the number is known: they end by the program's own call alone.
constexpr uint32_t kMostCaptures = 256;

struct OpenCapture {
  uintptr_t handle;
  const ThreadState* thread;  // of a thread's own default stream; null: of any other stream
  CUcontext context;
};

Lock lock;  // all below
OpenCapture captures[kMostCaptures];
uint32_t capture_count;
uint32_t unlisted;

const ThreadState* owner_of(const ThreadState& thread, uintptr_t handle) {
  return handle == kPerThreadHandle ? &thread : nullptr;
}

// Under `lock`; null: not there.
OpenCapture* find(uintptr_t handle, const ThreadState* thread) {
  for (uint32_t n = 0; n < capture_count; ++n) {
    if (captures[n].handle == handle && captures[n].thread == thread) return &captures[n];
  }
  return nullptr;
}

// Under `lock`.
void drop(OpenCapture& capture) {
  capture = captures[--capture_count];
  open_captures.fetch_sub(1, std::memory_order_seq_cst);
}

template <typename Chosen>
void drop_all(Chosen chosen) {
  Locked locked(lock);
  for (uint32_t n = capture_count; n > 0; --n) {
    if (chosen(captures[n - 1])) drop(captures[n - 1]);
  }
}

}  // namespace

bool asks_driver_whether_capturing(uintptr_t handle) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  OwnCall own(thread_state);
  const CUresult result = driver().cuStreamIsCapturing(stream_of(handle), &status);
  // The legacy stream while a blocking stream captures: the launch is the driver's to refuse.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void capture_begins() { open_captures.fetch_add(1, std::memory_order_seq_cst); }

void capture_began(ThreadState& thread, uintptr_t handle, bool success) {
  if (!success) {
    open_captures.fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
  OpenCapture capture{handle, owner_of(thread, handle), nullptr};
  {
    OwnCall own(thread);
    driver().cuStreamGetCtx(stream_of(handle), &capture.context);
  }
  if (capture.thread != nullptr) register_thread_end(thread);
  Locked locked(lock);
  if (capture_count < kMostCaptures) {
    captures[capture_count++] = capture;
  } else {
    ++unlisted;
  }
}

void capture_ended(ThreadState& thread, uintptr_t handle) {
  Locked locked(lock);
  if (OpenCapture* capture = find(handle, owner_of(thread, handle))) {
    drop(*capture);
  } else if (unlisted > 0) {
    --unlisted;
    open_captures.fetch_sub(1, std::memory_order_seq_cst);
  }
}

bool begins_in_stream(CUstream stream) {
  if (open_captures.load(std::memory_order_relaxed) <= 0) return false;
  Locked locked(lock);
  OpenCapture* capture = find(reinterpret_cast<uintptr_t>(stream), nullptr);
  if (capture == nullptr) return false;
  // Another stream may have the handle as soon as the driver has freed it.
  *capture = captures[--capture_count];
  return true;
}

void stream_with_capture_gone(CUstream stream, bool success) {
  if (success) {
    open_captures.fetch_sub(1, std::memory_order_seq_cst);
  } else {
    capture_began(thread_state, reinterpret_cast<uintptr_t>(stream), /*success=*/true);
  }
}

void captures_of_context_gone(CUcontext context) {
  drop_all([&](const OpenCapture& it) { return it.context == context; });
}

void captures_of_thread_gone(ThreadState& thread) {
  if (open_captures.load(std::memory_order_relaxed) <= 0) return;
  drop_all([&](const OpenCapture& it) { return it.thread == &thread; });
}

void forget_captures() {
  capture_count = 0;
  unlisted = 0;
  open_captures.store(0, std::memory_order_relaxed);
}
void lock_captures() { lock.lock(); }
void unlock_captures() { lock.unlock(); }

}  // namespace lull::shim
