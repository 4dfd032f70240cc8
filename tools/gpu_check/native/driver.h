// The CUDA driver as lull-device-probe calls it: opened at run time by its soname, so that the
// probe starts anywhere and goes through lull's look-up hooks when lull is preloaded. A call that
// the driver lacks answers CUDA_ERROR_NOT_SUPPORTED. One thread unless a probe says otherwise.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/channel/model_clock.h"

namespace lull::probe {

// A driver call that did not do what was asked; ends the probe. NOT_SUPPORTED is a reason to skip.
struct Refused {
  std::string call;
  CUresult result;
};
// What keeps a probe from measuring here, with the reason; not a failure.
struct NotHere {
  std::string reason;
};

#define LULL_PROBE_DRIVER_CALLS(X)                                                              \
  X(cuInit, "cuInit")                                                                           \
  X(cuDriverGetVersion, "cuDriverGetVersion")                                                   \
  X(cuGetErrorName, "cuGetErrorName")                                                           \
  X(cuDeviceGetCount, "cuDeviceGetCount")                                                       \
  X(cuDeviceGet, "cuDeviceGet")                                                                 \
  X(cuDeviceGetName, "cuDeviceGetName")                                                         \
  X(cuDeviceGetUuid, "cuDeviceGetUuid_v2")                                                      \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2")                                                    \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute")                                               \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                       \
  X(cuCtxSetCurrent, "cuCtxSetCurrent")                                                         \
  X(cuCtxSynchronize, "cuCtxSynchronize")                                                       \
  X(cuModuleLoadData, "cuModuleLoadData")                                                       \
  X(cuModuleGetFunction, "cuModuleGetFunction")                                                 \
  X(cuLaunchKernel, "cuLaunchKernel")                                                           \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor") \
  X(cuStreamCreate, "cuStreamCreate")                                                           \
  X(cuStreamSynchronize, "cuStreamSynchronize")                                                 \
  X(cuStreamQuery, "cuStreamQuery")                                                             \
  X(cuStreamWriteValue64, "cuStreamWriteValue64_v2")                                            \
  X(cuEventCreate, "cuEventCreate")                                                             \
  X(cuEventRecord, "cuEventRecord")                                                             \
  X(cuEventQuery, "cuEventQuery")                                                               \
  X(cuEventSynchronize, "cuEventSynchronize")                                                   \
  X(cuEventElapsedTime, "cuEventElapsedTime")                                                   \
  X(cuMemGetInfo, "cuMemGetInfo_v2")                                                            \
  X(cuMemAlloc, "cuMemAlloc_v2")                                                                \
  X(cuMemAllocManaged, "cuMemAllocManaged")                                                     \
  X(cuMemFree, "cuMemFree_v2")                                                                  \
  X(cuMemHostAlloc, "cuMemHostAlloc")                                                           \
  X(cuMemFreeHost, "cuMemFreeHost")                                                             \
  X(cuMemHostRegister, "cuMemHostRegister_v2")                                                  \
  X(cuMemHostUnregister, "cuMemHostUnregister")                                                 \
  X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")                                  \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2")                                                            \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2")                                                            \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                                                  \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                                                  \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                                                  \
  X(cuMemsetD8Async, "cuMemsetD8Async")                                                         \
  X(cuMemsetD32, "cuMemsetD32_v2")                                                              \
  X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity")                             \
  X(cuMemAddressReserve, "cuMemAddressReserve")                                                 \
  X(cuMemAddressFree, "cuMemAddressFree")                                                       \
  X(cuMemCreate, "cuMemCreate")                                                                 \
  X(cuMemMap, "cuMemMap")                                                                       \
  X(cuMemSetAccess, "cuMemSetAccess")                                                           \
  X(cuMemUnmap, "cuMemUnmap")                                                                   \
  X(cuMemRelease, "cuMemRelease")                                                               \
  X(cuCheckpointProcessGetState, "cuCheckpointProcessGetState")                                 \
  X(cuCheckpointProcessLock, "cuCheckpointProcessLock")                                         \
  X(cuCheckpointProcessCheckpoint, "cuCheckpointProcessCheckpoint")                             \
  X(cuCheckpointProcessRestore, "cuCheckpointProcessRestore")                                   \
  X(cuCheckpointProcessUnlock, "cuCheckpointProcessUnlock")

class Driver {
 public:
  // Opens libcuda.so.1. Throws NotHere when there is none.
  Driver();

#define LULL_PROBE_MEMBER(name, symbol) decltype(&::name) name = nullptr;
  LULL_PROBE_DRIVER_CALLS(LULL_PROBE_MEMBER)
#undef LULL_PROBE_MEMBER

  void* library = nullptr;
  bool simulated = false;

  std::string name_of(CUresult result) const;
  // The calls that were not found, by name.
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  std::vector<std::string> missing_;
};

// Calls a member; throws Refused when the answer is not CUDA_SUCCESS, or the call is not there.
template <typename Function, typename... Arguments>
void must(const char* call, Function function, Arguments... arguments) {
  const CUresult result = function == nullptr ? CUDA_ERROR_NOT_SUPPORTED : function(arguments...);
  if (result != CUDA_SUCCESS) throw Refused{call, result};
}
#define LULL_MUST(driver, call, ...) \
  ::lull::probe::must(#call, (driver).call __VA_OPT__(, ) __VA_ARGS__)

// Device 0 with its primary context current on the calling thread, and the probe's kernels loaded.
struct Device {
  explicit Device(Driver& driver);

  Driver& driver;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUfunction null_kernel = nullptr;
  CUfunction spin = nullptr;   // (u64 spin_ns)
  CUfunction watch = nullptr;  // (u64 out, u64 spin_ns, u64 gap_ns, u64 most): kernels.h
  channel::ModelClock clock;   // model time on simgpu, CLOCK_MONOTONIC on a GPU

  uint64_t now_ns() const { return clock.now_ns(); }
  CUstream stream() const;
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) const;
  void launch(CUfunction function, CUstream stream, void** arguments = nullptr) const;
  double elapsed_us(CUevent from, CUevent to) const;
};

// "GPU-..", as nvidia-smi writes it.
std::string uuid_text(const CUuuid& uuid);
double median(std::vector<double> values);
double quantile(std::vector<double> values, double q);

}  // namespace lull::probe
