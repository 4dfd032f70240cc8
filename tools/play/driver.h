// The CUDA driver as lull-play calls it: opened at run time, so that the program starts, and says
// what is missing, on machines without one. One thread. Knows nothing of lull.
#pragma once

#include <cuda.h>

#include <expected>
#include <string>

#include "coordinator/channel/model_clock.h"

namespace lull::play {

// Every driver call the player makes; the versions cuda.h stands for.
#define LULL_PLAY_DRIVER_CALLS(X)                              \
  X(cuInit, "cuInit")                                          \
  X(cuGetErrorName, "cuGetErrorName")                          \
  X(cuDeviceGetCount, "cuDeviceGetCount")                      \
  X(cuDeviceGet, "cuDeviceGet")                                \
  X(cuDeviceGetName, "cuDeviceGetName")                        \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")      \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2") \
  X(cuCtxSetCurrent, "cuCtxSetCurrent")                        \
  X(cuCtxSynchronize, "cuCtxSynchronize")                      \
  X(cuModuleLoadData, "cuModuleLoadData")                      \
  X(cuModuleGetFunction, "cuModuleGetFunction")                \
  X(cuModuleUnload, "cuModuleUnload")                          \
  X(cuStreamCreate, "cuStreamCreate")                          \
  X(cuStreamSynchronize, "cuStreamSynchronize")                \
  X(cuStreamWaitEvent, "cuStreamWaitEvent")                    \
  X(cuStreamDestroy, "cuStreamDestroy_v2")                     \
  X(cuEventCreate, "cuEventCreate")                            \
  X(cuEventRecord, "cuEventRecord")                            \
  X(cuEventDestroy, "cuEventDestroy_v2")                       \
  X(cuLaunchKernel, "cuLaunchKernel")                          \
  X(cuMemAlloc, "cuMemAlloc_v2")                               \
  X(cuMemFree, "cuMemFree_v2")                                 \
  X(cuMemHostAlloc, "cuMemHostAlloc")                          \
  X(cuMemFreeHost, "cuMemFreeHost")                            \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                 \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                 \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                 \
  X(cuMemsetD8Async, "cuMemsetD8Async")

struct Driver {
  // Members carry the names that cuda.h's macros expand to: driver.cuMemAlloc(...) just works.
#define LULL_PLAY_MEMBER(name, symbol) decltype(&::name) name = nullptr;
  LULL_PLAY_DRIVER_CALLS(LULL_PLAY_MEMBER)
#undef LULL_PLAY_MEMBER
  // Only simgpu's driver has it; 0 means done.
  int (*simgpu_model_clock)(unsigned long long* origin_ns, double* slow_motion) = nullptr;

  bool simulated() const { return simgpu_model_clock != nullptr; }
  // Model time on a simulated device, CLOCK_MONOTONIC on a real one.
  std::expected<channel::ModelClock, std::string> clock() const;
  // "cuInit: CUDA_ERROR_NO_DEVICE (100)"
  std::string describe(const char* call, CUresult result) const;
};

// Opens libcuda.so.1 and initialises it; errors are "why: what to do".
std::expected<Driver, std::string> open_driver();

}  // namespace lull::play
