#include "tools/cudart/runtime.h"

#include <algorithm>
#include <mutex>
#include <new>

namespace lull::cudart {
namespace {

thread_local int chosen_device = 0;
thread_local cudaError_t thread_error = cudaSuccess;

struct Primaries {
  std::mutex mutex;
  std::atomic<CUcontext> contexts[kMaxDevices] = {};
};

Primaries& primaries() {
  alignas(Primaries) static unsigned char storage[sizeof(Primaries)];
  static Primaries* const built = new (storage) Primaries;
  return *built;
}

// The wrapper nvcc puts around a fat binary.
struct FatBinaryWrapper {
  int magic;
  int version;
  const void* image;
  const void* more;
};
constexpr int kWrapperMagic = 0x466243b1;

}  // namespace

cudaError_t record(cudaError_t error) {
  if (error != cudaSuccess) thread_error = error;
  return error;
}

cudaError_t last_error(bool clear) {
  const cudaError_t error = thread_error;
  if (clear) thread_error = cudaSuccess;
  return error;
}

cudaError_t primary_context(int device, CUcontext* context) {
  if (device < 0 || device >= kMaxDevices) return cudaErrorInvalidDevice;
  Primaries& all = primaries();
  // Acquire pairs with the release below: the context is whole before its pointer is seen.
  *context = all.contexts[device].load(std::memory_order_acquire);
  if (*context != nullptr) return cudaSuccess;
  const std::lock_guard lock(all.mutex);
  *context = all.contexts[device].load(std::memory_order_relaxed);
  if (*context != nullptr) return cudaSuccess;
  CUdevice handle = 0;
  CUresult result = driver().cuDeviceGet(&handle, device);
  if (result == CUDA_SUCCESS) result = driver().cuDevicePrimaryCtxRetain(context, handle);
  if (result == CUDA_SUCCESS) all.contexts[device].store(*context, std::memory_order_release);
  return to_error(result);
}

int thread_device() {
  CUcontext current = nullptr;
  CUdevice device = 0;
  if (driver_status() == cudaSuccess && driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
      current != nullptr && driver().cuCtxGetDevice(&device) == CUDA_SUCCESS) {
    return device;
  }
  return chosen_device;
}

cudaError_t ensure_context() {
  cudaError_t status = driver_status();
  if (status != cudaSuccess) return status;
  CUcontext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return cudaSuccess;
  status = primary_context(chosen_device, &current);
  return status != cudaSuccess ? status : to_error(driver().cuCtxSetCurrent(current));
}

cudaError_t select_device(int device) {
  const cudaError_t status = driver_status();
  if (status != cudaSuccess) return status;
  int count = 0;
  const CUresult counted = driver().cuDeviceGetCount(&count);
  if (counted != CUDA_SUCCESS) return to_error(counted);
  if (device < 0 || device >= count) return cudaErrorInvalidDevice;
  CUcontext context = nullptr;
  const cudaError_t retained = primary_context(device, &context);
  if (retained != cudaSuccess) return retained;
  chosen_device = device;
  return to_error(driver().cuCtxSetCurrent(context));
}

cudaError_t reset_device() {
  const cudaError_t status = driver_status();
  if (status != cudaSuccess) return status;
  const int device = thread_device();
  if (device < 0 || device >= kMaxDevices) return cudaErrorInvalidDevice;
  Primaries& all = primaries();
  const std::lock_guard lock(all.mutex);
  const CUcontext context = all.contexts[device].exchange(nullptr, std::memory_order_acq_rel);
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  if (context != nullptr && current == context) driver().cuCtxSetCurrent(nullptr);
  if (context != nullptr) driver().cuDevicePrimaryCtxRelease(device);
  return to_error(driver().cuDevicePrimaryCtxReset(device));
}

Registry& Registry::instance() {
  alignas(Registry) static unsigned char storage[sizeof(Registry)];
  static Registry* const built = new (storage) Registry;
  return *built;
}

FatBinary* Registry::add_image(const void* wrapper) {
  auto* image = new FatBinary;
  const auto* wrapped = static_cast<const FatBinaryWrapper*>(wrapper);
  image->image = wrapped->magic == kWrapperMagic ? wrapped->image : wrapper;
  return image;
}

void Registry::remove_image(FatBinary* image) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kernels_, [&](const auto& entry) { return entry.second.image == image; });
  std::erase_if(variables_, [&](const auto& entry) { return entry.second.image == image; });
  std::erase_if(host_of_handle_,
                [&](const auto& entry) { return !kernels_.contains(entry.second); });
  if (image->library != nullptr) driver().cuLibraryUnload(image->library);
  delete image;
}

void Registry::add_kernel(FatBinary* image, const void* host_function, const char* device_name) {
  const std::lock_guard lock(mutex_);
  kernels_[host_function] = Kernel{image, device_name};
}

void Registry::add_variable(FatBinary* image, const void* host_variable, const char* device_name,
                            size_t bytes, void** managed_pointer) {
  const std::lock_guard lock(mutex_);
  variables_[host_variable] = Variable{image, device_name, bytes, managed_pointer};
}

cudaError_t Registry::load(FatBinary* image) {
  const cudaError_t status = driver_status();
  if (status != cudaSuccess) return status;
  if (image->library == nullptr && image->load_result == CUDA_SUCCESS) {
    image->load_result = driver().cuLibraryLoadData(&image->library, image->image, nullptr, nullptr,
                                                    0, nullptr, nullptr, 0);
  }
  return to_error(image->load_result);
}

cudaError_t Registry::kernel(const void* host_function, CUkernel* kernel) {
  {
    const std::shared_lock lock(mutex_);
    const auto found = kernels_.find(host_function);
    if (found != kernels_.end() && found->second.kernel != nullptr) {
      *kernel = found->second.kernel;
      return cudaSuccess;
    }
    if (host_of_handle_.contains(host_function)) {
      *kernel = reinterpret_cast<CUkernel>(const_cast<void*>(host_function));
      return cudaSuccess;
    }
  }
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(host_function);
  if (found == kernels_.end()) return cudaErrorInvalidDeviceFunction;
  Kernel& entry = found->second;
  if (entry.kernel == nullptr) {
    const cudaError_t loaded = load(entry.image);
    if (loaded != cudaSuccess) return loaded;
    const CUresult result =
        driver().cuLibraryGetKernel(&entry.kernel, entry.image->library, entry.name.c_str());
    if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidDeviceFunction;
    if (result != CUDA_SUCCESS) return to_error(result);
    host_of_handle_[entry.kernel] = host_function;
  }
  *kernel = entry.kernel;
  return cudaSuccess;
}

cudaError_t Registry::function(const void* host_function, CUfunction* function) {
  CUkernel handle = nullptr;
  const cudaError_t status = kernel(host_function, &handle);
  if (status != cudaSuccess) return status;
  const CUresult result = driver().cuKernelGetFunction(function, handle);
  if (result != CUDA_SUCCESS) return to_error(result);
  const std::lock_guard lock(mutex_);
  if (const auto host = host_of_handle_.find(handle); host != host_of_handle_.end()) {
    const void* const owner = host->second;
    host_of_handle_[*function] = owner;
  }
  return cudaSuccess;
}

const void* Registry::host_function_of(CUkernel kernel, CUfunction function) {
  const std::shared_lock lock(mutex_);
  for (const void* handle :
       {static_cast<const void*>(kernel), static_cast<const void*>(function)}) {
    const auto found = host_of_handle_.find(handle);
    if (handle != nullptr && found != host_of_handle_.end()) return found->second;
  }
  return nullptr;
}

cudaError_t Registry::variable(const void* host_variable, CUdeviceptr* address, size_t* bytes) {
  const std::lock_guard lock(mutex_);
  auto found = variables_.find(host_variable);
  if (found == variables_.end()) {
    // nvcc replaces a managed variable by what its pointer points to.
    found = std::find_if(variables_.begin(), variables_.end(), [&](const auto& entry) {
      return entry.second.managed_pointer != nullptr &&
             *entry.second.managed_pointer == host_variable;
    });
  }
  if (found == variables_.end()) return cudaErrorInvalidSymbol;
  Variable& entry = found->second;
  const cudaError_t loaded = load(entry.image);
  if (loaded != cudaSuccess) return loaded;
  size_t device_bytes = 0;
  const CUresult result =
      entry.managed_pointer != nullptr
          ? driver().cuLibraryGetManaged(address, &device_bytes, entry.image->library,
                                         entry.name.c_str())
          : driver().cuLibraryGetGlobal(address, &device_bytes, entry.image->library,
                                        entry.name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) return cudaErrorInvalidSymbol;
  *bytes = entry.bytes != 0 ? entry.bytes : device_bytes;
  return to_error(result);
}

cudaError_t Registry::place_managed(FatBinary* image) {
  const std::lock_guard lock(mutex_);
  for (auto& [host_variable, entry] : variables_) {
    if (entry.image != image || entry.managed_pointer == nullptr) continue;
    const cudaError_t loaded = load(image);
    if (loaded != cudaSuccess) return loaded;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const CUresult result =
        driver().cuLibraryGetManaged(&address, &bytes, image->library, entry.name.c_str());
    if (result != CUDA_SUCCESS) return to_error(result);
    *entry.managed_pointer = reinterpret_cast<void*>(address);
  }
  return cudaSuccess;
}

}  // namespace lull::cudart
