// Devices, versions, errors and the driver's own entry points.
#include <cstring>

#include "tools/cudart/runtime.h"

using namespace lull::cudart;

namespace {

struct ErrorRow {
  int value;
  const char* name;
  const char* text;
};
constexpr ErrorRow kErrors[] = {
#define LULL_ERROR(value, name, text) {value, #name, text},
#include "tools/cudart/errors.def"
};

const ErrorRow* error_row(cudaError_t error) {
  for (const ErrorRow& row : kErrors) {
    if (row.value == static_cast<int>(error)) return &row;
  }
  return nullptr;
}

// A property that is one attribute of the driver's.
template <typename Field>
void ask(int device, CUdevice_attribute attribute, Field& field) {
  int value = 0;
  if (driver().cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS) {
    field = static_cast<Field>(value);
  }
}

CUresult fill_properties(cudaDeviceProp& p, CUdevice device) {
  std::memset(&p, 0, sizeof p);
  const Driver& d = driver();
  CUresult result = d.cuDeviceGetName(p.name, sizeof p.name, device);
  if (result == CUDA_SUCCESS) result = d.cuDeviceTotalMem(&p.totalGlobalMem, device);
  if (result != CUDA_SUCCESS) return result;
  static_assert(sizeof p.uuid == sizeof(CUuuid));
  d.cuDeviceGetUuid(reinterpret_cast<CUuuid*>(&p.uuid), device);
#define LULL_ASK(field, attribute) ask(device, CU_DEVICE_ATTRIBUTE_##attribute, p.field)
  LULL_ASK(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
  LULL_ASK(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
  LULL_ASK(warpSize, WARP_SIZE);
  LULL_ASK(memPitch, MAX_PITCH);
  LULL_ASK(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
  LULL_ASK(maxThreadsDim[0], MAX_BLOCK_DIM_X);
  LULL_ASK(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
  LULL_ASK(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
  LULL_ASK(maxGridSize[0], MAX_GRID_DIM_X);
  LULL_ASK(maxGridSize[1], MAX_GRID_DIM_Y);
  LULL_ASK(maxGridSize[2], MAX_GRID_DIM_Z);
  LULL_ASK(totalConstMem, TOTAL_CONSTANT_MEMORY);
  LULL_ASK(major, COMPUTE_CAPABILITY_MAJOR);
  LULL_ASK(minor, COMPUTE_CAPABILITY_MINOR);
  LULL_ASK(textureAlignment, TEXTURE_ALIGNMENT);
  LULL_ASK(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
  LULL_ASK(multiProcessorCount, MULTIPROCESSOR_COUNT);
  LULL_ASK(integrated, INTEGRATED);
  LULL_ASK(canMapHostMemory, CAN_MAP_HOST_MEMORY);
  LULL_ASK(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH);
  LULL_ASK(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH);
  LULL_ASK(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT);
  LULL_ASK(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH);
  LULL_ASK(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT);
  LULL_ASK(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH);
  LULL_ASK(surfaceAlignment, SURFACE_ALIGNMENT);
  LULL_ASK(concurrentKernels, CONCURRENT_KERNELS);
  LULL_ASK(ECCEnabled, ECC_ENABLED);
  LULL_ASK(pciBusID, PCI_BUS_ID);
  LULL_ASK(pciDeviceID, PCI_DEVICE_ID);
  LULL_ASK(pciDomainID, PCI_DOMAIN_ID);
  LULL_ASK(tccDriver, TCC_DRIVER);
  LULL_ASK(asyncEngineCount, ASYNC_ENGINE_COUNT);
  LULL_ASK(unifiedAddressing, UNIFIED_ADDRESSING);
  LULL_ASK(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
  LULL_ASK(l2CacheSize, L2_CACHE_SIZE);
  LULL_ASK(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE);
  LULL_ASK(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
  LULL_ASK(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
  LULL_ASK(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED);
  LULL_ASK(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED);
  LULL_ASK(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  LULL_ASK(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
  LULL_ASK(managedMemory, MANAGED_MEMORY);
  LULL_ASK(isMultiGpuBoard, MULTI_GPU_BOARD);
  LULL_ASK(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID);
  LULL_ASK(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED);
  LULL_ASK(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS);
  LULL_ASK(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
  LULL_ASK(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED);
  LULL_ASK(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  LULL_ASK(cooperativeLaunch, COOPERATIVE_LAUNCH);
  LULL_ASK(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  LULL_ASK(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  LULL_ASK(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
  LULL_ASK(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
  LULL_ASK(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE);
  LULL_ASK(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
  LULL_ASK(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
  LULL_ASK(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
  LULL_ASK(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES);
  LULL_ASK(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED);
  LULL_ASK(ipcEventSupported, IPC_EVENT_SUPPORTED);
  LULL_ASK(clusterLaunch, CLUSTER_LAUNCH);
  LULL_ASK(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS);
#undef LULL_ASK
  return CUDA_SUCCESS;
}

}  // namespace

LULL_API cudaError_t cudaGetLastError() { return last_error(/*clear=*/true); }
LULL_API cudaError_t cudaPeekAtLastError() { return last_error(/*clear=*/false); }

LULL_API const char* cudaGetErrorName(cudaError_t error) {
  const ErrorRow* row = error_row(error);
  return row != nullptr ? row->name : "unrecognized error code";
}

LULL_API const char* cudaGetErrorString(cudaError_t error) {
  const ErrorRow* row = error_row(error);
  return row != nullptr ? row->text : "unrecognized error code";
}

LULL_API cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return record(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// 0 when there is no driver, as documented.
LULL_API cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return record(cudaErrorInvalidValue);
  *version = 0;
  driver().cuDriverGetVersion(version);
  return cudaSuccess;
}

LULL_API cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return record(cudaErrorInvalidValue);
  *count = 0;
  const cudaError_t status =
      with_driver([&](const Driver& d) { return d.cuDeviceGetCount(count); });
  return status == cudaSuccess && *count == 0 ? record(cudaErrorNoDevice) : status;
}

LULL_API cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return record(cudaErrorInvalidValue);
  const cudaError_t status = driver_status();
  if (status != cudaSuccess) return record(status);
  *device = thread_device();
  return cudaSuccess;
}

LULL_API cudaError_t cudaSetDevice(int device) { return record(select_device(device)); }

LULL_API cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
  if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
    const cudaError_t set = with_driver(
        [&](const Driver& d) { return d.cuDevicePrimaryCtxSetFlags(device, device_flags); });
    if (set != cudaSuccess) return set;
  }
  const cudaError_t status = driver_status();
  CUcontext context = nullptr;
  return record(status != cudaSuccess ? status : primary_context(device, &context));
}

LULL_API cudaError_t cudaSetValidDevices(int*, int) { return record(driver_status()); }

LULL_API cudaError_t cudaDeviceReset() { return record(reset_device()); }

LULL_API cudaError_t cudaDeviceSynchronize() {
  return with_context([](const Driver& d) { return d.cuCtxSynchronize(); });
}

LULL_API cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return with_driver(
      [&](const Driver& d) { return d.cuDevicePrimaryCtxSetFlags(thread_device(), flags); });
}

LULL_API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return with_driver([&](const Driver& d) {
    int active = 0;
    return d.cuDevicePrimaryCtxGetState(thread_device(), flags, &active);
  });
}

LULL_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (properties == nullptr) return record(cudaErrorInvalidValue);
  return with_driver([&](const Driver& d) {
    CUdevice handle = 0;
    const CUresult result = d.cuDeviceGet(&handle, device);
    return result != CUDA_SUCCESS ? result : fill_properties(*properties, handle);
  });
}

// The device with the most multiprocessors: the only wish that can be compared without a model.
LULL_API cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  if (device == nullptr) return record(cudaErrorInvalidValue);
  return with_driver([&](const Driver& d) {
    int count = 0, most = -1;
    const CUresult result = d.cuDeviceGetCount(&count);
    for (int i = 0; i < count; ++i) {
      int processors = 0;
      ask(i, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, processors);
      if (processors > most) *device = i, most = processors;
    }
    return result;
  });
}

LULL_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return with_driver([&](const Driver& d) {
    return d.cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

LULL_API cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return with_context(
      [&](const Driver& d) { return d.cuCtxGetLimit(value, static_cast<CUlimit>(limit)); });
}

LULL_API cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return with_context(
      [&](const Driver& d) { return d.cuCtxSetLimit(static_cast<CUlimit>(limit), value); });
}

LULL_API cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return with_context([&](const Driver& d) {
    return d.cuCtxGetCacheConfig(reinterpret_cast<CUfunc_cache*>(config));
  });
}

LULL_API cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return with_context(
      [&](const Driver& d) { return d.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(config)); });
}

LULL_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return with_context(
      [&](const Driver& d) { return d.cuCtxGetStreamPriorityRange(least, greatest); });
}

LULL_API cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return with_driver([&](const Driver& d) { return d.cuDeviceGetPCIBusId(text, bytes, device); });
}

LULL_API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return with_driver([&](const Driver& d) { return d.cuDeviceGetByPCIBusId(device, text); });
}

LULL_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_driver([&](const Driver& d) { return d.cuDeviceCanAccessPeer(can, device, peer); });
}

LULL_API cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int source,
                                               int destination) {
  return with_driver([&](const Driver& d) {
    return d.cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(attribute), source,
                                     destination);
  });
}

LULL_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return with_context([&](const Driver& d) {
    CUcontext context = nullptr;
    const cudaError_t status = primary_context(peer, &context);
    return status != cudaSuccess ? static_cast<CUresult>(status)
                                 : d.cuCtxEnablePeerAccess(context, flags);
  });
}

LULL_API cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return with_context([&](const Driver& d) {
    CUcontext context = nullptr;
    const cudaError_t status = primary_context(peer, &context);
    return status != cudaSuccess ? static_cast<CUresult>(status)
                                 : d.cuCtxDisablePeerAccess(context);
  });
}

LULL_TWIN(cudaGetDriverEntryPointByVersion, ptsz, (symbol, function, version, flags, status),
          const char* symbol, void** function, unsigned version, unsigned long long flags,
          cudaDriverEntryPointQueryResult* status) {
  cuuint64_t chosen = flags;
  if (flags == cudaEnableDefault && twin == kPerThread) {
    chosen = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  }
  return with_driver([&](const Driver& d) {
    if (d.get_proc_address == nullptr) return CUDA_ERROR_NOT_FOUND;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result =
        d.get_proc_address(symbol, function, static_cast<int>(version), chosen, &found);
    if (status == nullptr) return result;
    *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
  });
}

LULL_TWIN(cudaGetDriverEntryPoint, ptsz, (symbol, function, flags, status), const char* symbol,
          void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion_body(twin, symbol, function, CUDART_VERSION, flags,
                                               status);
}

// Profilers attach below this runtime.
LULL_API cudaError_t cudaProfilerStart() { return cudaSuccess; }
LULL_API cudaError_t cudaProfilerStop() { return cudaSuccess; }
