#include "tools/simgpu/driver/module.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/work.h"

namespace simgpu::driver {
namespace {

std::shared_ptr<Module> make_module(State& state, std::shared_ptr<const Image> image,
                                    Context& context, CUresult& error) {
  auto module = std::make_shared<Module>();
  module->handle = state.new_handle();
  module->context = context.shared_from_this();
  module->image = std::move(image);
  for (const ImageGlobal& global : module->image->globals) {
    MemoryRange range;
    range.size_bytes = global.size_bytes;
    range.kind = global.managed ? MemoryKind::kManaged : MemoryKind::kDevice;
    range.device = context.device;
    range.context = context.handle;
    const uint64_t bytes = MemoryMap::reserved_bytes(global.size_bytes);
    error = to_result(state.device->allocate(context.engine, bytes));
    if (error != CUDA_SUCCESS) return nullptr;
    const uint64_t address = state.memory.add_device(range);
    if (address == 0) {
      error = CUDA_ERROR_OUT_OF_MEMORY;
      return nullptr;
    }
    const auto still = state.memory.hold_still();
    state.memory.touch(address, global.size_bytes, Touch::kWrite, context.device);
    std::memset(reinterpret_cast<void*>(address), 0, global.size_bytes);
    std::memcpy(reinterpret_cast<void*>(address), global.initial.data(),
                std::min<size_t>(global.initial.size(), global.size_bytes));
    module->globals[global.name] = {address, global.size_bytes};
  }
  state.modules.add(module);
  error = CUDA_SUCCESS;
  return module;
}

void unload(State& state, Module& module) {
  const auto context = module.context.lock();
  for (const auto& [name, global] : module.globals) {
    const auto range = state.memory.remove(global.address);
    if (range && context) state.device->release(context->engine, range->reserved_bytes);
  }
  for (const auto& [name, function] : module.functions) state.functions.remove(function->handle);
  state.modules.remove(module.handle);
}

}  // namespace

std::shared_ptr<Module> instantiate_library(State& state, Library& library, Context& context,
                                            CUresult& error) {
  error = CUDA_SUCCESS;
  const auto found = library.modules.find(context.handle);
  if (found != library.modules.end()) return found->second;
  auto module = make_module(state, library.image, context, error);
  if (!module) return nullptr;
  module->library = library.handle;
  library.modules[context.handle] = module;
  return module;
}

std::shared_ptr<Function> module_function(State& state, Module& module, std::string_view name) {
  const auto known = module.functions.find(name);
  if (known != module.functions.end()) return known->second;
  const auto kernel = std::ranges::find(module.image->kernels, name, &ImageKernel::name);
  if (kernel == module.image->kernels.end()) return nullptr;
  auto function = std::make_shared<Function>();
  function->handle = state.new_handle();
  function->module = state.modules.find(module.handle);
  function->image = module.image;
  function->kernel = &*kernel;
  state.functions.add(function);
  module.functions[kernel->name] = function;
  return function;
}

}  // namespace simgpu::driver

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
using simgpu::DeviceProfile;

constexpr int kRegistersPerThread = 32;

std::expected<std::vector<char>, CUresult> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::unexpected(CUDA_ERROR_FILE_NOT_FOUND);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return bytes;
}

CUresult load_module(CUmodule* out, const void* data, std::optional<size_t> size) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr || data == nullptr) return kWrong;
  auto image = read_image(data, size);
  if (!image) return image.error();
  CUresult error;
  const auto module =
      make_module(call.state, std::make_shared<Image>(std::move(*image)), *call.context, error);
  if (!module) return error;
  *out = to_handle<CUmodule>(module->handle);
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* out, const void* data, std::optional<size_t> size) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || data == nullptr) return kWrong;
  auto image = read_image(data, size);
  if (!image) return image.error();
  auto library = std::make_shared<Library>();
  library->handle = call.state.new_handle();
  library->image = std::make_shared<Image>(std::move(*image));
  call.state.libraries.add(library);
  *out = to_handle<CUlibrary>(library->handle);
  return CUDA_SUCCESS;
}

std::shared_ptr<Kernel> library_kernel(State& state, const std::shared_ptr<Library>& library,
                                       std::string_view name) {
  const auto known = library->kernels.find(name);
  if (known != library->kernels.end()) return known->second;
  const auto found = std::ranges::find(library->image->kernels, name, &ImageKernel::name);
  if (found == library->image->kernels.end()) return nullptr;
  auto kernel = std::make_shared<Kernel>();
  kernel->handle = state.new_handle();
  kernel->library = library;
  kernel->image = library->image;
  kernel->kernel = &*found;
  state.kernels.add(kernel);
  library->kernels[found->name] = kernel;
  return kernel;
}

CUresult global_of(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes) {
  const auto found = module.globals.find(std::string_view(name));
  if (found == module.globals.end()) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = found->second.address;
  if (bytes != nullptr) *bytes = found->second.size_bytes;
  return CUDA_SUCCESS;
}

CUresult parameter_of(const ImageKernel& kernel, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= kernel.parameters.size()) return kWrong;
  *offset = kernel.parameters[index].offset_bytes;
  if (size != nullptr) *size = kernel.parameters[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult get_attribute(const DeviceProfile& profile, const ImageKernel& kernel,
                       const KernelAttributes& attributes, CUfunction_attribute attribute,
                       int* value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(kernel.max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.static_shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = kRegistersPerThread;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = static_cast<int>(profile.compute_major * 10 + profile.compute_minor);
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = attributes.dynamic_shared_bytes != 0
                   ? attributes.dynamic_shared_bytes
                   : static_cast<int>(profile.shared_bytes_per_block - kernel.static_shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = attributes.carveout;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = attributes.non_portable_cluster;
      break;
    default:
      if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return kWrong;
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult set_attribute(const DeviceProfile& profile, const ImageKernel& kernel,
                       KernelAttributes& attributes, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || static_cast<uint64_t>(value) + kernel.static_shared_bytes >
                           profile.shared_bytes_per_block_optin) {
        return kWrong;
      }
      attributes.dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return kWrong;
      attributes.carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      attributes.non_portable_cluster = value != 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CUDA_SUCCESS;
    default:
      return kWrong;
  }
}

// A CUfunction, or (as the driver allows) a CUkernel in its place.
const ImageKernel* image_kernel(State& state, CUfunction handle) {
  if (const auto function = state.functions.find(handle)) return function->kernel;
  if (const auto kernel = state.kernels.find(handle)) return kernel->kernel;
  return nullptr;
}

}  // namespace

SIM_API cuModuleLoadData(CUmodule* module, const void* image) {
  return load_module(module, image, std::nullopt);
}
SIM_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return load_module(module, image, std::nullopt);
}
SIM_API cuModuleLoadFatBinary(CUmodule* module, const void* fatbin) {
  return load_module(module, fatbin, std::nullopt);
}
SIM_API cuModuleLoad(CUmodule* module, const char* path) {
  if (const CUresult refused = refuse_call()) return refused;
  if (path == nullptr) return kWrong;
  const auto bytes = read_file(path);
  return bytes ? load_module(module, bytes->data(), bytes->size()) : bytes.error();
}

SIM_API cuModuleUnload(CUmodule handle) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto module = call.state.modules.find(handle);
  if (!module || module->library != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (const auto context = module->context.lock()) {
    call.wait(call.state.device->unfinished(context->engine));
  }
  unload(call.state, *module);
  return CUDA_SUCCESS;
}

SIM_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (const CUresult refused = refuse_call()) return refused;
  if (mode == nullptr) return kWrong;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

SIM_API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr || name == nullptr) return kWrong;
  const auto module = call.state.modules.find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const auto function = module_function(call.state, *module, name);
  if (!function) return CUDA_ERROR_NOT_FOUND;
  *out = to_handle<CUfunction>(function->handle);
  return CUDA_SUCCESS;
}

SIM_API cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  Call call;
  if (!call) return call.error;
  if (count == nullptr) return kWrong;
  const auto module = call.state.modules.find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(module->image->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule handle) {
  Call call;
  if (!call) return call.error;
  if (functions == nullptr || count == 0) return kWrong;
  const auto module = call.state.modules.find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < count && i < module->image->kernels.size(); ++i) {
    const auto function = module_function(call.state, *module, module->image->kernels[i].name);
    functions[i] = to_handle<CUfunction>(function->handle);
  }
  return CUDA_SUCCESS;
}

SIM_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                             const char* name) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (name == nullptr) return kWrong;
  const auto module = call.state.modules.find(handle);
  return module ? global_of(*module, name, address, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned,
                          CUlibraryOption*, void**, unsigned) {
  return load_library(library, code, std::nullopt);
}

SIM_API cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned,
                              CUlibraryOption*, void**, unsigned) {
  if (const CUresult refused = refuse_call()) return refused;
  if (path == nullptr) return kWrong;
  const auto bytes = read_file(path);
  return bytes ? load_library(library, bytes->data(), bytes->size()) : bytes.error();
}

SIM_API cuLibraryUnload(CUlibrary handle) {
  Call call;
  if (!call) return call.error;
  const auto library = call.state.libraries.find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  const auto modules = std::exchange(library->modules, {});
  for (const auto& [context_handle, module] : modules) {
    if (const auto context = module->context.lock()) {
      call.wait(call.state.device->unfinished(context->engine));
    }
    unload(call.state, *module);
  }
  for (const auto& [name, kernel] : library->kernels) call.state.kernels.remove(kernel->handle);
  call.state.libraries.remove(library->handle);
  return CUDA_SUCCESS;
}

SIM_API cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr || name == nullptr) return kWrong;
  const auto library = call.state.libraries.find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  const auto kernel = library_kernel(call.state, library, name);
  if (!kernel) return CUDA_ERROR_NOT_FOUND;
  *out = to_handle<CUkernel>(kernel->handle);
  return CUDA_SUCCESS;
}

SIM_API cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  Call call;
  if (!call) return call.error;
  if (count == nullptr) return kWrong;
  const auto library = call.state.libraries.find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->image->kernels.size());
  return CUDA_SUCCESS;
}

SIM_API cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary handle) {
  Call call;
  if (!call) return call.error;
  if (kernels == nullptr || count == 0) return kWrong;
  const auto library = call.state.libraries.find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  for (unsigned i = 0; i < count && i < library->image->kernels.size(); ++i) {
    const auto kernel = library_kernel(call.state, library, library->image->kernels[i].name);
    kernels[i] = to_handle<CUkernel>(kernel->handle);
  }
  return CUDA_SUCCESS;
}

SIM_API cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  const auto library = call.state.libraries.find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error;
  const auto module = instantiate_library(call.state, *library, *call.context, error);
  if (!module) return error;
  *out = to_handle<CUmodule>(module->handle);
  return CUDA_SUCCESS;
}

SIM_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                           const char* name) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (name == nullptr) return kWrong;
  const auto library = call.state.libraries.find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error;
  const auto module = instantiate_library(call.state, *library, *call.context, error);
  return module ? global_of(*module, name, address, bytes) : error;
}

SIM_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                            const char* name) {
  return cuLibraryGetGlobal(address, bytes, library, name);
}

SIM_API cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  if (!call.state.kernels.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error;
  const auto function =
      find_function(call.state, *call.context, reinterpret_cast<CUfunction>(handle), error);
  if (!function) return error;
  *out = to_handle<CUfunction>(function->handle);
  return CUDA_SUCCESS;
}

SIM_API cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  const auto kernel = call.state.kernels.find(handle);
  const auto library = kernel ? kernel->library.lock() : nullptr;
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  *out = to_handle<CUlibrary>(library->handle);
  return CUDA_SUCCESS;
}

SIM_API cuKernelGetName(const char** name, CUkernel handle) {
  Call call;
  if (!call) return call.error;
  if (name == nullptr) return kWrong;
  const ImageKernel* kernel = image_kernel(call.state, reinterpret_cast<CUfunction>(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

SIM_API cuFuncGetName(const char** name, CUfunction handle) {
  return cuKernelGetName(name, reinterpret_cast<CUkernel>(handle));
}

SIM_API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  Call call;
  if (!call) return call.error;
  const ImageKernel* kernel = image_kernel(call.state, reinterpret_cast<CUfunction>(handle));
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : parameter_of(*kernel, index, offset, size);
}

SIM_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  return cuKernelGetParamInfo(reinterpret_cast<CUkernel>(handle), index, offset, size);
}

SIM_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                             CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (value == nullptr) return kWrong;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto kernel = call.state.kernels.find(handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  return get_attribute(call.state.profile(device), *kernel->kernel, kernel->attributes[device],
                       attribute, value);
}

SIM_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                             CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto kernel = call.state.kernels.find(handle);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  return set_attribute(call.state.profile(device), *kernel->kernel, kernel->attributes[device],
                       attribute, value);
}

SIM_API cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache, CUdevice device) {
  Call call;
  if (!call) return call.error;
  if (!call.state.is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return call.state.kernels.find(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuFuncGetModule(CUmodule* out, CUfunction handle) {
  Call call;
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  const auto function = call.state.functions.find(handle);
  const auto module = function ? function->module.lock() : nullptr;
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *out = to_handle<CUmodule>(module->handle);
  return CUDA_SUCCESS;
}

SIM_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  Call call;
  if (!call) return call.error;
  if (value == nullptr) return kWrong;
  const auto function = call.state.functions.find(handle);
  const auto module = function ? function->module.lock() : nullptr;
  const auto context = module ? module->context.lock() : nullptr;
  if (context) {
    return get_attribute(call.state.profile(context->device), *function->kernel,
                         function->attributes, attribute, value);
  }
  const auto kernel = call.state.kernels.find(handle);
  if (!kernel || !call.context) return CUDA_ERROR_INVALID_HANDLE;
  const int device = call.context->device;
  return get_attribute(call.state.profile(device), *kernel->kernel, kernel->attributes[device],
                       attribute, value);
}

SIM_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Call call;
  if (!call) return call.error;
  const auto function = call.state.functions.find(handle);
  const auto module = function ? function->module.lock() : nullptr;
  const auto context = module ? module->context.lock() : nullptr;
  if (context) {
    return set_attribute(call.state.profile(context->device), *function->kernel,
                         function->attributes, attribute, value);
  }
  const auto kernel = call.state.kernels.find(handle);
  if (!kernel || !call.context) return CUDA_ERROR_INVALID_HANDLE;
  const int device = call.context->device;
  return set_attribute(call.state.profile(device), *kernel->kernel, kernel->attributes[device],
                       attribute, value);
}

SIM_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
  Call call;
  if (!call) return call.error;
  return image_kernel(call.state, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig) {
  Call call;
  if (!call) return call.error;
  return image_kernel(call.state, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  Call call;
  if (!call) return call.error;
  if (state == nullptr) return kWrong;
  if (!image_kernel(call.state, handle)) return CUDA_ERROR_INVALID_HANDLE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SIM_API cuFuncLoad(CUfunction handle) {
  Call call;
  if (!call) return call.error;
  return image_kernel(call.state, handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
