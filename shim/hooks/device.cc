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

// Everything of ours that lives in it dies with it, and the gate must not wait for work that will
// never be reported.
void context_dies(CUcontext context, ContextEnd end) {
  timing_context_gone(context, end);
  markers_context_gone(context);
  streams_of_context_gone(context);
  captures_of_context_gone(context);
}
// Before the driver destroys it. `service_context_stays` or `context_is_gone` follows.
void context_will_die(CUcontext context) {
  if (context == nullptr || !shim_enabled()) return;
  service_context_pauses(context, /*dies=*/true);
  context_dies(context, ContextEnd::kWill);
}
// After the driver has destroyed it. `reset`: and all else of its device.
void context_is_gone(CUcontext context, bool reset) {
  service_context_gone(context);
  memory_of_context_gone(context);
  arena_context_gone(context, reset);
}

// References to contexts beyond their first, by cuCtxAttach: cuCtxDetach takes one of them first.
struct Attached {
  std::atomic<CUcontext> context;
  std::atomic<uint32_t> count;
};
// Of a context that finds no place the first cuCtxDetach counts as its end.
Attached attached[64];

Attached* attached_to(CUcontext context) {
  for (Attached& entry : attached) {
    if (entry.context.load(std::memory_order_relaxed) == context) return &entry;
  }
  return nullptr;
}
void attach_to(CUcontext context) {
  for (;;) {
    Attached* entry = attached_to(context);
    if (entry == nullptr) {
      entry = attached_to(nullptr);
      if (entry == nullptr) return;
      CUcontext nobody = nullptr;
      if (!entry->context.compare_exchange_strong(nobody, context, std::memory_order_relaxed))
        continue;
    }
    entry->count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}
// False: there is none but the first.
bool detach_from(CUcontext context) {
  Attached* entry = context != nullptr ? attached_to(context) : nullptr;
  if (entry == nullptr) return false;
  uint32_t count = entry->count.load(std::memory_order_relaxed);
  while (count != 0) {
    if (entry->count.compare_exchange_weak(count, count - 1, std::memory_order_relaxed))
      return true;
  }
  return false;
}
void forget_attached(CUcontext context) {
  if (Attached* entry = context != nullptr ? attached_to(context) : nullptr) {
    entry->count.store(0, std::memory_order_relaxed);
    entry->context.store(nullptr, std::memory_order_relaxed);
  }
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
  context_will_die(context);
  const CUresult result = forward(thread, call);
  if (result != CUDA_SUCCESS) {
    service_context_stays(context);
    return result;
  }
  forget_attached(context);
  context_is_gone(context, /*reset=*/false);
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
    context_will_die(context);
  } else {
    timing_context_gone(context, ContextEnd::kMay);
    service_context_pauses(context, /*dies=*/false);
  }
  const CUresult result = forward(thread, call);
  if (context == nullptr) return result;
  unsigned flags = 0;
  int active = 1;
  if (result == CUDA_SUCCESS && !always) {
    OwnCall own(thread);
    driver().cuDevicePrimaryCtxGetState(device, &flags, &active);
  }
  if (result != CUDA_SUCCESS || (!always && active != 0)) {
    service_context_stays(context);
    return result;
  }
  if (!always && shim_enabled()) context_dies(context, ContextEnd::kDid);
  context_is_gone(context, /*reset=*/always);
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
LULL_ENTRY(cuCtxAttach)(CUcontext* context, unsigned int flags) {
  const CUresult result =
      forward(thread_state, [&] { return driver().cuCtxAttach(context, flags); });
  if (result == CUDA_SUCCESS && context != nullptr) attach_to(*context);
  return result;
}
LULL_ENTRY(cuCtxDetach)(CUcontext context) {
  if (thread_state.depth == 0 && detach_from(context)) {
    const CUresult result = forward(thread_state, [&] { return driver().cuCtxDetach(context); });
    if (result != CUDA_SUCCESS) attach_to(context);
    return result;
  }
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
