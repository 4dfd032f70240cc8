// Modules and libraries: images when they are loaded, names when functions are asked for. With lazy
// loading it is asking for a function that brings its code to the device.
#include "shim/submit.h"

using namespace lull::shim;

namespace {

template <typename Handle, typename Hash, typename Call>
CUresult load(Handle* module, Hash hash, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  const CUresult result = forward_use(thread, call);
  if (result == CUDA_SUCCESS && module != nullptr && shim_enabled()) {
    image_loaded(*module, hash());
  }
  return result;
}

template <typename Handle, typename Call>
CUresult unload(Handle module, Call call) {
  if (thread_state.depth == 0 && shim_enabled()) image_unloaded(module);
  return forward_use(thread_state, call);
}

}  // namespace

LULL_ENTRY(cuModuleLoad)(CUmodule* module, const char* path) {
  return load(module, [&] { return hash_of_file(path); },
              [&] { return driver().cuModuleLoad(module, path); });
}
LULL_ENTRY(cuModuleLoadData)(CUmodule* module, const void* image) {
  return load(module, [&] { return hash_of_image(image); },
              [&] { return driver().cuModuleLoadData(module, image); });
}
LULL_ENTRY(cuModuleLoadDataEx)
(CUmodule* module, const void* image, unsigned int count, CUjit_option* options, void** values) {
  return load(module, [&] { return hash_of_image(image); }, [&] {
    return driver().cuModuleLoadDataEx(module, image, count, options, values);
  });
}
LULL_ENTRY(cuModuleLoadFatBinary)(CUmodule* module, const void* image) {
  return load(module, [&] { return hash_of_image(image); },
              [&] { return driver().cuModuleLoadFatBinary(module, image); });
}
LULL_ENTRY(cuLibraryLoadData)
(CUlibrary* library, const void* image, CUjit_option* options, void** values, unsigned int count,
 CUlibraryOption* library_options, void** library_values, unsigned int library_count) {
  return load(library, [&] { return hash_of_image(image); }, [&] {
    return driver().cuLibraryLoadData(library, image, options, values, count, library_options,
                                      library_values, library_count);
  });
}
LULL_ENTRY(cuLibraryLoadFromFile)
(CUlibrary* library, const char* path, CUjit_option* options, void** values, unsigned int count,
 CUlibraryOption* library_options, void** library_values, unsigned int library_count) {
  return load(library, [&] { return hash_of_file(path); }, [&] {
    return driver().cuLibraryLoadFromFile(library, path, options, values, count, library_options,
                                          library_values, library_count);
  });
}
LULL_ENTRY(cuModuleUnload)(CUmodule module) {
  return unload(module, [&] { return driver().cuModuleUnload(module); });
}
LULL_ENTRY(cuLibraryUnload)(CUlibrary library) {
  return unload(library, [&] { return driver().cuLibraryUnload(library); });
}

LULL_ENTRY(cuModuleGetFunction)(CUfunction* function, CUmodule module, const char* name) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return driver().cuModuleGetFunction(function, module, name);
  const CUresult result = forward_use(
      thread, [&] { return driver().cuModuleGetFunction(function, module, name); });
  if (result == CUDA_SUCCESS && function != nullptr && shim_enabled()) {
    function_found(*function, module, name);
  }
  return result;
}
LULL_ENTRY(cuLibraryGetKernel)(CUkernel* kernel, CUlibrary library, const char* name) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return driver().cuLibraryGetKernel(kernel, library, name);
  const CUresult result = forward_use(
      thread, [&] { return driver().cuLibraryGetKernel(kernel, library, name); });
  if (result == CUDA_SUCCESS && kernel != nullptr && shim_enabled()) {
    function_found(*kernel, library, name);
  }
  return result;
}
LULL_ENTRY(cuLibraryGetModule)(CUmodule* module, CUlibrary library) {
  const CUresult result = forward_use(
      thread_state, [&] { return driver().cuLibraryGetModule(module, library); });
  if (result == CUDA_SUCCESS && module != nullptr && thread_state.depth == 0 && shim_enabled()) {
    image_shared(library, *module);
  }
  return result;
}
LULL_ENTRY(cuKernelGetFunction)(CUfunction* function, CUkernel kernel) {
  const CUresult result = forward_use(
      thread_state, [&] { return driver().cuKernelGetFunction(function, kernel); });
  if (result == CUDA_SUCCESS && function != nullptr && thread_state.depth == 0 && shim_enabled()) {
    function_shared(kernel, *function);
  }
  return result;
}
LULL_ENTRY(cuLibraryEnumerateKernels)
(CUkernel* kernels, unsigned int count, CUlibrary library) {
  const CUresult result = forward(thread_state, [&] {
    return driver().cuLibraryEnumerateKernels(kernels, count, library);
  });
  if (result != CUDA_SUCCESS || kernels == nullptr || thread_state.depth != 0 || !shim_enabled()) {
    return result;
  }
  for (unsigned n = 0; n < count && kernels[n] != nullptr; ++n) {
    const char* name = nullptr;
    OwnCall own(thread_state);
    if (driver().cuKernelGetName(&name, kernels[n]) == CUDA_SUCCESS) {
      function_found(kernels[n], library, name);
    }
  }
  return result;
}
LULL_ENTRY(cuModuleEnumerateFunctions)
(CUfunction* found, unsigned int count, CUmodule module) {
  const CUresult result = forward(
      thread_state, [&] { return driver().cuModuleEnumerateFunctions(found, count, module); });
  if (result != CUDA_SUCCESS || found == nullptr || thread_state.depth != 0 || !shim_enabled()) {
    return result;
  }
  for (unsigned n = 0; n < count && found[n] != nullptr; ++n) {
    const char* name = nullptr;
    OwnCall own(thread_state);
    if (driver().cuFuncGetName(&name, found[n]) == CUDA_SUCCESS) {
      function_found(found[n], module, name);
    }
  }
  return result;
}
