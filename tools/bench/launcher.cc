#include "tools/bench/launcher.h"

#include <dlfcn.h>
#include <sched.h>
#include <time.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <cuda.h>

namespace lull::bench {
namespace {

using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream, void**, void**);

// The thread's own time on a processor: what others do on a busy machine is not lull's cost.
uint64_t thread_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Long enough for the coordinator to drain what the batch before has left.
constexpr long kPauseNs = 200'000;
constexpr int kWarmCalls = 16;

double batch_ns(Launch launch, CUfunction function, CUstream stream, int calls) {
  const timespec pause{0, kPauseNs};
  nanosleep(&pause, nullptr);
  for (int i = 0; i < kWarmCalls; ++i) {
    launch(function, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
  }
  const uint64_t start = thread_ns();
  for (int i = 0; i < calls; ++i) {
    launch(function, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr);
  }
  return static_cast<double>(thread_ns() - start) / calls;
}

// As deep in the program as real launches are: under as many calls as a call site is made of. Each
// has a return address of its own.
constexpr int kDepth = 16;
template <int kLeft>
[[gnu::noinline]] double batch_below(Launch launch, CUfunction function, CUstream stream, int calls) {
  if constexpr (kLeft == 0) {
    return batch_ns(launch, function, stream, calls);
  } else {
    const double result = batch_below<kLeft - 1>(launch, function, stream, calls);
    asm volatile("");  // no tail call
    return result;
  }
}

double quantile(std::vector<double>& values, size_t percent) {
  const size_t at = values.size() * percent / 100;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(at), values.end());
  return values[at];
}

}  // namespace

void stay_on(int processor) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  if (processor >= count - 1) return;
  int wanted = processor == kLastProcessor ? count - 1 : processor;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && wanted-- == 0) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof one, &one);
}

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
      stay_on(t);
      CUfunction function;
      CUstream stream;
      set_current(context);
      get_function(&function, module, "empty");
      create_stream(&stream, 1);
      for (int warm = 0; warm < 3; ++warm) {
        batch_below<kDepth>(bare, function, stream, calls_per_batch);
        batch_below<kDepth>(hooked, function, stream, calls_per_batch);
      }
      ++arrived;
      while (arrived.load() < threads) std::this_thread::yield();
      for (int b = 0; b < batches; ++b) {
        all_bare[static_cast<size_t>(t)].push_back(batch_below<kDepth>(bare, function, stream, calls_per_batch));
        all_hooked[static_cast<size_t>(t)].push_back(batch_below<kDepth>(hooked, function, stream, calls_per_batch));
      }
    });
  }
  for (auto& worker : workers) worker.join();
  for (int t = 0; t < threads; ++t) {
    bare_ns.insert(bare_ns.end(), all_bare[static_cast<size_t>(t)].begin(), all_bare[static_cast<size_t>(t)].end());
    hooked_ns.insert(hooked_ns.end(), all_hooked[static_cast<size_t>(t)].begin(), all_hooked[static_cast<size_t>(t)].end());
  }
  fmt::print("{{\"bare_ns\":{:.3f},\"launch_ns\":{:.3f},\"launch_p10_ns\":{:.3f}}}\n",
             quantile(bare_ns, 50), quantile(hooked_ns, 50), quantile(hooked_ns, 10));
  std::fflush(stdout);
  return 0;
}

}  // namespace lull::bench
