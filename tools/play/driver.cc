#include "tools/play/driver.h"

#include <dlfcn.h>

namespace lull::play {

std::expected<channel::ModelClock, std::string> Driver::clock() const {
  channel::ModelClock result;
  if (!simulated()) return result;
  unsigned long long origin_ns = 0;
  double slow_motion = 1;
  if (simgpu_model_clock(&origin_ns, &slow_motion) != 0 || !(slow_motion >= 1)) {
    return std::unexpected("the simulated device has no clock: remove its file and start again");
  }
  result.origin_ns = origin_ns;
  result.slow_motion = slow_motion;
  return result;
}

std::string Driver::describe(const char* call, CUresult result) const {
  const char* name = nullptr;
  if (cuGetErrorName == nullptr || cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      name == nullptr) {
    name = "unknown error";
  }
  return std::string(call) + ": " + name + " (" + std::to_string(static_cast<int>(result)) + ")";
}

std::expected<Driver, std::string> open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return std::unexpected("no CUDA driver (" + std::string(why != nullptr ? why : "libcuda.so.1") +
                           "): install one, or use the simulated GPU (lull run --sim)");
  }
  Driver driver;
#define LULL_PLAY_LOOK_UP(name, symbol)                                          \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, symbol)); \
  if (driver.name == nullptr) {                                                  \
    return std::unexpected("libcuda.so.1 has no " symbol                         \
                           ": install a driver of CUDA 11 or newer");            \
  }
  LULL_PLAY_DRIVER_CALLS(LULL_PLAY_LOOK_UP)
#undef LULL_PLAY_LOOK_UP
  driver.simgpu_model_clock =
      reinterpret_cast<decltype(driver.simgpu_model_clock)>(dlsym(library, "simgpu_model_clock"));
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) {
    return std::unexpected(
        driver.describe("cuInit", result) +
        ": see that nvidia-smi works, or use the simulated GPU (lull run --sim)");
  }
  return driver;
}

}  // namespace lull::play
