#include "tools/gpu_check/native/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "tools/gpu_check/native/kernels.h"

namespace lull::probe {

Driver::Driver() {
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw NotHere{std::string("no CUDA driver: ") + (why != nullptr ? why : "libcuda.so.1")};
  }
#define LULL_PROBE_LOOK_UP(name, symbol)                           \
  name = reinterpret_cast<decltype(name)>(dlsym(library, symbol)); \
  if (name == nullptr) missing_.push_back(symbol);
  LULL_PROBE_DRIVER_CALLS(LULL_PROBE_LOOK_UP)
#undef LULL_PROBE_LOOK_UP
  simulated = dlsym(library, "simgpu_model_clock") != nullptr;
}

std::string uuid_text(const CUuuid& uuid) {
  std::ostringstream text;
  text << "GPU-" << std::hex << std::setfill('0');
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text << '-';
    text << std::setw(2) << (static_cast<unsigned>(uuid.bytes[i]) & 0xffu);
  }
  return text.str();
}

std::string Driver::name_of(CUresult result) const {
  const char* name = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      name == nullptr) {
    name = "unknown error";
  }
  return std::string(name) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

Device::Device(Driver& with) : driver(with) {
  LULL_MUST(driver, cuInit, 0u);
  LULL_MUST(driver, cuDeviceGet, &device, 0);
  LULL_MUST(driver, cuDevicePrimaryCtxRetain, &context, device);
  LULL_MUST(driver, cuCtxSetCurrent, context);
  CUmodule module = nullptr;
  LULL_MUST(driver, cuModuleLoadData, &module, static_cast<const void*>(kKernels));
  LULL_MUST(driver, cuModuleGetFunction, &null_kernel, module, "null_kernel");
  LULL_MUST(driver, cuModuleGetFunction, &spin, module, "spin");
  LULL_MUST(driver, cuModuleGetFunction, &watch, module, "watch");
  using ReadClock = int (*)(unsigned long long*, double*);
  if (const auto read = reinterpret_cast<ReadClock>(dlsym(driver.library, "simgpu_model_clock"))) {
    unsigned long long origin_ns = 0;
    double slow_motion = 1;
    if (read(&origin_ns, &slow_motion) == 0 && slow_motion >= 1) {
      clock.origin_ns = origin_ns;
      clock.slow_motion = slow_motion;
    }
  }
}

CUstream Device::stream() const {
  CUstream made = nullptr;
  LULL_MUST(driver, cuStreamCreate, &made, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  return made;
}

CUevent Device::event(unsigned flags) const {
  CUevent made = nullptr;
  LULL_MUST(driver, cuEventCreate, &made, flags);
  return made;
}

void Device::launch(CUfunction function, CUstream stream, void** arguments) const {
  LULL_MUST(driver, cuLaunchKernel, function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, arguments,
            static_cast<void**>(nullptr));
}

double Device::elapsed_us(CUevent from, CUevent to) const {
  float ms = 0;
  LULL_MUST(driver, cuEventElapsedTime, &ms, from, to);
  return static_cast<double>(ms) * 1e3;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::nan("");
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<long>(at), values.end());
  return values[at];
}
double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace lull::probe
