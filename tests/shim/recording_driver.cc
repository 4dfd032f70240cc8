// A libcuda.so.1 that notes what it is asked and does the least that keeps the shim going. Its
// device clock moves by 10 us a launch; made idle, it runs with the host's. Not a GPU of any kind.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {
constexpr int kLog = 4096;
const char* calls[kLog];
std::atomic<int> call_count;
std::atomic<uint64_t> device_now_ns{1000};
std::atomic<uint64_t> next_address{0x100000000};
std::atomic<CUstream> capturing;
std::atomic<int> refuse_launches;
std::atomic<int> live_events;
std::atomic<bool> hanging;  // no event happens
std::atomic<uint64_t> held_up_ns;  // for so long the next launch call sleeps, and the device has nothing to do
// Not 0: every stream is idle when it is asked, the device's clock is the host's, and a launch call
// takes this long before its kernel starts.
std::atomic<uint64_t> idle_call_ns;
constexpr uint64_t kKernelNs = 10'000;
std::atomic<unsigned> graph_grid{4};
char names[64][64];
int name_count;
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" void note_call(const char* name) {
  const int at = call_count.fetch_add(1);
  if (at < kLog) calls[at] = name;
}

// For the probe.
EXPORT int recorded_calls(const char** out, int room) {
  const int count = call_count.exchange(0);
  const int most = count < room ? count : room;
  for (int n = 0; n < most; ++n) out[n] = calls[n];
  return most;
}
EXPORT void shape_graph_kernels(unsigned grid) { graph_grid = grid; }
EXPORT void refuse_next_launches(int count) { refuse_launches = count; }
EXPORT void hang(bool on) { hanging = on; }
EXPORT void hold_up_next_launch(uint64_t ns) { held_up_ns = ns; }
EXPORT void be_idle(uint64_t call_ns) { idle_call_ns = call_ns; }
EXPORT int events_alive() { return live_events; }

struct VersionedCall {
  const char* base;
  int version;
  bool per_thread;
  const char* name;
  int (*function)();
};
extern const VersionedCall versioned_calls[];

static CUresult find(const char* name, void** out, int version, cuuint64_t flags) {
  *out = nullptr;
  for (const VersionedCall* call = versioned_calls; call->base != nullptr; ++call) {
    if (strcmp(call->base, name) != 0 || call->version > version) continue;
    if (call->per_thread == ((flags & 2) != 0)) {
      *out = reinterpret_cast<void*>(call->function);
    }
  }
  if (strcmp(name, "cuDriverGetVersion") == 0) *out = reinterpret_cast<void*>(&::cuDriverGetVersion);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
static CUresult aliased_launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned, CUstream, void**, void**) {
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  note_call("cuGetProcAddress");
  return find(name, out, version, flags);
}
EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult*) {
  note_call("cuGetProcAddress_v2");
  const CUresult result = find(name, out, version, flags);
  // A driver whose two look-ups disagree.
  if (result == CUDA_SUCCESS && getenv("TEST_ALIASED_LAUNCH") != nullptr &&
      strcmp(name, "cuLaunchKernel") == 0) {
    *out = reinterpret_cast<void*>(&aliased_launch);
  }
  return result;
}

EXPORT CUresult cuDriverGetVersion(int* version) { *version = 13000; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetCount(int* count) { *count = 1; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceGetName(char* name, int room, CUdevice) {
  strncpy(name, "recording device", static_cast<size_t>(room));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) { memset(uuid, 9, sizeof *uuid); return CUDA_SUCCESS; }
EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { *bytes = size_t{16} << 30; return CUDA_SUCCESS; }
EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = size_t{15} << 30;
  *total = size_t{16} << 30;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) { *context = reinterpret_cast<CUcontext>(16); return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice* device) { *device = 0; return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  note_call("cuDevicePrimaryCtxRetain");
  return cuCtxGetCurrent(context);
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
// It is retained elsewhere.
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) {
  note_call("cuModuleLoadData");
  *module = reinterpret_cast<CUmodule>(next_address.fetch_add(64));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  note_call("cuModuleGetFunction");
  const int at = name_count++ % 64;
  strncpy(names[at], name, 63);
  *function = reinterpret_cast<CUfunction>(names[at]);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetName(const char** name, CUfunction function) {
  *name = reinterpret_cast<const char*>(function);
  return CUDA_SUCCESS;
}
static uint64_t host_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
static CUresult launched(const char* name) {
  note_call(name);
  if (refuse_launches > 0) {
    --refuse_launches;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const uint64_t ns = held_up_ns.exchange(0); ns != 0) {
    usleep(static_cast<useconds_t>(ns / 1000));
    device_now_ns += ns;
  }
  if (const uint64_t call_ns = idle_call_ns; call_ns != 0) {
    const timespec nap{0, static_cast<long>(call_ns)};
    nanosleep(&nap, nullptr);
    device_now_ns = host_ns();
  }
  device_now_ns += kKernelNs;
  return CUDA_SUCCESS;
}
#define LAUNCH(name)                                                                           \
  EXPORT CUresult name(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                       unsigned, CUstream, void**, void**) {                                   \
    return launched(#name);                                                                    \
  }
LAUNCH(cuLaunchKernel)
LAUNCH(cuLaunchKernel_ptsz)
EXPORT CUresult cuGraphGetNodes(CUgraph, CUgraphNode* nodes, size_t* count) {
  if (nodes != nullptr) {
    for (size_t n = 0; n < *count && n < 3; ++n) nodes[n] = reinterpret_cast<CUgraphNode>(n + 1);
  }
  *count = 3;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = node == reinterpret_cast<CUgraphNode>(3) ? CU_GRAPH_NODE_TYPE_MEMCPY
                                                   : CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode, CUDA_KERNEL_NODE_PARAMS* params) {
  memset(params, 0, sizeof *params);
  params->func = reinterpret_cast<CUfunction>(names[0]);
  params->gridDimX = graph_grid;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph, unsigned long long) {
  note_call("cuGraphInstantiateWithFlags");
  *exec = reinterpret_cast<CUgraphExec>(next_address.fetch_add(64));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
  note_call("cuStreamCreate");
  *stream = reinterpret_cast<CUstream>(next_address.fetch_add(64));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetFlags(CUstream, unsigned* flags) { *flags = CU_STREAM_NON_BLOCKING; return CUDA_SUCCESS; }
EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  note_call("cuStreamBeginCapture_v2");
  capturing = stream;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  note_call("cuStreamEndCapture");
  capturing = nullptr;
  *graph = reinterpret_cast<CUgraph>(32);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = capturing == stream ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemHostRegister_v2(void*, size_t, unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned) {
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr address, cuuint64_t value, unsigned) {
  note_call("cuStreamWriteValue64_v2");
  *reinterpret_cast<volatile uint64_t*>(address) = value;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new uint64_t{0});
  ++live_events;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<uint64_t*>(event);
  --live_events;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventRecord(CUevent event, CUstream) {
  note_call("cuEventRecord");
  if (idle_call_ns != 0) device_now_ns = std::max(device_now_ns.load(), host_ns());
  *reinterpret_cast<uint64_t*>(event) = device_now_ns;
  return CUDA_SUCCESS;
}
// Busy for ever, unless made idle, so that what events say is taken as it is.
EXPORT CUresult cuStreamQuery(CUstream) {
  return idle_call_ns != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuEventQuery(CUevent) { return hanging ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
EXPORT CUresult cuEventElapsedTime(float* ms, CUevent from, CUevent to) {
  *ms = static_cast<float>(*reinterpret_cast<uint64_t*>(to) - *reinterpret_cast<uint64_t*>(from)) / 1e6F;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  note_call("cuMemAlloc_v2");
  *address = next_address.fetch_add((bytes + 511) / 512 * 512);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr) { note_call("cuMemFree_v2"); return CUDA_SUCCESS; }
