#include "shim/residence/live_contexts.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coordinator/channel/model_clock.h"
#include "shim/residence/memory_gate.h"
#include "shim/stream_slots.h"
#include "shim/system.h"

namespace lull::shim {

namespace {

// Beyond that many contexts the oldest of the rest are not known. Programs have one a device.
constexpr uint32_t kMostContexts = 256;
constexpr uint32_t kFirstStreams = 1024;

struct LiveContext {
  CUcontext context;
  CUdevice ordinal;
};
struct LiveStream {
  CUstream stream;
  CUcontext context;
};

Lock lock;  // all below
LiveContext contexts[kMostContexts];
uint32_t context_count;
LiveStream* streams;
uint32_t stream_count;
uint32_t stream_room;

bool moves() { return can_move.load(std::memory_order_relaxed); }

bool grow() {
  const uint32_t room = stream_room == 0 ? kFirstStreams : stream_room * 2;
  auto* bigger = static_cast<LiveStream*>(map_pages(room * sizeof(LiveStream)));
  if (bigger == nullptr) return false;
  if (streams != nullptr) {
    memcpy(bigger, streams, stream_count * sizeof(LiveStream));
    munmap(streams, stream_room * sizeof(LiveStream));
  }
  streams = bigger;
  stream_room = room;
  return true;
}

// The gate is shut: none of them ends meanwhile.
void synchronise_contexts() {
  LiveContext known[kMostContexts];
  uint32_t count;
  {
    Locked locked(lock);
    count = context_count;
    memcpy(known, contexts, count * sizeof contexts[0]);
  }
  for (uint32_t n = 0; n < count; ++n) {
    if (driver().cuCtxSetCurrent(known[n].context) == CUDA_SUCCESS) driver().cuCtxSynchronize();
  }
}

// A futex: 1 while a thread waits for the contexts.
std::atomic<uint32_t> waits;

void* wait_for_contexts(void*) {
  {
    OwnCall own(thread_state);
    synchronise_contexts();
  }
  waits.store(0, std::memory_order_release);
  futex_wake(reinterpret_cast<uint32_t*>(&waits), 1, /*private_futex=*/true);
  return nullptr;
}

}  // namespace

void context_lives(CUcontext context, CUdevice ordinal) {
  if (!moves() || context == nullptr) return;
  Locked locked(lock);
  for (uint32_t n = 0; n < context_count; ++n) {
    if (contexts[n].context == context) return;
  }
  if (context_count < kMostContexts) contexts[context_count++] = {context, ordinal};
}

void context_pauses(CUcontext context) {
  if (!moves() || context == nullptr) return;
  Locked locked(lock);
  for (uint32_t n = 0; n < context_count; ++n) {
    if (contexts[n].context != context) continue;
    memmove(&contexts[n], &contexts[n + 1], (context_count - n - 1) * sizeof contexts[0]);
    --context_count;
    break;
  }
}

void context_ends(CUcontext context) {
  if (!moves() || context == nullptr) return;
  context_pauses(context);
  const auto take_stream = [&](CUstream& stream) {
    Locked locked(lock);
    for (uint32_t n = 0; n < stream_count; ++n) {
      if (streams[n].context != context) continue;
      stream = streams[n].stream;
      streams[n] = streams[--stream_count];
      return true;
    }
    return false;
  };
  for (CUstream stream = nullptr; take_stream(stream);) stream_destroyed(stream);
}

void stream_lives(CUstream stream) {
  if (!moves()) return;
  LiveStream live{stream, nullptr};
  {
    OwnCall own(thread_state);
    if (driver().cuCtxGetCurrent(&live.context) != CUDA_SUCCESS) return;
  }
  KeepErrno keep;
  Locked locked(lock);
  if (stream_count == stream_room && !grow()) return;
  streams[stream_count++] = live;
}

void stream_ends(CUstream stream) {
  if (!moves()) return;
  Locked locked(lock);
  for (uint32_t n = stream_count; n > 0; --n) {
    if (streams[n - 1].stream != stream) continue;
    streams[n - 1] = streams[--stream_count];
    return;
  }
}

CUcontext context_on(CUdevice ordinal) {
  {
    Locked locked(lock);
    for (uint32_t n = context_count; n > 0; --n) {
      if (contexts[n - 1].ordinal == ordinal) return contexts[n - 1].context;
    }
  }
  // Made in a way that no hook sees: the primary one, if it is there at all.
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  OwnCall own(thread_state);
  if (driver().cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS ||
      active == 0 || driver().cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS) {
    return nullptr;
  }
  driver().cuDevicePrimaryCtxRelease_v2(ordinal);
  return context;
}

Work work_of_program() {
  OwnCall own(thread_state);
  Locked locked(lock);
  for (uint32_t n = 0; n < context_count; ++n) {
    if (driver().cuCtxSetCurrent(contexts[n].context) != CUDA_SUCCESS) continue;
    if (driver().cuStreamQuery(stream_of(kLegacyHandle)) == CUDA_ERROR_NOT_READY) {
      return Work::kUnderWay;
    }
    // Work of a context that has failed is over: any other error is the program's to see.
    for (uint32_t at = 0; at < stream_count; ++at) {
      if (streams[at].context == contexts[n].context &&
          driver().cuStreamQuery(streams[at].stream) == CUDA_ERROR_NOT_READY) {
        return Work::kUnderWay;
      }
    }
  }
  return Work::kDone;
}

// Nothing asks about another thread's default stream with a deadline: a thread of its own waits,
// and is left to itself when the time has passed. It inherits that the service thread blocks all
// signals.
bool wait_for_work(uint32_t timeout_ms) {
  const uint64_t deadline = channel::monotonic_ns() + uint64_t{timeout_ms} * 1'000'000;
  // The one of an earlier order began before what has been submitted since.
  if (waits.exchange(1, std::memory_order_acq_rel) != 0) return false;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, wait_for_contexts, nullptr) != 0) {
    waits.store(0, std::memory_order_relaxed);
    return false;
  }
  pthread_detach(thread);
  while (waits.load(std::memory_order_acquire) != 0) {
    const uint64_t now = channel::monotonic_ns();
    if (now >= deadline) return false;
    futex_wait(reinterpret_cast<uint32_t*>(&waits), 1, deadline - now, /*private_futex=*/true);
  }
  return true;
}

void forget_live_contexts() {
  waits.store(0, std::memory_order_relaxed);
  context_count = 0;
  stream_count = 0;
}
void lock_live_contexts() { lock.lock(); }
void unlock_live_contexts() { lock.unlock(); }

}  // namespace lull::shim
