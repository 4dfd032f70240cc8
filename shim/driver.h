// The real driver, as the shim calls it: one pointer per row of driver_api.def and
// driver_own.def, all found in one go at the first call that needs them. Any thread.
//
// The shim opens no driver of its own accord: it takes the one the program has loaded, and opens
// libcuda.so.1 only when a hook is really called. A call that the driver does not have is a
// function that answers CUDA_ERROR_NOT_SUPPORTED, and without any driver CUDA_ERROR_NO_DEVICE.
#pragma once

// Makes cuda.h declare every version of every call, the first and the per-thread ones too,
// instead of renaming one to the other by macros.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#undef __CUDA_API_VERSION_INTERNAL

#include <atomic>

#define LULL_PUBLIC __attribute__((visibility("default")))
// How every hook begins. The compiler compares it with the declaration in cuda.h.
#define LULL_ENTRY(name) extern "C" LULL_PUBLIC CUresult name

namespace lull::shim {

struct Driver {
#define LULL_HOOK(name, family) decltype(&::name) name;
#include "shim/driver_api.def"
#undef LULL_HOOK
#define LULL_OWN(name) decltype(&::name) name;
#include "shim/driver_own.def"
#undef LULL_OWN
};

enum HookRow : uint32_t {
#define LULL_HOOK(name, family) kRow_##name,
#include "shim/driver_api.def"
#undef LULL_HOOK
  kHookRows
};

extern Driver driver_calls;
extern std::atomic<bool> driver_resolved;
void resolve_driver();

// Acquire pairs with the release in resolve_driver.
inline Driver& driver() {
  if (!driver_resolved.load(std::memory_order_acquire)) [[unlikely]] resolve_driver();
  return driver_calls;
}

// As resolve_driver, from the object that holds `symbol`. False: it does not look like a driver.
bool resolve_driver_of(const void* symbol);

// Whether a libcuda.so.1 is in the process at all.
bool driver_is_loaded();

const char* hook_name(uint32_t row);
void* hook_address(uint32_t row);
// The row of that exported name; of that real function; of that hook. kHookRows: none.
uint32_t row_of_name(const char* name);
uint32_t row_of_real(const void* address);
uint32_t row_of_hook(const void* address);
void* real_address(uint32_t row);

// False under LULL_DISABLE=1: then everything is handed on untouched. Read once.
bool shim_enabled();

// The real dlsym. asm calls it, hence C.
using DlsymFunction = void* (*)(void* handle, const char* name);
extern "C" DlsymFunction lull_real_dlsym();

}  // namespace lull::shim
