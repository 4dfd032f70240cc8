// How programs find the driver's calls and read its errors; profiler switches. No device needed.
#include <algorithm>
#include <cstring>
#include <string_view>

#include <cudaProfiler.h>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/generated.h"
#include "tools/simgpu/driver/state.h"

using namespace simgpu::driver;

namespace {

constexpr int kDriverVersion = 13000;

// The newest generation of the name that `version` knows.
CUresult find(const char* symbol, void** address, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* found) {
  constexpr cuuint64_t kKnownFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || address == nullptr || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *address = nullptr;
  if (found != nullptr) *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const ProcAddress* const end = kProcAddresses + kProcAddressCount;
  const ProcAddress* row = std::lower_bound(
      kProcAddresses, end, symbol,
      [](const ProcAddress& entry, const char* name) { return std::strcmp(entry.name, name) < 0; });
  if (row == end || std::strcmp(row->name, symbol) != 0) return CUDA_ERROR_NOT_FOUND;
  const bool wants_per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const ProcAddress* best = nullptr;
  for (; row != end && std::strcmp(row->name, symbol) == 0; ++row) {
    if (row->version > version || (row->per_thread && !wants_per_thread)) continue;
    if (best == nullptr || row->per_thread > best->per_thread ||
        (row->per_thread == best->per_thread && row->version > best->version)) {
      best = row;
    }
  }
  if (best == nullptr) {
    if (found != nullptr) *found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    return CUDA_ERROR_NOT_FOUND;
  }
  *address = best->address;
  if (found != nullptr) *found = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

const ErrorText* find_error(CUresult error) {
  for (size_t i = 0; i < kErrorTextCount; ++i) {
    if (kErrorTexts[i].code == static_cast<int>(error)) return &kErrorTexts[i];
  }
  return nullptr;
}

}  // namespace

SIM_API cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

SIM_API cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t flags) {
  return find(symbol, address, version, flags, nullptr);
}

SIM_API cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult* found) {
  return find(symbol, address, version, flags, found);
}

// The tables behind this call are private to NVIDIA's own libraries; there are none here.
SIM_API cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

SIM_API cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = find_error(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* found = find_error(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API cuProfilerInitialize(const char*, const char*, CUoutput_mode) { return refuse_call(); }
SIM_API cuProfilerStart() { return refuse_call(); }
SIM_API cuProfilerStop() { return refuse_call(); }

// For tools: the clock that the simulated device runs on. 0: filled in.
extern "C" __attribute__((visibility("default"))) int simgpu_model_clock(
    unsigned long long* origin_ns, double* slow_motion) {
  if (is_forked()) return -1;
  const auto device = simgpu::open_device_from_environment();
  if (!device || origin_ns == nullptr || slow_motion == nullptr) return -1;
  const auto clock = (*device)->clock();
  *origin_ns = clock.origin_ns;
  *slow_motion = clock.slow_motion;
  return 0;
}
