#include "shim/residence/context_wait.h"

#include "coordinator/channel/model_clock.h"
#include "shim/residence/quiet_thread.h"
#include "shim/system.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

constexpr uint64_t kSliceNs = 1'000'000'000;
constexpr uint64_t kLongestLeaveNs = 1'000'000'000;

enum State : uint32_t { kNone, kIdle, kWaiting };

std::atomic<uint32_t> state;  // a futex
// Written by the service thread while idle, read by the other while waiting; and by
// `leave_context`.
std::atomic<CUcontext> asked;
CUresult answer;  // of the last wait; read while idle

uint32_t* word() { return reinterpret_cast<uint32_t*>(&state); }

void enter(State next) {
  // seq_cst: what was written before is seen by whoever sees the state.
  state.store(next, std::memory_order_seq_cst);
  futex_wake(word(), INT32_MAX, /*private_futex=*/true);
}

void* wait_in_driver(void*) {
  thread_state.depth = 1;
  for (;;) {
    while (state.load(std::memory_order_seq_cst) != kWaiting) {
      futex_wait(word(), kIdle, kSliceNs, /*private_futex=*/true);
    }
    answer = driver().cuCtxSetCurrent(asked.load(std::memory_order_relaxed));
    if (answer == CUDA_SUCCESS) answer = driver().cuCtxSynchronize();
    driver().cuCtxSetCurrent(nullptr);
    enter(kIdle);
  }
}

bool is_idle_by(uint64_t deadline_ns) {
  while (state.load(std::memory_order_seq_cst) == kWaiting) {
    const uint64_t now = channel::monotonic_ns();
    if (now >= deadline_ns) return false;
    futex_wait(word(), kWaiting, deadline_ns - now, /*private_futex=*/true);
  }
  return true;
}

bool is_capture_error(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace

ContextWork wait_for_context(CUcontext context, uint64_t deadline_ns) {
  if (state.load(std::memory_order_relaxed) == kNone) {
    state.store(kIdle, std::memory_order_relaxed);
    if (!start_quiet_thread(wait_in_driver)) {
      state.store(kNone, std::memory_order_relaxed);
      return ContextWork::kCannotAsk;
    }
  }
  if (!is_idle_by(deadline_ns)) return ContextWork::kUnderWay;
  asked.store(context, std::memory_order_relaxed);
  enter(kWaiting);
  if (!is_idle_by(deadline_ns)) return ContextWork::kUnderWay;
  return is_capture_error(answer) ? ContextWork::kCannotAsk : ContextWork::kDone;
}

void leave_context(CUcontext context) {
  const uint64_t deadline = channel::monotonic_ns() + kLongestLeaveNs;
  if (state.load(std::memory_order_seq_cst) == kWaiting &&
      asked.load(std::memory_order_relaxed) == context) {
    KeepErrno keep;
    is_idle_by(deadline);
  }
}

void forget_context_wait() { state.store(kNone, std::memory_order_relaxed); }

}  // namespace lull::shim
