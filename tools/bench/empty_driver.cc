// A libcuda.so.1 whose calls do nothing: lull-bench measures the shim over it. It answers just
// what the shim asks on the way to a launch. Not a GPU of any kind; simgpu is that.
#include <cstdint>
#include <cstring>

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

extern "C" {

#define EXPORT __attribute__((visibility("default"), noinline))

EXPORT CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* version) { *version = 13000; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int* count) { *count = 1; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice* device, int) { *device = 0; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  strncpy(name, "empty driver", static_cast<size_t>(length));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) { memset(uuid, 7, sizeof *uuid); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice d) { return cuDeviceGetUuid_v2(uuid, d); }
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { *bytes = size_t{1} << 34; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) { *value = 1; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice* device) { *device = 0; return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) { *context = reinterpret_cast<CUcontext>(16); return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { *context = reinterpret_cast<CUcontext>(16); return CUDA_SUCCESS; }
EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) { *module = reinterpret_cast<CUmodule>(32); return CUDA_SUCCESS; }
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(64 + 16 * static_cast<uintptr_t>(name[0]));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetName(const char** name, CUfunction) { *name = "empty"; return CUDA_SUCCESS; }
EXPORT CUresult cuFuncGetModule(CUmodule* module, CUfunction) { *module = reinterpret_cast<CUmodule>(32); return CUDA_SUCCESS; }
EXPORT CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) { *status = CU_STREAM_CAPTURE_STATUS_NONE; return CUDA_SUCCESS; }
EXPORT CUresult cuMemHostRegister_v2(void*, size_t, unsigned int) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemHostUnregister(void*) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned int) { *device = reinterpret_cast<CUdeviceptr>(host); return CUDA_SUCCESS; }
EXPORT CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr address, cuuint64_t value, unsigned int) {
  *reinterpret_cast<volatile uint64_t*>(address) = value;  // done at once, like everything here
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int) { *stream = reinterpret_cast<CUstream>(128); return CUDA_SUCCESS; }
EXPORT CUresult cuStreamQuery(CUstream) { return CUDA_SUCCESS; }
EXPORT CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
EXPORT CUresult cuEventCreate(CUevent* event, unsigned int) { *event = reinterpret_cast<CUevent>(256); return CUDA_SUCCESS; }
EXPORT CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
EXPORT CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }
EXPORT CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
EXPORT CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) { *ms = 0.001F; return CUDA_SUCCESS; }
EXPORT CUresult cuEventElapsedTime_v2(float* ms, CUevent, CUevent) { *ms = 0.001F; return CUDA_SUCCESS; }
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }

// Addresses without anything behind them: nobody touches them.
static CUdeviceptr take_addresses(size_t bytes) {
  static CUdeviceptr next = CUdeviceptr{1} << 40;
  const CUdeviceptr taken = next;
  next += (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
  return taken;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) { *address = take_addresses(bytes); return CUDA_SUCCESS; }
EXPORT CUresult cuMemFree_v2(CUdeviceptr) { asm volatile(""); return CUDA_SUCCESS; }
EXPORT CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *address = take_addresses(bytes);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = 2u << 20;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*, unsigned long long) {
  *handle = 512;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }

EXPORT CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                               unsigned int, unsigned int, unsigned int, CUstream, void**, void**) {
  asm volatile("");
  return CUDA_SUCCESS;
}
// The same function under a name that the shim does not know: the bare call.
EXPORT CUresult lull_bench_bare_launch(CUfunction, unsigned int, unsigned int, unsigned int,
                                       unsigned int, unsigned int, unsigned int, unsigned int,
                                       CUstream, void**, void**) {
  asm volatile("");
  return CUDA_SUCCESS;
}

}  // extern "C"
