// launch_kinds KIND [LAUNCHES [SPIN_NS [THREADS]]]: one kind of launch, linked with -lcuda.
//   ex            cuLaunchKernelEx                 cooperative   cuLaunchCooperativeKernel
//   host_function a host function behind each launch
//   graph         an explicit graph of LAUNCHES kernels, launched 3 times
//   capture       the same, captured from a stream
//   threads       THREADS threads (4), LAUNCHES each, every thread on a stream of its own
//   streams       launches spread over 3 streams joined by events
#include <atomic>
#include <string>
#include <thread>

#define DRIVER(name) name
#include "driver_work.h"

static constexpr unsigned kGraphLaunches = 3;

static CUstream new_stream() {
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

static Counts replay(CUgraph graph, CUstream stream, unsigned long long kernels) {
  CUgraphExec executable = nullptr;
  CHECK(cuGraphInstantiate(&executable, graph, 0));
  for (unsigned i = 0; i < kGraphLaunches; ++i) CHECK(cuGraphLaunch(executable, stream));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuGraphExecDestroy(executable));
  CHECK(cuGraphDestroy(graph));
  Counts counts;
  counts.launches = kGraphLaunches;
  counts.graph_kernels = kGraphLaunches * kernels;
  return counts;
}

static Counts with_graph(DriverWork& work, unsigned long long count, unsigned long long spin_ns) {
  CUgraph graph = nullptr;
  CHECK(cuGraphCreate(&graph, 0));
  CUgraphNode last = nullptr;
  void* arguments[] = {&spin_ns};
  for (unsigned long long i = 0; i < count; ++i) {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = i % 2 == 0 ? work.spin : work.second_spin;
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = 32;
    parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments;
    CUgraphNode node = nullptr;
    CHECK(cuGraphAddKernelNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &parameters));
    last = node;
  }
  return replay(graph, new_stream(), count);
}

static Counts with_capture(DriverWork& work, unsigned long long count, unsigned long long spin_ns) {
  CUstream stream = new_stream();
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (unsigned long long i = 0; i < count; ++i) work.launch(i, spin_ns, stream);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  CHECK(cuGraphGetNodes(graph, nullptr, &nodes));
  REQUIRE_THAT(nodes == count);
  return replay(graph, stream, count);
}

static Counts with_extended(DriverWork& work, unsigned long long count,
                            unsigned long long spin_ns) {
  CUstream stream = new_stream();
  void* arguments[] = {&spin_ns};
  for (unsigned long long i = 0; i < count; ++i) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = i % 2;
    CHECK(cuLaunchKernelEx(&config, work.spin, arguments, nullptr));
  }
  CHECK(cuStreamSynchronize(stream));
  Counts counts;
  counts.launches = count;
  return counts;
}

static Counts with_cooperative(DriverWork& work, unsigned long long count,
                               unsigned long long spin_ns) {
  void* arguments[] = {&spin_ns};
  for (unsigned long long i = 0; i < count; ++i) {
    CHECK(cuLaunchCooperativeKernel(work.spin, 2, 1, 1, 32, 1, 1, 0, nullptr, arguments));
  }
  CHECK(cuCtxSynchronize());
  Counts counts;
  counts.launches = count;
  return counts;
}

static std::atomic<unsigned long long> host_calls{0};

static Counts with_host_function(DriverWork& work, unsigned long long count,
                                 unsigned long long spin_ns) {
  CUstream stream = new_stream();
  for (unsigned long long i = 0; i < count; ++i) {
    work.launch(i, spin_ns, stream);
    CHECK(cuLaunchHostFunc(
        stream, [](void*) { ++host_calls; }, nullptr));
  }
  CHECK(cuStreamSynchronize(stream));
  REQUIRE_THAT(host_calls == count);
  Counts counts;
  counts.launches = counts.host_functions = count;
  return counts;
}

static Counts with_threads(DriverWork& work, unsigned long long count, unsigned long long spin_ns,
                           unsigned long long threads) {
  std::vector<std::thread> all;
  for (unsigned long long t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      CHECK(cuCtxSetCurrent(work.context));
      CUstream stream = new_stream();
      for (unsigned long long i = 0; i < count; ++i) {
        work.launch(i, spin_ns, stream);
        if (i % 32 == 31) CHECK(cuStreamSynchronize(stream));
      }
      CHECK(cuStreamSynchronize(stream));
      CHECK(cuStreamDestroy(stream));
    });
  }
  for (std::thread& thread : all) thread.join();
  Counts counts;
  counts.launches = count * threads;
  return counts;
}

static Counts with_streams(DriverWork& work, unsigned long long count, unsigned long long spin_ns) {
  CUstream streams[3] = {new_stream(), new_stream(), new_stream()};
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (unsigned long long i = 0; i < count; ++i) {
    work.launch(i, spin_ns, streams[i % 3]);
    CHECK(cuEventRecord(event, streams[i % 3]));
    CHECK(cuStreamWaitEvent(streams[(i + 1) % 3], event, 0));
  }
  for (CUstream stream : streams) CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventQuery(event));
  Counts counts;
  counts.launches = count;
  return counts;
}

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const auto count = argument(argc, argv, 2, 10), spin_ns = argument(argc, argv, 3, 10000);
  DriverWork work;
  work.start();
  if (kind == "ex") return finish(with_extended(work, count, spin_ns));
  if (kind == "cooperative") return finish(with_cooperative(work, count, spin_ns));
  if (kind == "host_function") return finish(with_host_function(work, count, spin_ns));
  if (kind == "graph") return finish(with_graph(work, count, spin_ns));
  if (kind == "capture") return finish(with_capture(work, count, spin_ns));
  if (kind == "threads")
    return finish(with_threads(work, count, spin_ns, argument(argc, argv, 4, 4)));
  if (kind == "streams") return finish(with_streams(work, count, spin_ns));
  std::fprintf(stderr, "program: unknown kind %s\n", kind.c_str());
  return 2;
}
