// cuInit, contexts, and what a device says about its memory.
#include "shim/captures.h"
#include "shim/device_memory.h"
#include "shim/residence/device_arena.h"
#include "shim/residence/live_contexts.h"
#include "shim/residence/service.h"
#include "shim/residence/visible_devices.h"
#include "shim/submit.h"

using namespace lull::shim;

namespace {

// Before the driver destroys it: everything of ours that lives in it dies with it, and the gate
// must not wait for work that will never be reported.
void context_dies(CUcontext context, ContextEnd end = ContextEnd::kWill) {
  if (context == nullptr || !shim_enabled()) return;
  timing_context_gone(context, end);
  markers_context_gone(context);
  service_context_gone(context, end != ContextEnd::kDid);
  streams_of_context_gone(context);
  captures_of_context_gone(context);
}

void context_made(CUresult result, const CUcontext* context, CUdevice device) {
  if (result != CUDA_SUCCESS || !shim_enabled() || thread_state.depth != 0) return;
  use_device(device);
  if (context != nullptr) context_lives(*context, device);
}

// The primary context's handle, as far as the program took it through a hook.
std::atomic<CUcontext> primary_context[64];
CUcontext primary_of(CUdevice device) {
  return device >= 0 && device < 64 ? primary_context[device].load(std::memory_order_relaxed)
                                    : nullptr;
}

template <typename Call>
CUresult make_context(CUcontext* context, CUdevice device, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth == 0 && is_hidden(device)) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = forward_use(thread, call);
  context_made(result, context, device);
  return result;
}

template <typename Call>
CUresult destroy_context(CUcontext context, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const MemoryUse use(thread);
  context_dies(context);
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS) {
    memory_of_context_gone(context);
    arena_context_gone(context, /*reset=*/false);
  }
  return result;
}

template <typename Call>
CUresult release_primary(CUdevice device, bool always, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const MemoryUse use(thread);
  const CUcontext context = primary_of(device);
  // Before it can die: events of ours in it die with it.
  if (always) {
    context_dies(context);
  } else {
    timing_context_gone(context, ContextEnd::kMay);
    service_context_pauses(context);
  }
  const CUresult result = forward(thread, call);
  if (result != CUDA_SUCCESS || context == nullptr) return result;
  unsigned flags = 0;
  int active = 1;
  {
    OwnCall own(thread);
    driver().cuDevicePrimaryCtxGetState(device, &flags, &active);
  }
  if (!always && active == 0) context_dies(context, ContextEnd::kDid);
  if (!always && active != 0) context_lives(context, device);
  if (always || active == 0) {
    memory_of_context_gone(context);
    arena_context_gone(context, /*reset=*/always);
  }
  return result;
}

}  // namespace

LULL_ENTRY(cuInit)(unsigned int flags) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return driver().cuInit(flags);
  const CUresult result = forward(thread, [&] { return driver().cuInit(flags); });
  if (result != CUDA_SUCCESS) return result;
  remember_devices();
  return attach_at_init();
}

LULL_ENTRY(cuCtxCreate)(CUcontext* context, unsigned int flags, CUdevice device) {
  return make_context(context, device,
                      [&] { return driver().cuCtxCreate(context, flags, device); });
}
LULL_ENTRY(cuCtxCreate_v2)(CUcontext* context, unsigned int flags, CUdevice device) {
  return make_context(context, device,
                      [&] { return driver().cuCtxCreate_v2(context, flags, device); });
}
LULL_ENTRY(cuCtxCreate_v3)
(CUcontext* context, CUexecAffinityParam* affinity, int count, unsigned int flags,
 CUdevice device) {
  return make_context(context, device, [&] {
    return driver().cuCtxCreate_v3(context, affinity, count, flags, device);
  });
}
LULL_ENTRY(cuCtxCreate_v4)
(CUcontext* context, CUctxCreateParams* params, unsigned int flags, CUdevice device) {
  return make_context(context, device,
                      [&] { return driver().cuCtxCreate_v4(context, params, flags, device); });
}
LULL_ENTRY(cuCtxDestroy)(CUcontext context) {
  return destroy_context(context, [&] { return driver().cuCtxDestroy(context); });
}
LULL_ENTRY(cuCtxDestroy_v2)(CUcontext context) {
  return destroy_context(context, [&] { return driver().cuCtxDestroy_v2(context); });
}
LULL_ENTRY(cuCtxDetach)(CUcontext context) {
  return destroy_context(context, [&] { return driver().cuCtxDetach(context); });
}

LULL_ENTRY(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice device) {
  const CUresult result = make_context(
      context, device, [&] { return driver().cuDevicePrimaryCtxRetain(context, device); });
  if (result == CUDA_SUCCESS && context != nullptr && device >= 0 && device < 64) {
    primary_context[device].store(*context, std::memory_order_relaxed);
  }
  return result;
}
LULL_ENTRY(cuDevicePrimaryCtxRelease)(CUdevice device) {
  return release_primary(device, /*always=*/false,
                         [&] { return driver().cuDevicePrimaryCtxRelease(device); });
}
LULL_ENTRY(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
  return release_primary(device, /*always=*/false,
                         [&] { return driver().cuDevicePrimaryCtxRelease_v2(device); });
}
LULL_ENTRY(cuDevicePrimaryCtxReset)(CUdevice device) {
  return release_primary(device, /*always=*/true,
                         [&] { return driver().cuDevicePrimaryCtxReset(device); });
}
LULL_ENTRY(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
  return release_primary(device, /*always=*/true,
                         [&] { return driver().cuDevicePrimaryCtxReset_v2(device); });
}
