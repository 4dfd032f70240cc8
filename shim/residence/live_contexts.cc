#include "shim/residence/live_contexts.h"

#include <string.h>
#include <sys/mman.h>

#include "shim/residence/memory_gate.h"
#include "shim/stream_slots.h"
#include "shim/system.h"

namespace lull::shim {

namespace {

// Beyond that many contexts the oldest of the rest are not known. Programs have one a device.
constexpr uint32_t kMostContexts = 256;
constexpr uint32_t kFirstStreams = 1024;

// `pauses`: it may be gone. Another one may have the handle already, in an entry of its own.
struct LiveContext {
  CUcontext context;
  CUdevice ordinal;
  bool pauses;
};
struct LiveStream {
  CUstream stream;
  CUcontext context;
  bool pauses;
};

Lock lock;  // all below
LiveContext contexts[kMostContexts];
uint32_t context_count;
LiveStream* streams;
uint32_t stream_count;
uint32_t stream_room;

bool moves() { return can_move.load(std::memory_order_relaxed); }

// Under lock; null: not known.
LiveContext* find(CUcontext context, bool pauses) {
  for (uint32_t n = 0; n < context_count; ++n) {
    if (contexts[n].context == context && contexts[n].pauses == pauses) return &contexts[n];
  }
  return nullptr;
}

void drop(LiveContext* context) {
  const auto behind = static_cast<size_t>(contexts + context_count - (context + 1));
  memmove(context, context + 1, behind * sizeof contexts[0]);
  --context_count;
}

void set_pause(CUcontext context, bool pauses) {
  if (!moves() || context == nullptr) return;
  Locked locked(lock);
  if (LiveContext* const found = find(context, !pauses)) {
    // A primary one that was retained meanwhile is in the list again.
    if (!pauses && find(context, pauses) != nullptr) {
      drop(found);
    } else {
      found->pauses = pauses;
    }
  }
  for (uint32_t n = 0; n < stream_count; ++n) {
    if (streams[n].context == context) streams[n].pauses = pauses;
  }
}

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

}  // namespace

void context_lives(CUcontext context, CUdevice ordinal) {
  if (!moves() || context == nullptr) return;
  Locked locked(lock);
  if (find(context, /*pauses=*/false) != nullptr) return;
  if (context_count < kMostContexts) contexts[context_count++] = {context, ordinal, false};
}

void context_pauses(CUcontext context) { set_pause(context, true); }
void context_stays(CUcontext context) { set_pause(context, false); }

void context_ends(CUcontext context) {
  if (!moves() || context == nullptr) return;
  Locked locked(lock);
  if (LiveContext* const ended = find(context, /*pauses=*/true)) drop(ended);
  for (uint32_t n = stream_count; n > 0; --n) {
    if (streams[n - 1].context == context && streams[n - 1].pauses)
      streams[n - 1] = streams[--stream_count];
  }
}

void stream_lives(CUstream stream) {
  if (!moves()) return;
  LiveStream live{stream, nullptr, false};
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
      if (contexts[n - 1].ordinal == ordinal && !contexts[n - 1].pauses)
        return contexts[n - 1].context;
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

ContextWork wait_for_work(uint64_t deadline_ns) {
  LiveContext known[kMostContexts];
  uint32_t count;
  {
    Locked locked(lock);
    count = context_count;
    memcpy(known, contexts, count * sizeof contexts[0]);
  }
  // The gate is shut: none of them ends meanwhile.
  for (uint32_t n = 0; n < count; ++n) {
    const ContextWork work = wait_for_context(known[n].context, deadline_ns);
    if (work != ContextWork::kDone) return work;
  }
  return ContextWork::kDone;
}

void forget_live_contexts() {
  context_count = 0;
  stream_count = 0;
}
void lock_live_contexts() { lock.lock(); }
void unlock_live_contexts() { lock.unlock(); }

}  // namespace lull::shim
