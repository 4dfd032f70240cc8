// What nvcc's generated host code calls: registration from ELF constructors, launch configuration
// (`<<<>>>` pushes, the kernel's stub pops) and the launch itself.
#include "tools/cudart/launch.h"
#include "tools/cudart/runtime.h"

using namespace lull::cudart;

namespace {

constexpr int kMaxNestedConfigurations = 16;

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local Configuration configurations[kMaxNestedConfigurations];
thread_local int configuration_count = 0;

FatBinary* image_of(void** handle) { return reinterpret_cast<FatBinary*>(handle); }

}  // namespace

LULL_API void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(Registry::instance().add_image(wrapper));
}

LULL_API void __cudaRegisterFatBinaryEnd(void**) {}

LULL_API void __cudaUnregisterFatBinary(void** handle) {
  Registry::instance().remove_image(image_of(handle));
}

LULL_API void __cudaRegisterFunction(void** handle, const char* host_function, char*,
                                     const char* device_name, int, uint3*, uint3*, dim3*, dim3*,
                                     int*) {
  Registry::instance().add_kernel(image_of(handle), host_function, device_name);
}

LULL_API void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* device_name,
                                int, size_t bytes, int, int) {
  Registry::instance().add_variable(image_of(handle), host_variable, device_name, bytes, nullptr);
}

LULL_API void __cudaRegisterManagedVar(void** handle, void** host_pointer, char*,
                                       const char* device_name, int, size_t bytes, int, int) {
  Registry::instance().add_variable(image_of(handle), host_pointer, device_name, bytes,
                                    host_pointer);
}

// Host variables that device code may name: nothing to do until device code asks for one.
LULL_API void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

LULL_API char __cudaInitModule(void** handle) {
  if (record(ensure_context()) != cudaSuccess) return 0;
  return record(Registry::instance().place_managed(image_of(handle))) == cudaSuccess;
}

LULL_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                              CUstream_st* stream) {
  if (configuration_count == kMaxNestedConfigurations) return 1;
  configurations[configuration_count++] = {grid, block, shared_bytes, stream};
  return 0;
}

LULL_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                void* stream) {
  if (configuration_count == 0) return record(cudaErrorMissingConfiguration);
  const Configuration& top = configurations[--configuration_count];
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

// The stub keeps the handle in a static of its own. When the device is not there the launch that
// follows meets a null handle and says why.
LULL_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  return record(Registry::instance().kernel(host_function, reinterpret_cast<CUkernel*>(kernel)));
}

LULL_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                        void** arguments, size_t shared_bytes,
                                        cudaStream_t stream) {
  return launch(kLegacy, reinterpret_cast<CUkernel>(kernel),
                {grid, block, shared_bytes, stream, /*cooperative=*/false}, arguments);
}

LULL_API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block,
                                             void** arguments, size_t shared_bytes,
                                             cudaStream_t stream) {
  return launch(kPerThread, reinterpret_cast<CUkernel>(kernel),
                {grid, block, shared_bytes, stream, /*cooperative=*/false}, arguments);
}
