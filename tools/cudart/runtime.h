// What the runtime keeps: per thread the device and the last error, per process the primary
// contexts and everything nvcc's generated code registered (fat binaries, kernels, variables).
//
//   registered ---first use---> library loaded ---first launch---> CUkernel
//   (ELF constructors)          (cuLibraryLoadData)                (cuLibraryGetKernel)
//
// Registration runs before other constructors do, so all of it is built on first use and never
// destroyed. Called from any thread, by the entry points of this folder. A program may hold several
// copies of this runtime (shared beside static): nothing here is visible outside its own copy.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "tools/cudart/driver.h"

// An exported entry point. In the archive (hidden visibility) it stays inside its executable.
#ifdef LULL_CUDART_SHARED
#define LULL_API extern "C" __attribute__((visibility("default")))
#else
#define LULL_API extern "C"
#endif

// An entry point with its per-thread twin; the body that follows sees `twin`.
//   LULL_TWIN(cudaStreamQuery, ptsz, (stream), cudaStream_t stream) { ... }
#define LULL_UNWRAP(...) __VA_ARGS__
#define LULL_TWIN(name, suffix, arguments, ...)                                                  \
  static cudaError_t name##_body(Twin twin, __VA_ARGS__);                                        \
  LULL_API cudaError_t name(__VA_ARGS__) { return name##_body(kLegacy, LULL_UNWRAP arguments); } \
  LULL_API cudaError_t name##_##suffix(__VA_ARGS__) {                                            \
    return name##_body(kPerThread, LULL_UNWRAP arguments);                                       \
  }                                                                                              \
  static cudaError_t name##_body([[maybe_unused]] Twin twin, __VA_ARGS__)

namespace lull::cudart {

constexpr int kMaxDevices = 64;

// Driver and runtime number their errors alike.
inline cudaError_t to_error(CUresult result) { return static_cast<cudaError_t>(result); }

// Remembers a failure for cudaGetLastError and hands `error` on.
cudaError_t record(cudaError_t error);
cudaError_t last_error(bool clear);

// Makes the calling thread's device current: whatever context the program made current itself,
// else the primary context of the device chosen by cudaSetDevice (0 at first).
cudaError_t ensure_context();
int thread_device();
cudaError_t select_device(int device);  // cudaSetDevice
cudaError_t reset_device();             // cudaDeviceReset
cudaError_t primary_context(int device, CUcontext* context);

// Runs `call(driver)` with the driver ready, or with a context current, and records its error.
template <typename Call>
cudaError_t with_driver(Call&& call) {
  const cudaError_t status = driver_status();
  return record(status != cudaSuccess ? status : to_error(call(driver())));
}
template <typename Call>
cudaError_t with_context(Call&& call) {
  const cudaError_t status = ensure_context();
  return record(status != cudaSuccess ? status : to_error(call(driver())));
}

struct FatBinary {
  const void* image = nullptr;
  CUlibrary library = nullptr;
  CUresult load_result = CUDA_SUCCESS;
};

// The table of what nvcc registered, by host address.
class Registry {
 public:
  static Registry& instance();

  FatBinary* add_image(const void* wrapper);
  void remove_image(FatBinary* image);
  void add_kernel(FatBinary* image, const void* host_function, const char* device_name);
  void add_variable(FatBinary* image, const void* host_variable, const char* device_name,
                    size_t bytes, void** managed_pointer);

  // The kernel behind a __global__ function's host address (or behind a kernel handle passed in
  // its place, which the API allows). Needs no context.
  cudaError_t kernel(const void* host_function, CUkernel* kernel);
  cudaError_t function(const void* host_function, CUfunction* function);  // needs a context
  const void* host_function_of(CUkernel kernel, CUfunction function);     // null when unknown
  cudaError_t variable(const void* host_variable, CUdeviceptr* address, size_t* bytes);
  // Gives the __managed__ variables of an image their addresses.
  cudaError_t place_managed(FatBinary* image);

 private:
  struct Kernel {
    FatBinary* image;
    std::string name;
    CUkernel kernel = nullptr;
  };
  struct Variable {
    FatBinary* image;
    std::string name;
    size_t bytes;
    void** managed_pointer;
  };

  cudaError_t load(FatBinary* image);  // with mutex_ held

  std::shared_mutex mutex_;
  std::unordered_map<const void*, Kernel> kernels_;
  std::unordered_map<const void*, const void*> host_of_handle_;  // CUkernel or CUfunction
  std::unordered_map<const void*, Variable> variables_;
};

}  // namespace lull::cudart
