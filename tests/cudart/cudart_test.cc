// The runtime stand-in on the simulated driver, in one process.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"

extern "C" cudaError_t cudaMemcpyAsync_ptsz(void*, const void*, size_t, cudaMemcpyKind,
                                            cudaStream_t);
extern "C" cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t);
extern "C" cudaError_t cudaMemset_ptds(void*, int, size_t);

namespace {

// A device of this test's own, gone when it ends.
struct OwnDevice {
  std::string path = "/dev/shm/simgpu-cudart-test-" + std::to_string(getpid());
  OwnDevice() {
    setenv("SIMGPU_DEVICE", path.c_str(), 1);
    setenv("SIMGPU_DEVICES", "2", 1);
  }
  ~OwnDevice() { unlink(path.c_str()); }
} own_device;

#define OK(call) REQUIRE((call) == cudaSuccess)

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  operator cudaStream_t() const { return stream; }
};

template <typename T>
struct DeviceArray {
  T* data = nullptr;
  size_t bytes;
  explicit DeviceArray(size_t count) : bytes(count * sizeof(T)) {
    OK(cudaMalloc(reinterpret_cast<void**>(&data), bytes));
  }
  ~DeviceArray() { cudaFree(data); }
};

template <typename Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  OK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, nullptr));
  return reinterpret_cast<Function>(function);
}

std::vector<int> numbers(size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 1);
  return all;
}

}  // namespace

TEST_CASE("every error has the value and the name that driver_types.h gives it") {
#define LULL_ERROR(value, name, text)                  \
  CHECK(value == static_cast<int>(name));              \
  CHECK(std::string(cudaGetErrorName(name)) == #name); \
  CHECK(std::string(cudaGetErrorString(name)) == text);
#include "tools/cudart/errors.def"
  CHECK(std::string(cudaGetErrorName(static_cast<cudaError_t>(12345))) ==
        "unrecognized error code");
}

TEST_CASE("the last error of a thread stays until it is read, and is that thread's own") {
  OK(cudaGetLastError());
  REQUIRE(cudaMalloc(nullptr, 1) == cudaErrorInvalidValue);
  REQUIRE(cudaPeekAtLastError() == cudaErrorInvalidValue);
  std::thread([] { CHECK(cudaPeekAtLastError() == cudaSuccess); }).join();
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  REQUIRE(cudaGetLastError() == cudaErrorInvalidValue);
  REQUIRE(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("versions are those of the headers and of the driver") {
  int runtime = 0, driver = 0;
  OK(cudaRuntimeGetVersion(&runtime));
  OK(cudaDriverGetVersion(&driver));
  CHECK(runtime == CUDART_VERSION);
  CHECK(driver >= 12000);
}

TEST_CASE("device properties agree with attributes and say that the device is simulated") {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  CHECK(count == 2);
  cudaDeviceProp properties;
  OK(cudaGetDeviceProperties(&properties, 1));
  CHECK(std::strstr(properties.name, "simulated") != nullptr);
  int processors = 0, major = 0;
  OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 1));
  OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1));
  CHECK(properties.multiProcessorCount == processors);
  CHECK(properties.major == major);
  CHECK(properties.warpSize == 32);
  CHECK(properties.maxThreadsPerBlock == 1024);
  size_t free_bytes = 0, total_bytes = 0;
  OK(cudaMemGetInfo(&free_bytes, &total_bytes));
  CHECK(total_bytes == properties.totalGlobalMem);
  CHECK(free_bytes <= total_bytes);
  CHECK(cudaGetDeviceProperties(&properties, 7) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(7) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("each thread has a device of its own, the first one at the start") {
  int device = -1;
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&device));
  CHECK(device == 1);
  std::thread([] {
    int other = -1;
    CHECK(cudaGetDevice(&other) == cudaSuccess);
    CHECK(other == 0);
  }).join();
  OK(cudaSetDevice(0));
}

TEST_CASE("a context that the program made current is the one the runtime uses") {
  OK(cudaFree(nullptr));
  const auto set_current = driver_function<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
  const auto retain =
      driver_function<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain");
  CUcontext second = nullptr;
  REQUIRE(retain(&second, 1) == CUDA_SUCCESS);
  REQUIRE(set_current(second) == CUDA_SUCCESS);
  int device = -1;
  OK(cudaGetDevice(&device));
  CHECK(device == 1);
  OK(cudaSetDevice(0));
}

TEST_CASE("copies in every direction bring the bytes") {
  const std::vector<int> out = numbers(5000);
  std::vector<int> back(out.size(), 0), direct(out.size(), 0);
  DeviceArray<int> a(out.size()), b(out.size());
  OK(cudaMemcpy(a.data, out.data(), a.bytes, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(b.data, a.data, a.bytes, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(back.data(), b.data, a.bytes, cudaMemcpyDeviceToHost));
  CHECK(back == out);
  OK(cudaMemcpy(direct.data(), a.data, a.bytes, cudaMemcpyDefault));
  CHECK(direct == out);
  OK(cudaMemcpy(direct.data(), out.data(), a.bytes, cudaMemcpyHostToHost));
  CHECK(direct == out);
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
}

TEST_CASE("asynchronous copies and sets happen in stream order") {
  Stream stream;
  DeviceArray<unsigned char> memory(4096);
  unsigned char* host = nullptr;
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), 4096));
  std::memset(host, 5, 4096);
  OK(cudaMemcpyAsync(memory.data, host, 4096, cudaMemcpyHostToDevice, stream));
  OK(cudaMemsetAsync(memory.data, 6, 2048, stream));
  OK(cudaMemcpyAsync(host, memory.data, 4096, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host[0] == 6);
  CHECK(host[2047] == 6);
  CHECK(host[2048] == 5);
  OK(cudaFreeHost(host));
}

TEST_CASE("a pitched copy moves rows only") {
  unsigned char rows[4][8], back[4][8] = {};
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 8; ++x) rows[y][x] = static_cast<unsigned char>(16 * y + x);
  }
  void* memory = nullptr;
  size_t pitch = 0;
  OK(cudaMallocPitch(&memory, &pitch, 6, 4));
  CHECK(pitch >= 6);
  OK(cudaMemset2D(memory, pitch, 0xee, 6, 4));
  OK(cudaMemcpy2D(memory, pitch, rows, 8, 3, 4, cudaMemcpyHostToDevice));
  OK(cudaMemcpy2D(back, 8, memory, pitch, 6, 4, cudaMemcpyDeviceToHost));
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 8; ++x) {
      CHECK(back[y][x] == (x < 3 ? rows[y][x] : x < 6 ? 0xee : 0));
    }
  }
  OK(cudaFree(memory));
}

TEST_CASE("the per-thread twins work on the thread's own stream") {
  DeviceArray<unsigned char> memory(64);
  unsigned char host[64] = {};
  OK(cudaMemset_ptds(memory.data, 3, 64));
  OK(cudaMemcpyAsync_ptsz(host, memory.data, 64, cudaMemcpyDeviceToHost, nullptr));
  OK(cudaStreamSynchronize_ptsz(nullptr));
  CHECK(host[63] == 3);
}

TEST_CASE("a launch takes device time, as its events say") {
  Stream stream;
  DeviceArray<float> data(1 << 16);
  cudaEvent_t start, stop;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&stop));
  OK(cudaEventRecord(start, stream));
  launch_touch(data.data, 1 << 16, 256, 256, stream);
  OK(cudaGetLastError());
  OK(cudaEventRecord(stop, stream));
  OK(cudaEventSynchronize(stop));
  OK(cudaStreamQuery(stream));
  float elapsed_ms = -1;
  OK(cudaEventElapsedTime(&elapsed_ms, start, stop));
  CHECK(elapsed_ms > 0);
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(stop));
}

TEST_CASE(
    "launching by host address, cooperatively and with a configuration all reach the driver") {
  Stream stream;
  DeviceArray<float> data(256);
  int count = 256;
  void* arguments[] = {&data.data, &count};
  OK(cudaLaunchKernel(touch_function(), dim3(1), dim3(256), arguments, 0, stream));
  OK(cudaLaunchCooperativeKernel(touch_function(), dim3(1), dim3(256), arguments, 0, stream));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(256);
  config.stream = stream;
  OK(cudaLaunchKernelExC(&config, touch_function(), arguments));
  cudaKernel_t kernel = nullptr;
  OK(cudaGetKernel(&kernel, touch_function()));
  OK(cudaLaunchKernel(kernel, dim3(1), dim3(256), arguments, 0, stream));
  OK(cudaStreamSynchronize(stream));
}

TEST_CASE("a bad shape is an invalid configuration and an unknown function is named so") {
  DeviceArray<float> data(16);
  launch_touch(data.data, 16, 1, 2048, nullptr);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  launch_touch(data.data, 16, 0, 32, nullptr);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  int not_a_kernel = 0;
  CHECK(cudaLaunchKernel(&not_a_kernel, dim3(1), dim3(1), nullptr, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
}

TEST_CASE("function attributes and occupancy come from the driver") {
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, touch_function()));
  CHECK(attributes.maxThreadsPerBlock >= 256);
  int blocks = 0, threads = 0, per_processor = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, touch_function(), 256, 0));
  CHECK(per_processor >= 1);
  OK(touch_block_size(&blocks, &threads));
  CHECK(threads >= 32);
  CHECK(blocks >= 1);
}

TEST_CASE("variables of the device can be found, written and read back") {
  const float out[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  float back[16] = {};
  size_t bytes = 0;
  OK(cudaGetSymbolSize(&bytes, table_symbol()));
  CHECK(bytes == sizeof out);
  OK(cudaMemcpyToSymbol(table_symbol(), out, sizeof out, 0, cudaMemcpyHostToDevice));
  OK(cudaMemcpyFromSymbol(back, table_symbol(), sizeof(float) * 8, sizeof(float) * 8,
                          cudaMemcpyDeviceToHost));
  CHECK(back[0] == 9);
  CHECK(back[7] == 16);
  void* counter = nullptr;
  OK(cudaGetSymbolAddress(&counter, counter_symbol()));
  OK(cudaMemset(counter, 0, sizeof(int)));
  CHECK(cudaMemcpyToSymbol(table_symbol(), out, sizeof out, 4, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  int not_a_symbol = 0;
  CHECK(cudaGetSymbolAddress(&counter, &not_a_symbol) == cudaErrorInvalidSymbol);
  cudaGetLastError();
}

TEST_CASE("a managed variable can be read and written by the host") {
  *shared_number_address() = 42;
  CHECK(*shared_number_address() == 42);
  int* managed = nullptr;
  OK(cudaMallocManaged(reinterpret_cast<void**>(&managed), sizeof(int) * 4, cudaMemAttachGlobal));
  managed[3] = 7;
  OK(cudaDeviceSynchronize());
  CHECK(managed[3] == 7);
  OK(cudaFree(managed));
}

TEST_CASE("pointers are known for what they are") {
  DeviceArray<int> device(4);
  int* host = nullptr;
  int on_stack = 0;
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), 16));
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, device.data));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  OK(cudaPointerGetAttributes(&attributes, host));
  CHECK(attributes.type == cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&attributes, &on_stack));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  OK(cudaFreeHost(host));
}

TEST_CASE("memory allocated in stream order can be used in that order") {
  Stream stream;
  void* memory = nullptr;
  unsigned char host[32] = {};
  OK(cudaMallocAsync(&memory, 32, stream));
  OK(cudaMemsetAsync(memory, 8, 32, stream));
  OK(cudaMemcpyAsync(host, memory, 32, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(memory, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(host[31] == 8);
}

TEST_CASE("host functions run once, behind the work before them") {
  Stream stream;
  static std::atomic<int> calls{0};
  calls = 0;
  DeviceArray<float> data(256);
  for (int i = 0; i < 5; ++i) {
    launch_touch(data.data, 256, 1, 256, stream);
    OK(cudaLaunchHostFunc(
        stream,
        [](void* expected) {
          if (calls == static_cast<int>(reinterpret_cast<intptr_t>(expected))) ++calls;
        },
        reinterpret_cast<void*>(static_cast<intptr_t>(i))));
  }
  OK(cudaStreamSynchronize(stream));
  CHECK(calls == 5);
}

TEST_CASE("a stream waits for another's event") {
  Stream first, second;
  DeviceArray<unsigned char> memory(16);
  unsigned char host[16] = {};
  cudaEvent_t written;
  OK(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
  OK(cudaMemsetAsync(memory.data, 4, 16, first));
  OK(cudaEventRecord(written, first));
  OK(cudaStreamWaitEvent(second, written, 0));
  OK(cudaMemcpyAsync(host, memory.data, 16, cudaMemcpyDeviceToHost, second));
  OK(cudaStreamSynchronize(second));
  CHECK(host[15] == 4);
  OK(cudaEventQuery(written));
  OK(cudaEventDestroy(written));
}

TEST_CASE("a captured stream becomes a graph that does its work at each launch") {
  Stream stream;
  DeviceArray<unsigned char> memory(16);
  unsigned char* host = nullptr;
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), 16));
  std::memset(host, 0, 16);
  DeviceArray<float> data(256);
  OK(cudaMemset(memory.data, 0, 16));
  OK(cudaDeviceSynchronize());
  cudaStreamCaptureStatus status;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  OK(cudaMemsetAsync(memory.data, 9, 16, stream));
  launch_touch(data.data, 256, 1, 256, stream);
  OK(cudaMemcpyAsync(host, memory.data, 16, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaStreamSynchronize(stream));
  CHECK(host[0] == 0);
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 3);
  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; ++i) {
    std::memset(host, 0, 16);
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(host[15] == 9);
  }
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  OK(cudaFreeHost(host));
}

TEST_CASE("a graph can be built node by node") {
  Stream stream;
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  DeviceArray<unsigned char> memory(64);
  DeviceArray<float> data(256);
  unsigned char* host = nullptr;
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), 64));
  static std::atomic<int> calls{0};
  calls = 0;
  cudaMemsetParams set = {};
  set.dst = memory.data;
  set.value = 11;
  set.elementSize = 1;
  set.width = 64;
  set.height = 1;
  int count = 256;
  void* arguments[] = {&data.data, &count};
  cudaKernelNodeParams kernel = {};
  kernel.func = const_cast<void*>(touch_function());
  kernel.gridDim = dim3(1);
  kernel.blockDim = dim3(256);
  kernel.kernelParams = arguments;
  cudaHostNodeParams call = {};
  call.fn = [](void*) { ++calls; };
  cudaGraphNode_t set_node, kernel_node, copy_node, call_node;
  OK(cudaGraphAddMemsetNode(&set_node, graph, nullptr, 0, &set));
  OK(cudaGraphAddKernelNode(&kernel_node, graph, &set_node, 1, &kernel));
  OK(cudaGraphAddMemcpyNode1D(&copy_node, graph, &kernel_node, 1, host, memory.data, 64,
                              cudaMemcpyDeviceToHost));
  OK(cudaGraphAddHostNode(&call_node, graph, &copy_node, 1, &call));
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(copy_node, &type));
  CHECK(type == cudaGraphNodeTypeMemcpy);
  cudaKernelNodeParams found = {};
  OK(cudaGraphKernelNodeGetParams(kernel_node, &found));
  CHECK(found.func == touch_function());
  CHECK(found.blockDim.x == 256);
  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(calls == 2);
  CHECK(host[63] == 11);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  OK(cudaFreeHost(host));
}

TEST_CASE("driver entry points are handed out, and unknown ones are not") {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &function, 12000, cudaEnableDefault, &status));
  CHECK(status == cudaDriverEntryPointSuccess);
  CHECK(function != nullptr);
  cudaGetDriverEntryPointByVersion("cuNoSuchCall", &function, 12000, cudaEnableDefault, &status);
  CHECK(status == cudaDriverEntryPointSymbolNotFound);
  cudaGetLastError();
}

TEST_CASE("after a device reset memory and kernels work again") {
  OK(cudaDeviceReset());
  DeviceArray<float> data(256);
  launch_touch(data.data, 256, 1, 256, nullptr);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
}

TEST_CASE("exports carry the version node of the real library") {
  void* self = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(self != nullptr);
  for (const char* name : {"cudaMalloc", "cudaLaunchKernel_ptsz", "__cudaRegisterFatBinary"}) {
    CHECK(dlvsym(self, name, "libcudart.so.13") != nullptr);
  }
  dlclose(self);
}
