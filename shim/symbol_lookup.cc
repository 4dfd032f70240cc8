// Hands out our entry points wherever a program looks up the driver's: dlsym (the entry is in
// symbol_lookup.S) and cuGetProcAddress in both forms. Any thread, also before main.
//
// Which variant of a call the program means (_v2, _v3, _ptsz, _ptds) is never guessed: the real
// look-up answers first, and the address it returns says which row it is.
#include <dlfcn.h>
#include <string.h>

#include "shim/driver.h"
#include "shim/system.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

struct VersionRow {
  const char* base;
  int version;
  bool per_thread;
  uint32_t row;
};
constexpr VersionRow kVersions[] = {
#define LULL_VERSION(base, version, per_thread, name) {#base, version, per_thread, kRow_##name},
#include "shim/proc_versions.def"
#undef LULL_VERSION
};

// For a driver whose cuGetProcAddress and dlsym disagree about an address. Versions newer than
// the toolkit this was built with may have other prototypes: those are left alone.
uint32_t row_of_version(const char* base, int version, cuuint64_t flags) {
  if (base == nullptr || version > CUDA_VERSION) return kHookRows;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  uint32_t found = kHookRows;
  uint32_t found_plain = kHookRows;
  for (const VersionRow& known : kVersions) {
    if (known.version > version || strcmp(known.base, base) != 0) continue;
    if (known.per_thread == per_thread) found = known.row;
    if (!known.per_thread) found_plain = known.row;
  }
  // A call without a per-thread variant is one and the same for both.
  return found != kHookRows ? found : found_plain;
}

void translate(const char* name, void** address, int version, cuuint64_t flags) {
  if (address == nullptr || *address == nullptr || name == nullptr) return;
  uint32_t row = row_of_real(*address);
  if (row == kHookRows && row_of_hook(*address) == kHookRows) {
    row = row_of_version(name, version, flags);
  }
  if (row != kHookRows) *address = hook_address(row);
}

}  // namespace

// 0: not ours, look it up for real. -1: the answer is null.
extern "C" __attribute__((visibility("hidden"))) void* lull_lookup_symbol(void* handle,
                                                                          const char* name) {
  const uint32_t row = row_of_name(name);
  if (row == kHookRows || !shim_enabled()) return nullptr;
  const DlsymFunction lookup = lull_real_dlsym();
  void* found = lookup(handle, name);
  if (found == nullptr) return nullptr;  // asked again for real, so that dlerror is right
  if (row_of_hook(found) != kHookRows) {
    // The program's global scope, where we stand in front of the driver. Without one the program
    // must not believe that it is there.
    return driver_is_loaded() ? found : reinterpret_cast<void*>(-1);
  }
  if (!resolve_driver_of(found)) return nullptr;
  // Another copy of the driver, or another library's function of that name: left alone.
  return row_of_real(found) != kHookRows ? hook_address(row_of_real(found)) : nullptr;
}

}  // namespace lull::shim

using namespace lull::shim;

LULL_ENTRY(cuGetProcAddress)
(const char* symbol, void** address, int version, cuuint64_t flags) {
  CUresult result;
  {
    OwnCall own(thread_state);
    result = driver().cuGetProcAddress(symbol, address, version, flags);
  }
  if (result == CUDA_SUCCESS && shim_enabled()) translate(symbol, address, version, flags);
  return result;
}

LULL_ENTRY(cuGetProcAddress_v2)
(const char* symbol, void** address, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult* status) {
  CUresult result;
  {
    OwnCall own(thread_state);
    result = driver().cuGetProcAddress_v2(symbol, address, version, flags, status);
  }
  if (result == CUDA_SUCCESS && shim_enabled()) translate(symbol, address, version, flags);
  return result;
}
