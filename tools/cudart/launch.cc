#include "tools/cudart/launch.h"

#include <cstring>

using namespace lull::cudart;

namespace lull::cudart {
namespace {

// The driver calls a bad shape an invalid value; the runtime has a word of its own for it.
cudaError_t launch_error(CUresult result, dim3 grid, dim3 block) {
  if (result != CUDA_ERROR_INVALID_VALUE) return to_error(result);
  int max_threads = 1024;
  driver().cuDeviceGetAttribute(&max_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                thread_device());
  const auto threads = static_cast<unsigned long long>(block.x) * block.y * block.z;
  const bool bad = threads == 0 || threads > static_cast<unsigned long long>(max_threads) ||
                   block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
                   grid.z > 65535;
  return bad ? cudaErrorInvalidConfiguration : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch(Twin twin, CUkernel kernel, const LaunchShape& shape, void** arguments) {
  const cudaError_t status = ensure_context();
  if (status != cudaSuccess) return record(status);
  if (kernel == nullptr) return record(cudaErrorInvalidDeviceFunction);
  const Driver& d = driver();
  // A kernel handle may stand where the driver wants a function.
  const auto function = reinterpret_cast<CUfunction>(kernel);
  const auto& [grid, block, shared_bytes, stream, cooperative] = shape;
  const auto bytes = static_cast<unsigned>(shared_bytes);
  const CUresult result =
      cooperative ? d.cuLaunchCooperativeKernel[twin](function, grid.x, grid.y, grid.z, block.x,
                                                      block.y, block.z, bytes, stream, arguments)
                  : d.cuLaunchKernel[twin](function, grid.x, grid.y, grid.z, block.x, block.y,
                                           block.z, bytes, stream, arguments, nullptr);
  return record(launch_error(result, grid, block));
}

}  // namespace lull::cudart

namespace {

cudaError_t launch_by_address(Twin twin, const void* host_function, const LaunchShape& shape,
                              void** arguments) {
  CUkernel kernel = nullptr;
  const cudaError_t status = Registry::instance().kernel(host_function, &kernel);
  return status != cudaSuccess ? record(status) : launch(twin, kernel, shape, arguments);
}

CUlaunchConfig driver_configuration(const cudaLaunchConfig_t& from) {
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
  CUlaunchConfig to{};
  to.gridDimX = from.gridDim.x;
  to.gridDimY = from.gridDim.y;
  to.gridDimZ = from.gridDim.z;
  to.blockDimX = from.blockDim.x;
  to.blockDimY = from.blockDim.y;
  to.blockDimZ = from.blockDim.z;
  to.sharedMemBytes = static_cast<unsigned>(from.dynamicSmemBytes);
  to.hStream = from.stream;
  to.attrs = reinterpret_cast<CUlaunchAttribute*>(from.attrs);
  to.numAttrs = from.numAttrs;
  return to;
}

template <typename Call>
cudaError_t with_function(const void* host_function, Call&& call) {
  cudaError_t status = ensure_context();
  CUfunction function = nullptr;
  if (status == cudaSuccess) status = Registry::instance().function(host_function, &function);
  return record(status != cudaSuccess ? status : to_error(call(driver(), function)));
}

}  // namespace

LULL_TWIN(cudaLaunchKernel, ptsz, (func, grid, block, args, shared_bytes, stream), const void* func,
          dim3 grid, dim3 block, void** args, size_t shared_bytes, cudaStream_t stream) {
  return launch_by_address(twin, func, {grid, block, shared_bytes, stream, false}, args);
}

LULL_TWIN(cudaLaunchCooperativeKernel, ptsz, (func, grid, block, args, shared_bytes, stream),
          const void* func, dim3 grid, dim3 block, void** args, size_t shared_bytes,
          cudaStream_t stream) {
  return launch_by_address(twin, func, {grid, block, shared_bytes, stream, true}, args);
}

LULL_TWIN(cudaLaunchKernelExC, ptsz, (config, func, args), const cudaLaunchConfig_t* config,
          const void* func, void** args) {
  if (config == nullptr) return record(cudaErrorInvalidValue);
  CUkernel kernel = nullptr;
  const cudaError_t status = Registry::instance().kernel(func, &kernel);
  if (status != cudaSuccess) return record(status);
  const CUlaunchConfig configuration = driver_configuration(*config);
  return with_context([&](const Driver& d) {
    return d.cuLaunchKernelEx[twin](&configuration, reinterpret_cast<CUfunction>(kernel), args,
                                    nullptr);
  });
}

LULL_TWIN(cudaLaunchHostFunc, ptsz, (stream, fn, data), cudaStream_t stream, cudaHostFn_t fn,
          void* data) {
  return with_context([&](const Driver& d) { return d.cuLaunchHostFunc[twin](stream, fn, data); });
}

LULL_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* func) {
  if (attributes == nullptr) return record(cudaErrorInvalidValue);
  return with_function(func, [&](const Driver& d, CUfunction function) {
    std::memset(attributes, 0, sizeof *attributes);
    CUresult result = CUDA_SUCCESS;
    const auto ask = [&](CUfunction_attribute attribute, auto& field) {
      int value = 0;
      const CUresult answer = d.cuFuncGetAttribute(&value, attribute, function);
      if (answer == CUDA_SUCCESS) {
        field = static_cast<std::remove_reference_t<decltype(field)>>(value);
      } else if (attribute <= CU_FUNC_ATTRIBUTE_BINARY_VERSION && result == CUDA_SUCCESS) {
        result = answer;  // the later ones may be unknown to an older driver
      }
    };
    ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, attributes->maxThreadsPerBlock);
    ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, attributes->sharedSizeBytes);
    ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, attributes->constSizeBytes);
    ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, attributes->localSizeBytes);
    ask(CU_FUNC_ATTRIBUTE_NUM_REGS, attributes->numRegs);
    ask(CU_FUNC_ATTRIBUTE_PTX_VERSION, attributes->ptxVersion);
    ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION, attributes->binaryVersion);
    ask(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, attributes->cacheModeCA);
    ask(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, attributes->maxDynamicSharedSizeBytes);
    ask(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, attributes->preferredShmemCarveout);
    ask(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, attributes->clusterDimMustBeSet);
    ask(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, attributes->requiredClusterWidth);
    ask(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, attributes->requiredClusterHeight);
    ask(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, attributes->requiredClusterDepth);
    ask(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        attributes->clusterSchedulingPolicyPreference);
    ask(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
        attributes->nonPortableClusterSizeAllowed);
    return result;
  });
}

LULL_API cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attribute,
                                          int value) {
  return with_function(func, [&](const Driver& d, CUfunction function) {
    return d.cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(attribute), value);
  });
}

LULL_API cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache config) {
  CUkernel kernel = nullptr;
  const cudaError_t status = Registry::instance().kernel(func, &kernel);
  if (status != cudaSuccess) return record(status);
  return with_context([&](const Driver& d) {
    return d.cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(config), thread_device());
  });
}

LULL_API cudaError_t cudaFuncGetParamInfo(const void* func, size_t index, size_t* offset_bytes,
                                          size_t* size_bytes) {
  CUkernel kernel = nullptr;
  const cudaError_t status = Registry::instance().kernel(func, &kernel);
  if (status != cudaSuccess) return record(status);
  return with_context([&](const Driver& d) {
    return d.cuKernelGetParamInfo(kernel, index, offset_bytes, size_bytes);
  });
}

LULL_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  return with_function(symbol, [&](const Driver&, CUfunction found) {
    *function = found;
    return CUDA_SUCCESS;
  });
}

LULL_API cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* func) {
  return record(Registry::instance().kernel(func, reinterpret_cast<CUkernel*>(kernel)));
}

LULL_API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                     cudaFuncAttribute attribute, int value,
                                                     int device) {
  return with_driver([&](const Driver& d) {
    return d.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value,
                                  reinterpret_cast<CUkernel>(kernel), device);
  });
}

LULL_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* func, int block_size, size_t shared_bytes, unsigned flags) {
  return with_function(func, [&](const Driver& d, CUfunction function) {
    return d.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                  shared_bytes, flags);
  });
}

LULL_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* func,
                                                                   int block_size,
                                                                   size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, func, block_size,
                                                                shared_bytes, 0);
}

LULL_API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* func,
                                                               int blocks, int block_size) {
  return with_function(func, [&](const Driver& d, CUfunction function) {
    return d.cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, block_size);
  });
}

LULL_API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* func,
                                                          const cudaLaunchConfig_t* config) {
  const CUlaunchConfig configuration = driver_configuration(*config);
  return with_function(func, [&](const Driver& d, CUfunction function) {
    return d.cuOccupancyMaxPotentialClusterSize(size, function, &configuration);
  });
}

LULL_API cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* func,
                                                    const cudaLaunchConfig_t* config) {
  const CUlaunchConfig configuration = driver_configuration(*config);
  return with_function(func, [&](const Driver& d, CUfunction function) {
    return d.cuOccupancyMaxActiveClusters(clusters, function, &configuration);
  });
}
