// Allocation in stream order, and the pools it comes from. Memory is there from the call on and
// goes when the stream gets to its free; a pool keeps nothing back.
#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"
#include "tools/simgpu/driver/memory.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

CUresult allocate_from(Call& call, CUdeviceptr* out, size_t bytes,
                       const std::shared_ptr<Pool>& pool, const std::shared_ptr<Stream>& stream) {
  if (out == nullptr || bytes == 0) return kWrong;
  const auto context = call.state.context_of(*stream);
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (pool->max_bytes != 0 &&
      pool->used_bytes.load(std::memory_order_relaxed) + bytes > pool->max_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (const CUresult refused = refuse_legacy_in_capture(call.state, *stream, true)) return refused;
  auto address = allocate_device(call.state, *context, bytes, MemoryKind::kDevice, pool);
  if (!address && address.error() == CUDA_ERROR_OUT_OF_MEMORY && !stream->capture) {
    // Frees that are on their way may make room.
    call.wait(call.state.device->unfinished(context->engine));
    address = allocate_device(call.state, *context, bytes, MemoryKind::kDevice, pool);
  }
  if (!address) return address.error();
  *out = *address;
  if (!stream->capture) return CUDA_SUCCESS;
  becomes_graph_memory(call.state, *address);
  AllocWork work;
  work.description.bytesize = bytes;
  work.description.dptr = *address;
  work.description.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  work.description.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, context->device};
  return enqueue(call, stream, work);
}

std::shared_ptr<Pool> pool_at(Call& call, const CUmemLocation* location) {
  if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !call.state.is_device(location->id)) {
    return nullptr;
  }
  return call.state.current_pool[location->id];
}

}  // namespace

SIM_API cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const auto context = call.state.context_of(**stream);
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return allocate_from(call, out, bytes, call.state.current_pool[context->device], *stream);
}

SIM_API cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool_handle,
                                CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  const auto pool = call.state.pools.find(pool_handle);
  return pool ? allocate_from(call, out, bytes, pool, *stream) : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if (address == 0) return CUDA_SUCCESS;
  const auto range = call.state.memory.find(address);
  if (!range || range->begin != address || !range->on_device() || range->freeing) return kWrong;
  if ((*stream)->capture) return enqueue(call, *stream, FreeWork{address});
  if (const CUresult refused = refuse_legacy_in_capture(call.state, **stream, true)) return refused;
  const auto context = call.state.contexts.find(range->context);
  if (!context) return kWrong;
  call.state.memory.mark_freeing(address);
  auto waits = legacy_order(call.state, **stream);
  const auto point =
      submit_op(call.state, (*stream)->lane, {.kind = simgpu::OpKind::kMarker}, std::move(waits),
                {.apply = [&state = call.state, address, charged = context->engine,
                           pool = call.state.pools.find(range->pool)](const simgpu::Completion&) {
                  release_device(state, address, charged, pool);
                  return CUDA_SUCCESS;
                }});
  if (!point) return point.error();
  (*stream)->last = point->seq;
  return CUDA_SUCCESS;
}

SIM_API cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || properties == nullptr) return kWrong;
  if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return kWrong;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!call.state.is_device(properties->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  auto pool = std::make_shared<Pool>();
  pool->handle = call.state.new_handle();
  pool->device = properties->location.id;
  pool->max_bytes = properties->maxSize;
  call.state.pools.add(pool);
  *out = to_handle<CUmemoryPool>(pool->handle);
  return CUDA_SUCCESS;
}

SIM_API cuMemPoolDestroy(CUmemoryPool handle) {
  Call call;
  if (!call) return call.error;
  const auto pool = call.state.pools.find(handle);
  if (!pool) return kWrong;
  if (pool == call.state.default_pool[pool->device]) return kWrong;
  if (call.state.current_pool[pool->device] == pool) {
    call.state.current_pool[pool->device] = call.state.default_pool[pool->device];
  }
  call.state.pools.remove(pool->handle);
  return CUDA_SUCCESS;
}

SIM_API cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  Call call;
  if (!call) return call.error;
  return call.state.pools.find(handle) ? CUDA_SUCCESS : kWrong;
}

SIM_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Call call;
  if (!call) return call.error;
  const auto pool = call.state.pools.find(handle);
  if (!pool || value == nullptr) return kWrong;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
          *static_cast<const int*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*static_cast<const cuuint64_t*>(value) != 0) return kWrong;
      pool->used_high_bytes.store(pool->used_bytes.load(std::memory_order_relaxed),
                                  std::memory_order_relaxed);
      return CUDA_SUCCESS;
    default:
      return kWrong;
  }
}

SIM_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  Call call;
  if (!call) return call.error;
  const auto pool = call.state.pools.find(handle);
  if (!pool || value == nullptr) return kWrong;
  call.state.effects->pump();
  const auto give = [&](cuuint64_t number) {
    std::memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) =
          pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return give(pool->release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return give(pool->used_bytes.load(std::memory_order_relaxed));
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return give(pool->used_high_bytes.load(std::memory_order_relaxed));
    default:
      return kWrong;
  }
}

SIM_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  Call call;
  if (!call) return call.error;
  const auto pool = call.state.pools.find(handle);
  if (!pool || (access == nullptr && count > 0)) return kWrong;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !call.state.is_device(access[i].location.id)) {
      return kWrong;
    }
    pool->access[access[i].location.id] = access[i].flags;
  }
  return CUDA_SUCCESS;
}

SIM_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  Call call;
  if (!call) return call.error;
  const auto pool = call.state.pools.find(handle);
  if (!pool || flags == nullptr || !pool_at(call, location)) return kWrong;
  const auto found = pool->access.find(location->id);
  *flags = found != pool->access.end()    ? found->second
           : location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                          : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = to_handle<CUmemoryPool>(call.state.default_pool[device]->handle);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = to_handle<CUmemoryPool>(call.state.current_pool[device]->handle);
  return CUDA_SUCCESS;
}

SIM_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto pool = call.state.pools.find(handle);
  if (!pool || pool->device != device) return kWrong;
  call.state.current_pool[device] = pool;
  return CUDA_SUCCESS;
}

SIM_API cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location,
                               CUmemAllocationType type) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || !pool_at(call, location)) return kWrong;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  *out = to_handle<CUmemoryPool>(call.state.default_pool[location->id]->handle);
  return CUDA_SUCCESS;
}

SIM_API cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  Call call;
  if (!call) return call.error;
  const auto pool = pool_at(call, location);
  if (out == nullptr || !pool) return kWrong;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  *out = to_handle<CUmemoryPool>(pool->handle);
  return CUDA_SUCCESS;
}

SIM_API cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  if (const CUresult refused = refuse_call()) return refused;
  if (location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return kWrong;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  return cuDeviceSetMemPool(location->id, pool);
}
