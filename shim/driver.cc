#include "shim/driver.h"

#include <dlfcn.h>
#include <string.h>

#include "shim/system.h"

namespace lull::shim {

Driver driver_calls;
std::atomic<bool> driver_resolved;

namespace {

Lock resolve_lock;
std::atomic<DlsymFunction> real_dlsym;
std::atomic<uint32_t> enabled;  // 0 not known yet, 1 yes, 2 no

constexpr const char* kNames[] = {
#define LULL_HOOK(name, family) #name,
#include "shim/driver_api.def"
#undef LULL_HOOK
#define LULL_OWN(name) #name,
#include "shim/driver_own.def"
#undef LULL_OWN
};
constexpr uint32_t kCalls = sizeof kNames / sizeof kNames[0];
static_assert(sizeof(Driver) == kCalls * sizeof(void*));

// Relocated when the library is loaded; -Bsymbolic binds the names to our own definitions.
void* const kHooks[] = {
#define LULL_HOOK(name, family) reinterpret_cast<void*>(&::name),
#include "shim/driver_api.def"
#undef LULL_HOOK
};

// Open addressing from real address to row + 1; written once, before driver_resolved.
constexpr uint32_t kAddressSlots = 1024;
struct AddressSlot {
  const void* address;
  uint32_t row_plus_one;
};
AddressSlot by_address[kAddressSlots];

uint32_t address_slot(const void* address) {
  const uint64_t hash = reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15ULL;
  return static_cast<uint32_t>(hash >> 54);
}

// Called with any arguments: the calling conventions of both processors allow it.
CUresult call_not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult call_no_driver() { return CUDA_ERROR_NO_DEVICE; }

void** table() { return reinterpret_cast<void**>(&driver_calls); }

// No lock of ours: dlsym takes the loader's, and a library's constructor that looks a driver call up
// holds that while it waits for us.
void look_up(void* handle, void* (&found)[kCalls]) {
  const DlsymFunction lookup = lull_real_dlsym();
  for (uint32_t call = 0; call < kCalls; ++call) {
    found[call] = handle != nullptr ? lookup(handle, kNames[call]) : nullptr;
  }
}

// Under resolve_lock; calls nothing of the loader.
void fill(void* handle, void* const (&found)[kCalls]) {
  if (driver_resolved.load(std::memory_order_relaxed)) return;
  for (uint32_t call = 0; call < kCalls; ++call) {
    void* address = found[call];
    if (address != nullptr && call < kHookRows) {
      uint32_t slot = address_slot(address);
      while (by_address[slot].row_plus_one != 0 && by_address[slot].address != address) {
        slot = (slot + 1) % kAddressSlots;
      }
      // A driver that exports one function under two names keeps its first row.
      if (by_address[slot].row_plus_one == 0) by_address[slot] = {address, call + 1};
    }
    if (address == nullptr) {
      address = reinterpret_cast<void*>(handle != nullptr ? &call_not_supported : &call_no_driver);
    }
    table()[call] = address;
  }
  driver_resolved.store(true, std::memory_order_release);
}

}  // namespace

extern "C" DlsymFunction lull_real_dlsym() {
  DlsymFunction found = real_dlsym.load(std::memory_order_relaxed);
  if (found != nullptr) return found;
  // glibc 2.34 moved dlsym into libc.so.6 and kept the old version beside the new one.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    void* address = dlvsym(RTLD_NEXT, "dlsym", version);
    if (address != nullptr) {
      found = reinterpret_cast<DlsymFunction>(address);
      real_dlsym.store(found, std::memory_order_relaxed);
      return found;
    }
  }
  return nullptr;
}

bool driver_is_loaded() {
  if (driver_resolved.load(std::memory_order_acquire)) return true;
  KeepErrno keep;
  void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  dlclose(handle);
  return true;
}

void resolve_driver() {
  KeepErrno keep;
  if (driver_resolved.load(std::memory_order_acquire)) return;
  void* handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) handle = dlopen("libcuda.so.1", RTLD_LAZY);
  void* found[kCalls];
  look_up(handle, found);
  Locked locked(resolve_lock);
  fill(handle, found);
}

bool resolve_driver_of(const void* symbol) {
  if (driver_resolved.load(std::memory_order_acquire)) return true;
  KeepErrno keep;
  Dl_info where;
  if (dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) return false;
  void* handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  const DlsymFunction lookup = lull_real_dlsym();
  const bool whole = lookup(handle, "cuInit") != nullptr &&
                     lookup(handle, "cuLaunchKernel") != nullptr;
  if (!whole) {
    dlclose(handle);
    return driver_resolved.load(std::memory_order_acquire);
  }
  void* found[kCalls];
  look_up(handle, found);
  Locked locked(resolve_lock);
  fill(handle, found);
  return true;
}

const char* hook_name(uint32_t row) { return kNames[row]; }
void* hook_address(uint32_t row) { return kHooks[row]; }
void* real_address(uint32_t row) { return table()[row]; }

uint32_t row_of_name(const char* name) {
  for (uint32_t row = 0; row < kHookRows; ++row) {
    if (strcmp(kNames[row] + 2, name + 2) == 0) return row;
  }
  return kHookRows;
}

uint32_t row_of_real(const void* address) {
  for (uint32_t slot = address_slot(address); by_address[slot].row_plus_one != 0;
       slot = (slot + 1) % kAddressSlots) {
    if (by_address[slot].address == address) return by_address[slot].row_plus_one - 1;
  }
  return kHookRows;
}

uint32_t row_of_hook(const void* address) {
  for (uint32_t row = 0; row < kHookRows; ++row) {
    if (kHooks[row] == address) return row;
  }
  return kHookRows;
}

bool shim_enabled() {
  uint32_t state = enabled.load(std::memory_order_relaxed);
  if (state == 0) {
    state = environment_set("LULL_DISABLE") ? 2 : 1;
    enabled.store(state, std::memory_order_relaxed);
  }
  return state == 1;
}

}  // namespace lull::shim
