#include "tools/bench/allocations.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include <cuda.h>

#include "tools/bench/child.h"

namespace lull::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kAtOnce = 32;  // allocations that are alive together
constexpr int kBatches = 101;
struct Size {
  const char* name;
  size_t bytes;
};
constexpr Size kSizes[] = {{"small_ns", 1 << 10}, {"medium_ns", 64 << 10}, {"large_ns", 16 << 20}};

// Over the empty driver the thread's own time; the simulated one keeps its callers waiting.
uint64_t now_ns(bool waits) {
  timespec now;
  clock_gettime(waits ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

int run_allocator() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
  const auto symbol = [&]<typename F>(F*& out, const char* name) {
    out = reinterpret_cast<F*>(dlsym(driver, name));
    return out != nullptr;
  };
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*set_current)(CUcontext) = nullptr;
  CUresult (*allocate)(CUdeviceptr*, size_t) = nullptr;
  CUresult (*release)(CUdeviceptr) = nullptr;
  if (!symbol(init, "cuInit") || !symbol(retain, "cuDevicePrimaryCtxRetain") ||
      !symbol(set_current, "cuCtxSetCurrent") || !symbol(allocate, "cuMemAlloc_v2") ||
      !symbol(release, "cuMemFree_v2")) {
    return 1;
  }
  CUcontext context = nullptr;
  if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS ||
      set_current(context) != CUDA_SUCCESS)
    return 1;
  const bool waits = getenv("SIMGPU_DEVICE") != nullptr;
  nlohmann::json out;
  for (const Size& size : kSizes) {
    std::vector<double> batches;
    for (int batch = -3; batch < kBatches; ++batch) {
      CUdeviceptr addresses[kAtOnce];
      const uint64_t start = now_ns(waits);
      bool good = true;
      for (auto& address : addresses) good = allocate(&address, size.bytes) == CUDA_SUCCESS && good;
      for (const auto address : addresses) good = release(address) == CUDA_SUCCESS && good;
      if (!good) return 1;
      if (batch >= 0) batches.push_back(static_cast<double>(now_ns(waits) - start) / kAtOnce);
    }
    std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
    out[size.name] = batches[kBatches / 2];
  }
  fmt::print("{}\n", out.dump());
  std::fflush(stdout);
  return 0;
}

int run_allocations(const fs::path& self, const fs::path& libraries, bool json) {
  struct Case {
    const char* name;
    bool preload;
    bool moves;
  };
  constexpr Case kCases[] = {
      {"bare", false, false}, {"shim", true, false}, {"shim_moves", true, true}};
  nlohmann::json out;
  bool failed = false;
  if (!json)
    fmt::print(
        "{:<10} {:<12} {:>12} {:>12} {:>12}   ns an allocation and its free, and the ratio to "
        "bare\n",
        "driver", "", "1 KiB", "64 KiB", "16 MiB");
  for (const char* driver : {"empty", "simulated"}) {
    const bool simulated = driver[0] == 's';
    const fs::path folder = libraries / (simulated ? "sim" : "bench");
    if (!fs::exists(folder / "libcuda.so.1")) continue;
    const fs::path device = fs::temp_directory_path() / ("lull-bench-" + std::to_string(getpid()));
    nlohmann::json bare;
    for (const Case& one : kCases) {
      std::vector<std::string> environment = {"LD_LIBRARY_PATH=" + folder.string()};
      if (simulated) environment.push_back("SIMGPU_DEVICE=" + device.string());
      if (one.preload) environment.push_back("LD_PRELOAD=" + (libraries / "liblull.so").string());
      if (one.moves) environment.push_back("LULL_SUSPENDABLE=1");
      const auto figures = run_child(self.string(), {"--allocator"}, environment);
      if (!figures) {
        fmt::print(stderr, "lull-bench: {} over the {} driver could not be measured\n", one.name,
                   driver);
        failed = true;
        continue;
      }
      if (bare.is_null()) bare = *figures;
      nlohmann::json row = {{"driver", driver}, {"name", one.name}};
      std::string text = fmt::format("{:<10} {:<12}", driver, one.name);
      for (const Size& size : kSizes) {
        const double ns = (*figures)[size.name];
        const double ratio = ns / bare[size.name].get<double>();
        row[size.name] = ns;
        row[std::string("ratio_") + size.name] = ratio;
        text +=
            fmt::format(" {:>12.0f}", ns) + (one.preload ? fmt::format(" ({:.1f}x)", ratio) : "");
      }
      out["rows"].push_back(row);
      if (!json) fmt::print("{}\n", text);
    }
    std::error_code ignored;
    fs::remove(device, ignored);
  }
  if (json) fmt::print("{}\n", out.dump(2));
  return failed ? 1 : 0;
}

}  // namespace lull::bench
