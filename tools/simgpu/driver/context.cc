// Contexts: primary ones and those that programs make, and the stack of them that a thread has.
#include <algorithm>
#include <utility>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"
#include "tools/simgpu/driver/state.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

CUcontext handle_of(const Context& context) { return to_handle<CUcontext>(context.handle); }

bool flags_are_known(unsigned flags) {
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 &&
         (flags & CU_CTX_SCHED_MASK) <= CU_CTX_SCHED_BLOCKING_SYNC;
}

CUresult push(uint64_t handle) {
  ThreadState& thread = thread_state();
  if (thread.depth == ThreadState::kMaxDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  thread.context[thread.depth++] = handle;
  return CUDA_SUCCESS;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device, unsigned api_version) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || !flags_are_known(flags)) return kWrong;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto context = call.state.create_context(device, flags);
  if (!context) return context.error();
  (*context)->api_version = api_version;
  if (const CUresult pushed = push((*context)->handle)) return pushed;
  *out = handle_of(**context);
  return CUDA_SUCCESS;
}

CUresult destroy(CUcontext handle) {
  Call call;
  if (!call) return call.error;
  if (handle == nullptr) return kWrong;
  const auto context = call.state.contexts.find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  ThreadState& thread = thread_state();
  if (thread.depth > 0 && thread.context[thread.depth - 1] == context->handle) --thread.depth;
  call.state.destroy_context(call.lock, context);
  return CUDA_SUCCESS;
}

CUresult synchronize(CUcontext handle) {
  Call call(handle == nullptr ? Call::kContext : Call::kNothing);
  if (!call) return call.error;
  const auto context = handle == nullptr ? call.context : call.state.contexts.find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult refused = refuse_context_wait(call.state, *context)) return refused;
  call.wait(call.state.device->unfinished(context->engine));
  return call.state.effects->failure(context->engine);
}

CUresult release_primary(CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  PrimaryContext& primary = call.state.primaries[device];
  if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.references > 0) return CUDA_SUCCESS;
  const auto context = std::exchange(primary.context, nullptr);
  call.state.destroy_context(call.lock, context);
  return CUDA_SUCCESS;
}

CUresult reset_primary(CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  PrimaryContext& primary = call.state.primaries[device];
  const auto context = std::exchange(primary.context, nullptr);
  primary.references = 0;
  primary.flags = 0;
  if (context) call.state.destroy_context(call.lock, context);
  return CUDA_SUCCESS;
}

CUresult set_primary_flags(CUdevice device, unsigned flags) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags_are_known(flags)) return kWrong;
  PrimaryContext& primary = call.state.primaries[device];
  primary.flags = flags;
  if (primary.context) primary.context->flags = flags;
  return CUDA_SUCCESS;
}

size_t default_limit(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return 1024;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return 1 << 20;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return 8 << 20;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      return 2;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      return 2048;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return 64;
    default:
      return 0;
  }
}

}  // namespace

SIM_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  PrimaryContext& primary = call.state.primaries[device];
  if (!primary.context) {
    const auto context = call.state.create_context(device, primary.flags);
    if (!context) return context.error();
    primary.context = *context;
    primary.context->primary = true;
  }
  ++primary.references;
  *out = handle_of(*primary.context);
  return CUDA_SUCCESS;
}

SIM_API cuDevicePrimaryCtxRelease(CUdevice device) { return release_primary(device); }
SIM_API cuDevicePrimaryCtxRelease_v2(CUdevice device) { return release_primary(device); }
SIM_API cuDevicePrimaryCtxReset(CUdevice device) { return reset_primary(device); }
SIM_API cuDevicePrimaryCtxReset_v2(CUdevice device) { return reset_primary(device); }
SIM_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return set_primary_flags(device, flags);
}
SIM_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return set_primary_flags(device, flags);
}

SIM_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  Call call;
  if (!call) return call.error;
  if (flags == nullptr || active == nullptr) return kWrong;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = call.state.primaries[device].flags;
  *active = call.state.primaries[device].context != nullptr;
  return CUDA_SUCCESS;
}

SIM_API cuCtxCreate(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device, 3010);
}
SIM_API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) {
  return create(out, flags, device, 3020);
}
SIM_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* parameters, int count, unsigned flags,
                       CUdevice device) {
  if (count < 0 || (count > 0 && parameters == nullptr)) return kWrong;
  if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(out, flags, device, 3030);
}
SIM_API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* parameters, unsigned flags,
                       CUdevice device) {
  if (parameters != nullptr && parameters->numExecAffinityParams > 0) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  if (parameters != nullptr && parameters->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, device, 3030);
}

SIM_API cuCtxDestroy(CUcontext context) { return destroy(context); }
SIM_API cuCtxDestroy_v2(CUcontext context) { return destroy(context); }

SIM_API cuCtxAttach(CUcontext* out, unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr || flags != 0) return kWrong;
  ++call.context->attach_count;
  *out = handle_of(*call.context);
  return CUDA_SUCCESS;
}

SIM_API cuCtxDetach(CUcontext handle) {
  {
    Call call(Call::kContext);
    if (!call) return call.error;
    const auto context = call.state.contexts.find(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context->attach_count > 0) return CUDA_SUCCESS;
  }
  return destroy(handle);
}

SIM_API cuCtxPushCurrent_v2(CUcontext handle) {
  Call call;
  if (!call) return call.error;
  if (handle == nullptr) return kWrong;
  const auto context = call.state.contexts.find(handle);
  return context ? push(context->handle) : CUDA_ERROR_INVALID_CONTEXT;
}
SIM_API cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

SIM_API cuCtxPopCurrent_v2(CUcontext* out) {
  if (const CUresult refused = refuse_call()) return refused;
  ThreadState& thread = thread_state();
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --thread.depth;
  if (out != nullptr) *out = to_handle<CUcontext>(thread.context[thread.depth]);
  return CUDA_SUCCESS;
}
SIM_API cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }

SIM_API cuCtxSetCurrent(CUcontext handle) {
  Call call;
  if (!call) return call.error;
  ThreadState& thread = thread_state();
  if (handle == nullptr) {
    if (thread.depth > 0) --thread.depth;
    return CUDA_SUCCESS;
  }
  const auto context = call.state.contexts.find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (thread.depth == 0) return push(context->handle);
  thread.context[thread.depth - 1] = context->handle;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetCurrent(CUcontext* out) {
  if (const CUresult refused = refuse_call()) return refused;
  if (out == nullptr) return kWrong;
  const ThreadState& thread = thread_state();
  *out = thread.depth == 0 ? nullptr : to_handle<CUcontext>(thread.context[thread.depth - 1]);
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetDevice(CUdevice* device) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (device == nullptr) return kWrong;
  *device = call.context->device;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  if (handle == nullptr) return cuCtxGetDevice(device);
  Call call;
  if (!call) return call.error;
  const auto context = call.state.contexts.find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return kWrong;
  *device = context->device;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSynchronize() { return synchronize(nullptr); }
SIM_API cuCtxSynchronize_v2(CUcontext context) { return synchronize(context); }

SIM_API cuCtxGetFlags(unsigned* flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (flags == nullptr) return kWrong;
  *flags = call.context->flags;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSetFlags(unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (!flags_are_known(flags)) return kWrong;
  call.context->flags = flags;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Call call(handle == nullptr ? Call::kContext : Call::kNothing);
  if (!call) return call.error;
  const auto context = handle == nullptr ? call.context : call.state.contexts.find(handle);
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (id == nullptr) return kWrong;
  *id = context->id;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  Call call(handle == nullptr ? Call::kContext : Call::kNothing);
  if (!call) return call.error;
  const auto context = handle == nullptr ? call.context : call.state.contexts.find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return kWrong;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetLimit(size_t* value, CUlimit limit) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (value == nullptr) return kWrong;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  const auto set = call.context->limits.find(limit);
  *value = set == call.context->limits.end() ? default_limit(limit) : set->second;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSetLimit(CUlimit limit, size_t value) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  call.context->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetCacheConfig(CUfunc_cache* config) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (config == nullptr) return kWrong;
  *config = call.context->cache;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSetCacheConfig(CUfunc_cache config) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return kWrong;
  call.context->cache = config;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (config == nullptr) return kWrong;
  *config = call.context->shared_config;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Call call(Call::kContext);
  if (!call) return call.error;
  call.context->shared_config = config;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

SIM_API cuCtxResetPersistingL2Cache() {
  Call call(Call::kContext);
  return call.error;
}

SIM_API cuCtxGetExecAffinity(CUexecAffinityParam* parameter, CUexecAffinityType) {
  Call call(Call::kContext);
  if (!call) return call.error;
  return parameter == nullptr ? kWrong : CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

SIM_API cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto peer = call.state.contexts.find(handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != 0) return kWrong;
  if (peer->device == call.context->device) return CUDA_ERROR_INVALID_DEVICE;
  const bool added = call.context->peers.emplace(peer->handle, peer->id).second;
  return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SIM_API cuCtxDisablePeerAccess(CUcontext handle) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto peer = call.state.contexts.find(handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  return call.context->peers.erase(peer->handle) ? CUDA_SUCCESS
                                                 : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

SIM_API cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget,
                                   CUflushGPUDirectRDMAWritesScope) {
  Call call(Call::kContext);
  return call.error;
}
