// Allocation, copies, sets, symbols, pools, host memory and pointer queries.
#include <cstring>

#include "tools/cudart/copy_shape.h"
#include "tools/cudart/runtime.h"

using namespace lull::cudart;

namespace {

CUdeviceptr device_address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUmemLocation driver_location(const cudaMemLocation& location) {
  return {static_cast<CUmemLocationType>(location.type), location.id};
}

CUresult copy(const Driver& d, Twin twin, void* to, const void* from, size_t bytes,
              cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return d.cuMemcpy[twin](device_address(to), device_address(from), bytes);
    case cudaMemcpyHostToDevice:
      return d.cuMemcpyHtoD[twin](device_address(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return d.cuMemcpyDtoH[twin](to, device_address(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return d.cuMemcpyDtoD[twin](device_address(to), device_address(from), bytes);
  }
  return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
}

CUresult copy_async(const Driver& d, Twin twin, void* to, const void* from, size_t bytes,
                    cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return d.cuMemcpyAsync[twin](device_address(to), device_address(from), bytes, stream);
    case cudaMemcpyHostToDevice:
      return d.cuMemcpyHtoDAsync[twin](device_address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return d.cuMemcpyDtoHAsync[twin](to, device_address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return d.cuMemcpyDtoDAsync[twin](device_address(to), device_address(from), bytes, stream);
  }
  return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
}

// The device address of [offset, offset + count) of a registered variable, as a CUresult.
CUresult symbol_range(const void* symbol, size_t count, size_t offset, void** address) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const cudaError_t status = Registry::instance().variable(symbol, &base, &bytes);
  if (status != cudaSuccess) return static_cast<CUresult>(status);
  if (offset > bytes || count > bytes - offset) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<void*>(base + offset);
  return CUDA_SUCCESS;
}

}  // namespace

LULL_API cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (pointer == nullptr) return record(cudaErrorInvalidValue);
  if (bytes == 0) {
    *pointer = nullptr;
    return record(ensure_context());
  }
  return with_context([&](const Driver& d) {
    return d.cuMemAlloc(reinterpret_cast<CUdeviceptr*>(pointer), bytes);
  });
}

LULL_API cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return record(ensure_context());  // cudaFree(0) is how many start
  return with_context([&](const Driver& d) { return d.cuMemFree(device_address(pointer)); });
}

LULL_API cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return with_context([&](const Driver& d) {
    return d.cuMemAllocPitch(reinterpret_cast<CUdeviceptr*>(pointer), pitch, width, height, 4);
  });
}

LULL_API cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  *pointer = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&pointer->ptr, &pointer->pitch, extent.width,
                         extent.height * extent.depth);
}

LULL_API cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return with_context([&](const Driver& d) {
    return d.cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, flags);
  });
}

LULL_API cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return with_context([&](const Driver& d) { return d.cuMemAllocHost(pointer, bytes); });
}

LULL_API cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return with_context([&](const Driver& d) { return d.cuMemHostAlloc(pointer, bytes, flags); });
}

LULL_API cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return record(ensure_context());
  return with_context([&](const Driver& d) { return d.cuMemFreeHost(pointer); });
}

LULL_API cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return with_context([&](const Driver& d) { return d.cuMemHostRegister(pointer, bytes, flags); });
}

LULL_API cudaError_t cudaHostUnregister(void* pointer) {
  return with_context([&](const Driver& d) { return d.cuMemHostUnregister(pointer); });
}

LULL_API cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* pointer,
                                              unsigned flags) {
  return with_context([&](const Driver& d) {
    return d.cuMemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(device_pointer), pointer,
                                       flags);
  });
}

LULL_API cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
  return with_context([&](const Driver& d) { return d.cuMemHostGetFlags(flags, pointer); });
}

LULL_API cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return with_context([&](const Driver& d) { return d.cuMemGetInfo(free_bytes, total_bytes); });
}

LULL_TWIN(cudaMemcpy, ptds, (to, from, bytes, kind), void* to, const void* from, size_t bytes,
          cudaMemcpyKind kind) {
  if (bytes == 0) return record(ensure_context());
  return with_context([&](const Driver& d) { return copy(d, twin, to, from, bytes, kind); });
}

LULL_TWIN(cudaMemcpyAsync, ptsz, (to, from, bytes, kind, stream), void* to, const void* from,
          size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return record(ensure_context());
  return with_context(
      [&](const Driver& d) { return copy_async(d, twin, to, from, bytes, kind, stream); });
}

LULL_TWIN(cudaMemcpy2D, ptds, (to, to_pitch, from, from_pitch, width, height, kind), void* to,
          size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
          cudaMemcpyKind kind) {
  const CUDA_MEMCPY2D shape = copy_shape_2d(to, to_pitch, from, from_pitch, width, height, kind);
  return with_context([&](const Driver& d) { return d.cuMemcpy2DUnaligned[twin](&shape); });
}

LULL_TWIN(cudaMemcpy2DAsync, ptsz, (to, to_pitch, from, from_pitch, width, height, kind, stream),
          void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
          size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const CUDA_MEMCPY2D shape = copy_shape_2d(to, to_pitch, from, from_pitch, width, height, kind);
  return with_context([&](const Driver& d) { return d.cuMemcpy2DAsync[twin](&shape, stream); });
}

LULL_TWIN(cudaMemcpy3D, ptds, (parameters), const cudaMemcpy3DParms* parameters) {
  if (!is_pitched_copy(parameters)) return record(cudaErrorNotSupported);
  const CUDA_MEMCPY3D shape = copy_shape_3d(*parameters);
  return with_context([&](const Driver& d) { return d.cuMemcpy3D[twin](&shape); });
}

LULL_TWIN(cudaMemcpy3DAsync, ptsz, (parameters, stream), const cudaMemcpy3DParms* parameters,
          cudaStream_t stream) {
  if (!is_pitched_copy(parameters)) return record(cudaErrorNotSupported);
  const CUDA_MEMCPY3D shape = copy_shape_3d(*parameters);
  return with_context([&](const Driver& d) { return d.cuMemcpy3DAsync[twin](&shape, stream); });
}

LULL_API cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                                    size_t bytes) {
  return with_context([&](const Driver& d) {
    CUcontext to_context = nullptr, from_context = nullptr;
    cudaError_t status = primary_context(to_device, &to_context);
    if (status == cudaSuccess) status = primary_context(from_device, &from_context);
    if (status != cudaSuccess) return static_cast<CUresult>(status);
    return d.cuMemcpyPeer[kLegacy](device_address(to), to_context, device_address(from),
                                   from_context, bytes);
  });
}

LULL_API cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                         size_t bytes, cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    CUcontext to_context = nullptr, from_context = nullptr;
    cudaError_t status = primary_context(to_device, &to_context);
    if (status == cudaSuccess) status = primary_context(from_device, &from_context);
    if (status != cudaSuccess) return static_cast<CUresult>(status);
    return d.cuMemcpyPeerAsync[kLegacy](device_address(to), to_context, device_address(from),
                                        from_context, bytes, stream);
  });
}

LULL_TWIN(cudaMemset, ptds, (pointer, value, bytes), void* pointer, int value, size_t bytes) {
  if (bytes == 0) return record(ensure_context());
  return with_context([&](const Driver& d) {
    return d.cuMemsetD8[twin](device_address(pointer), static_cast<unsigned char>(value), bytes);
  });
}

LULL_TWIN(cudaMemsetAsync, ptsz, (pointer, value, bytes, stream), void* pointer, int value,
          size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return record(ensure_context());
  return with_context([&](const Driver& d) {
    return d.cuMemsetD8Async[twin](device_address(pointer), static_cast<unsigned char>(value),
                                   bytes, stream);
  });
}

LULL_TWIN(cudaMemset2D, ptds, (pointer, pitch, value, width, height), void* pointer, size_t pitch,
          int value, size_t width, size_t height) {
  return with_context([&](const Driver& d) {
    return d.cuMemsetD2D8[twin](device_address(pointer), pitch, static_cast<unsigned char>(value),
                                width, height);
  });
}

LULL_TWIN(cudaMemset2DAsync, ptsz, (pointer, pitch, value, width, height, stream), void* pointer,
          size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    return d.cuMemsetD2D8Async[twin](device_address(pointer), pitch,
                                     static_cast<unsigned char>(value), width, height, stream);
  });
}

LULL_TWIN(cudaMemcpyToSymbol, ptds, (symbol, from, count, offset, kind), const void* symbol,
          const void* from, size_t count, size_t offset, cudaMemcpyKind kind) {
  return with_context([&](const Driver& d) {
    void* to = nullptr;
    const CUresult found = symbol_range(symbol, count, offset, &to);
    return found != CUDA_SUCCESS ? found : copy(d, twin, to, from, count, kind);
  });
}

LULL_TWIN(cudaMemcpyFromSymbol, ptds, (to, symbol, count, offset, kind), void* to,
          const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind) {
  return with_context([&](const Driver& d) {
    void* from = nullptr;
    const CUresult found = symbol_range(symbol, count, offset, &from);
    return found != CUDA_SUCCESS ? found : copy(d, twin, to, from, count, kind);
  });
}

LULL_TWIN(cudaMemcpyToSymbolAsync, ptsz, (symbol, from, count, offset, kind, stream),
          const void* symbol, const void* from, size_t count, size_t offset, cudaMemcpyKind kind,
          cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    void* to = nullptr;
    const CUresult found = symbol_range(symbol, count, offset, &to);
    return found != CUDA_SUCCESS ? found : copy_async(d, twin, to, from, count, kind, stream);
  });
}

LULL_TWIN(cudaMemcpyFromSymbolAsync, ptsz, (to, symbol, count, offset, kind, stream), void* to,
          const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
          cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    void* from = nullptr;
    const CUresult found = symbol_range(symbol, count, offset, &from);
    return found != CUDA_SUCCESS ? found : copy_async(d, twin, to, from, count, kind, stream);
  });
}

LULL_API cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return with_context([&](const Driver&) { return symbol_range(symbol, 0, 0, address); });
}

LULL_API cudaError_t cudaGetSymbolSize(size_t* size_bytes, const void* symbol) {
  return with_context([&](const Driver&) {
    CUdeviceptr address = 0;
    return static_cast<CUresult>(Registry::instance().variable(symbol, &address, size_bytes));
  });
}

LULL_TWIN(cudaMemPrefetchAsync, ptsz, (pointer, bytes, location, flags, stream),
          const void* pointer, size_t bytes, cudaMemLocation location, unsigned flags,
          cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    return d.cuMemPrefetchAsync[twin](device_address(pointer), bytes, driver_location(location),
                                      flags, stream);
  });
}

LULL_API cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice,
                                   cudaMemLocation location) {
  return with_context([&](const Driver& d) {
    return d.cuMemAdvise(device_address(pointer), bytes, static_cast<CUmem_advise>(advice),
                         driver_location(location));
  });
}

LULL_TWIN(cudaMallocAsync, ptsz, (pointer, bytes, stream), void** pointer, size_t bytes,
          cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    return d.cuMemAllocAsync[twin](reinterpret_cast<CUdeviceptr*>(pointer), bytes, stream);
  });
}

LULL_TWIN(cudaMallocFromPoolAsync, ptsz, (pointer, bytes, pool, stream), void** pointer,
          size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return with_context([&](const Driver& d) {
    return d.cuMemAllocFromPoolAsync[twin](reinterpret_cast<CUdeviceptr*>(pointer), bytes, pool,
                                           stream);
  });
}

LULL_TWIN(cudaFreeAsync, ptsz, (pointer, stream), void* pointer, cudaStream_t stream) {
  return with_context(
      [&](const Driver& d) { return d.cuMemFreeAsync[twin](device_address(pointer), stream); });
}

LULL_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return with_driver([&](const Driver& d) { return d.cuDeviceGetDefaultMemPool(pool, device); });
}

LULL_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return with_driver([&](const Driver& d) { return d.cuDeviceGetMemPool(pool, device); });
}

LULL_API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return with_driver([&](const Driver& d) { return d.cuDeviceSetMemPool(device, pool); });
}

LULL_API cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
  return with_driver([&](const Driver& d) {
    return d.cuMemPoolCreate(pool, reinterpret_cast<const CUmemPoolProps*>(properties));
  });
}

LULL_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return with_driver([&](const Driver& d) { return d.cuMemPoolDestroy(pool); });
}

LULL_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                             void* value) {
  return with_driver([&](const Driver& d) {
    return d.cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

LULL_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                             void* value) {
  return with_driver([&](const Driver& d) {
    return d.cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), value);
  });
}

LULL_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep) {
  return with_driver([&](const Driver& d) { return d.cuMemPoolTrimTo(pool, bytes_to_keep); });
}

LULL_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list,
                                          size_t count) {
  static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
  return with_driver([&](const Driver& d) {
    return d.cuMemPoolSetAccess(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count);
  });
}

LULL_API cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                          cudaMemLocation* location) {
  return with_driver([&](const Driver& d) {
    return d.cuMemPoolGetAccess(reinterpret_cast<CUmemAccess_flags*>(flags), pool,
                                reinterpret_cast<CUmemLocation*>(location));
  });
}

LULL_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                              const void* pointer) {
  if (attributes == nullptr) return record(cudaErrorInvalidValue);
  return with_context([&](const Driver& d) {
    CUmemorytype type{};
    int device = 0, managed = 0;
    CUdeviceptr device_pointer = 0;
    void* host_pointer = nullptr;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void* values[] = {&type, &device, &device_pointer, &host_pointer, &managed};
    const CUresult result = d.cuPointerGetAttributes(5, names, values, device_address(pointer));
    std::memset(attributes, 0, sizeof *attributes);
    attributes->device = device;
    attributes->devicePointer = reinterpret_cast<void*>(device_pointer);
    attributes->hostPointer = host_pointer;
    attributes->type = managed != 0                   ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                       : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                                      : cudaMemoryTypeUnregistered;
    if (attributes->type == cudaMemoryTypeUnregistered) {
      attributes->device = -2;
      attributes->hostPointer = const_cast<void*>(pointer);
    }
    return result;
  });
}

LULL_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
  return with_context([&](const Driver& d) {
    return d.cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), device_address(pointer));
  });
}

LULL_API cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle,
                                          unsigned flags) {
  CUipcMemHandle driver_handle;
  std::memcpy(&driver_handle, &handle, sizeof driver_handle);
  return with_context([&](const Driver& d) {
    return d.cuIpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(pointer), driver_handle, flags);
  });
}

LULL_API cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return with_context(
      [&](const Driver& d) { return d.cuIpcCloseMemHandle(device_address(pointer)); });
}
