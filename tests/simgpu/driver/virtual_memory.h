// What the tests of reserved addresses share.
#pragma once

#include "tests/simgpu/driver/sim_program.h"

namespace sim_test {

inline constexpr size_t kUnit = 2 << 20;

// A kernel of the current context with one argument, a pointer.
inline CUfunction kernel_with_pointer() {
  CUmodule module;
  CUfunction uses;
  OK(cuModuleLoadData(&module, R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry uses(.param .u64 pointer) { ret; }
)"));
  OK(cuModuleGetFunction(&uses, module, "uses"));
  return uses;
}

inline CUmemAllocationProp on_device(int device, bool exportable = false) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  if (exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

inline CUmemGenericAllocationHandle make_memory(size_t bytes, int device = 0,
                                                bool exportable = false) {
  const CUmemAllocationProp properties = on_device(device, exportable);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, bytes, &properties, 0));
  return handle;
}

inline CUresult allow(CUdeviceptr address, size_t bytes, int device = 0,
                      CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return cuMemSetAccess(address, bytes, &access, 1);
}

inline size_t free_bytes() {
  size_t free_now = 0, total = 0;
  OK(cuMemGetInfo_v2(&free_now, &total));
  return free_now;
}

inline unsigned char byte_at(CUdeviceptr address) {
  unsigned char byte = 0;
  OK(cuMemcpyDtoH_v2(&byte, address, 1));
  return byte;
}

}  // namespace sim_test
