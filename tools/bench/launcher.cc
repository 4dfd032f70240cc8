#include "tools/bench/launcher.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <cuda.h>

#include "coordinator/channel/model_clock.h"

namespace lull::bench {
namespace {

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);

double batch_ns(Launch launch, CUfunction function, CUstream stream, int calls) {
  const uint64_t start = channel::monotonic_ns();
  for (int i = 0; i < calls; ++i) {
    launch(function, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
  }
  return static_cast<double>(channel::monotonic_ns() - start) / calls;
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int run_launcher(int threads, int batches, int calls_per_batch) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    fmt::print(stderr, "lull-bench: cannot open the empty driver: {}\n", dlerror());
    return 1;
  }
  auto symbol = [&]<typename F>(F*& out, const char* name) {
    out = reinterpret_cast<F*>(dlsym(driver, name));
    if (out == nullptr) fmt::print(stderr, "lull-bench: the empty driver lacks {}\n", name);
    return out != nullptr;
  };
  CUresult (*init)(unsigned) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*set_current)(CUcontext) = nullptr;
  CUresult (*load)(CUmodule*, const void*) = nullptr;
  CUresult (*get_function)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*create_stream)(CUstream*, unsigned) = nullptr;
  std::remove_pointer_t<Launch>* hooked = nullptr;
  std::remove_pointer_t<Launch>* bare = nullptr;
  if (!symbol(init, "cuInit") || !symbol(retain, "cuDevicePrimaryCtxRetain") ||
      !symbol(set_current, "cuCtxSetCurrent") || !symbol(load, "cuModuleLoadData") ||
      !symbol(get_function, "cuModuleGetFunction") || !symbol(create_stream, "cuStreamCreate") ||
      !symbol(hooked, "cuLaunchKernel") || !symbol(bare, "lull_bench_bare_launch")) {
    return 1;
  }
  CUcontext context;
  CUmodule module;
  init(0);
  retain(&context, 0);
  set_current(context);
  load(&module, ".version 7.0\n.target sm_52\n.address_size 64\n");

  std::vector<double> bare_ns, hooked_ns;
  std::atomic<int> arrived{0};
  std::vector<std::vector<double>> all_bare(static_cast<size_t>(threads)), all_hooked(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      CUfunction function;
      CUstream stream;
      set_current(context);
      get_function(&function, module, "empty");
      create_stream(&stream, 1);
      for (int warm = 0; warm < 3; ++warm) {
        batch_ns(bare, function, stream, calls_per_batch);
        batch_ns(hooked, function, stream, calls_per_batch);
      }
      ++arrived;
      while (arrived.load() < threads) std::this_thread::yield();
      for (int b = 0; b < batches; ++b) {
        all_bare[static_cast<size_t>(t)].push_back(batch_ns(bare, function, stream, calls_per_batch));
        all_hooked[static_cast<size_t>(t)].push_back(batch_ns(hooked, function, stream, calls_per_batch));
      }
    });
  }
  for (auto& worker : workers) worker.join();
  for (int t = 0; t < threads; ++t) {
    bare_ns.insert(bare_ns.end(), all_bare[static_cast<size_t>(t)].begin(), all_bare[static_cast<size_t>(t)].end());
    hooked_ns.insert(hooked_ns.end(), all_hooked[static_cast<size_t>(t)].begin(), all_hooked[static_cast<size_t>(t)].end());
  }
  fmt::print("{{\"bare_ns\":{:.3f},\"launch_ns\":{:.3f}}}\n", median(bare_ns),
             median(hooked_ns));
  std::fflush(stdout);
  return 0;
}

}  // namespace lull::bench
