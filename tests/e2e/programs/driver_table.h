// The driver calls of driver_work.h as a table, filled by dlsym or by cuGetProcAddress.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include "program.h"

#define DRIVER_TABLE_TEXT_(name) #name
#define DRIVER_TABLE_TEXT(name) DRIVER_TABLE_TEXT_(name)  // with cuda.h's version suffix

//                        name, version of this prototype, its per-thread version (0: none)
#define DRIVER_TABLE(ROW)                \
  ROW(cuInit, 2000, 0)                   \
  ROW(cuDeviceGet, 2000, 0)              \
  ROW(cuDevicePrimaryCtxRetain, 7000, 0) \
  ROW(cuCtxSetCurrent, 4000, 0)          \
  ROW(cuModuleLoadData, 2000, 0)         \
  ROW(cuModuleGetFunction, 2000, 0)      \
  ROW(cuMemAlloc, 3020, 0)               \
  ROW(cuMemFree, 3020, 0)                \
  ROW(cuMemcpyHtoD, 3020, 7000)          \
  ROW(cuMemcpyDtoH, 3020, 7000)          \
  ROW(cuMemsetD8, 3020, 7000)            \
  ROW(cuStreamSynchronize, 2000, 7000)   \
  ROW(cuLaunchKernel, 4000, 7000)

struct DriverTable {
#define ROW(name, version, per_thread_version) decltype(&::name) name##_;
  DRIVER_TABLE(ROW)
#undef ROW

  void fill_by_name(void* handle) {
#define ROW(name, version, per_thread_version)                                           \
  name##_ = reinterpret_cast<decltype(name##_)>(dlsym(handle, DRIVER_TABLE_TEXT(name))); \
  REQUIRE_THAT(name##_ != nullptr);
    DRIVER_TABLE(ROW)
#undef ROW
  }

  // `ask(base name, &pointer, version, flags)` is cuGetProcAddress, either generation.
  template <typename Ask>
  void fill_by_version(Ask&& ask, bool per_thread) {
#define ROW(name, version, per_thread_version)                                                    \
  {                                                                                               \
    const bool twin = per_thread && per_thread_version != 0;                                      \
    void* address = nullptr;                                                                      \
    CHECK(                                                                                        \
        ask(#name, &address, twin ? per_thread_version : version,                                 \
            twin ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT)); \
    REQUIRE_THAT(address != nullptr);                                                             \
    name##_ = reinterpret_cast<decltype(name##_)>(address);                                       \
  }
    DRIVER_TABLE(ROW)
#undef ROW
  }
};
