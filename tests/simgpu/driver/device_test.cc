#include <dlfcn.h>
#include <zstd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

TEST_CASE("a device answers every attribute, its name, uuid and memory") {
  Program program;
  int version = 0;
  OK(cuDriverGetVersion(&version));
  CHECK(version == 13000);
  int count = 0;
  OK(cuDeviceGetCount(&count));
  CHECK(count == 2);
  int value = 0;
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; ++i) {
    CHECK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), 0) == CUDA_SUCCESS);
  }
  CHECK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), 0) ==
        CUDA_ERROR_INVALID_VALUE);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  CHECK(value == 132);
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 7) ==
        CUDA_ERROR_INVALID_DEVICE);
  char name[96];
  OK(cuDeviceGetName(name, sizeof name, 0));
  CHECK(std::string(name).find("H100") != std::string::npos);
  CUuuid one, same, other;
  OK(cuDeviceGetUuid(&one, 0));
  OK(cuDeviceGetUuid_v2(&same, 0));
  OK(cuDeviceGetUuid_v2(&other, 1));
  CHECK(std::memcmp(&one, &same, 16) == 0);
  CHECK(std::memcmp(&one, &other, 16) != 0);
  size_t bytes = 0;
  OK(cuDeviceTotalMem_v2(&bytes, 0));
  CHECK(bytes > (size_t{60} << 30));
  CUdevice device;
  CHECK(cuDeviceGet(&device, 2) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuDeviceGet(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("contexts are a stack per thread, and a destroyed one is told apart from none") {
  Program program;
  CUcontext current = nullptr, other = nullptr, popped = nullptr;
  OK(cuCtxGetCurrent(&current));
  CHECK(current == program.context);
  OK(cuCtxCreate_v4(&other, nullptr, CU_CTX_SCHED_BLOCKING_SYNC, 1));
  CUdevice device = -1;
  OK(cuCtxGetDevice(&device));
  CHECK(device == 1);
  unsigned flags = 0;
  OK(cuCtxGetFlags(&flags));
  CHECK(flags == CU_CTX_SCHED_BLOCKING_SYNC);
  unsigned long long id = 0, other_id = 0;
  OK(cuCtxGetId(other, &id));
  OK(cuCtxGetId(program.context, &other_id));
  CHECK(id != other_id);
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == other);
  OK(cuCtxGetCurrent(&current));
  CHECK(current == program.context);
  OK(cuCtxPushCurrent(other));
  std::thread([&] {
    CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxSetCurrent(other) == CUDA_SUCCESS);
    CHECK(cuCtxDestroy_v2(other) == CUDA_SUCCESS);
  }).join();
  CHECK(cuCtxSynchronize() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(cuCtxPushCurrent_v2(other) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxDestroy_v2(other) == CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPopCurrent_v2(nullptr));
  size_t limit = 0;
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  CHECK(limit == 4096);
  CHECK(cuCtxGetLimit(&limit, CU_LIMIT_MAX) == CUDA_ERROR_UNSUPPORTED_LIMIT);
  int least = 1, greatest = 1;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0);
  CHECK(greatest < 0);
}

TEST_CASE("the primary context lives from the first retain to the last release") {
  Program program;
  CUcontext one = nullptr, same = nullptr;
  unsigned flags = 1;
  int active = 1;
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  CHECK(active == 0);
  OK(cuDevicePrimaryCtxRetain(&one, 1));
  OK(cuDevicePrimaryCtxRetain(&same, 1));
  CHECK(one == same);
  OK(cuDevicePrimaryCtxRelease(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  CHECK(active == 1);
  CHECK(cuCtxDestroy_v2(one) == CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  CHECK(cuDevicePrimaryCtxRelease_v2(1) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxPushCurrent_v2(one) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a module knows its kernels, their parameters and its variables") {
  Program program;
  CUfunction mixed = nullptr, absent = nullptr;
  OK(cuModuleGetFunction(&mixed, program.module, "mixed"));
  CHECK(cuModuleGetFunction(&absent, program.module, "not_a_kernel") == CUDA_ERROR_NOT_FOUND);
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, program.module));
  CHECK(count == 3);
  const size_t offsets[] = {0, 8, 16, 40};
  const size_t sizes[] = {4, 8, 24, 1};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 99, size = 99;
    OK(cuFuncGetParamInfo(mixed, i, &offset, &size));
    CHECK(offset == offsets[i]);
    CHECK(size == sizes[i]);
  }
  size_t offset = 0;
  CHECK(cuFuncGetParamInfo(mixed, 4, &offset, nullptr) == CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, mixed));
  CHECK(value == 256);
  OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, mixed));
  CHECK(value == 1024);
  const char* name = nullptr;
  OK(cuFuncGetName(&name, mixed));
  CHECK(std::string(name) == "mixed");
  CUmodule owner = nullptr;
  OK(cuFuncGetModule(&owner, mixed));
  CHECK(owner == program.module);
  CUdeviceptr address = 0;
  size_t bytes = 0;
  OK(cuModuleGetGlobal_v2(&address, &bytes, program.module, "table"));
  CHECK(bytes == 64);
  OK(cuModuleGetGlobal_v2(&address, &bytes, program.module, "counter"));
  unsigned initial = 0;
  OK(cuMemcpyDtoH_v2(&initial, address, sizeof initial));
  CHECK(initial == 7);
  OK(cuModuleUnload(program.module));
  CHECK(cuModuleUnload(program.module) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(program.launch(nullptr, 1) == CUDA_ERROR_INVALID_HANDLE);
  CUmodule bad = nullptr;
  CHECK(cuModuleLoadData(&bad, "no image") == CUDA_ERROR_INVALID_IMAGE);
  CHECK(cuModuleLoadData(&bad, ".version 8.0\n.target sm_90\n.entry a() {") != CUDA_SUCCESS);
  CHECK(cuModuleLoad(&bad, "/nonexistent/file.ptx") == CUDA_ERROR_FILE_NOT_FOUND);
}

namespace {
// A fat binary with one PTX entry, as nvcc writes it.
std::vector<unsigned char> fatbin_of(const std::string& ptx, bool compressed) {
  std::vector<char> payload(ptx.begin(), ptx.end());
  payload.push_back('\0');
  const uint64_t plain = payload.size();
  if (compressed) {
    std::vector<char> packed(ZSTD_compressBound(plain));
    packed.resize(ZSTD_compress(packed.data(), packed.size(), payload.data(), plain, 3));
    payload = packed;
  }
  const uint32_t packed_bytes = compressed ? static_cast<uint32_t>(payload.size()) : 0;
  while (payload.size() % 8 != 0) payload.push_back('\0');
  std::vector<unsigned char> all(16 + 80);
  const auto put = [&](size_t at, auto value) {
    std::memcpy(all.data() + at, &value, sizeof value);
  };
  put(0, uint32_t{0xba55ed50});
  put(4, uint16_t{1});
  put(6, uint16_t{16});
  put(8, uint64_t{80 + payload.size()});
  put(16, uint16_t{1});
  put(18, uint16_t{0x101});
  put(20, uint32_t{80});
  put(24, uint64_t{payload.size()});
  put(32, packed_bytes);
  put(44, uint32_t{90});
  put(56, uint64_t{compressed ? 0x8000u : 0u});
  put(72, plain);
  all.insert(all.end(), payload.begin(), payload.end());
  return all;
}
}  // namespace

TEST_CASE(
    "a library is loaded from a fat binary, compressed or not, and its kernels launch as they "
    "are") {
  Program program;
  const bool compressed = GENERATE(false, true);
  const auto fatbin = fatbin_of(kPtx, compressed);
  const struct {
    int magic, version;
    const void* data;
    void* unused;
  } wrapper{0x466243b1, 1, fatbin.data(), nullptr};
  CUlibrary library = nullptr, owner = nullptr;
  OK(cuLibraryLoadData(&library, &wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  OK(cuLibraryGetKernelCount(&count, library));
  CHECK(count == 3);
  CUkernel kernels[3], spin = nullptr;
  OK(cuLibraryEnumerateKernels(kernels, 3, library));
  OK(cuLibraryGetKernel(&spin, library, "spin"));
  CHECK(kernels[0] == spin);
  const char* name = nullptr;
  OK(cuKernelGetName(&name, spin));
  CHECK(std::string(name) == "spin");
  OK(cuKernelGetLibrary(&owner, spin));
  CHECK(owner == library);
  CUfunction function = nullptr;
  OK(cuKernelGetFunction(&function, spin));
  unsigned long long ns = 1000;
  void* arguments[] = {&ns};
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(spin), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments,
                    nullptr));
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CUdeviceptr address = 0;
  size_t bytes = 0;
  OK(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
  CHECK(bytes == 4);
  OK(cuCtxSynchronize());
  OK(cuLibraryUnload(library));
  CHECK(cuLaunchKernel(reinterpret_cast<CUfunction>(spin), 1, 1, 1, 1, 1, 1, 0, nullptr, arguments,
                       nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("occupancy follows threads and shared memory") {
  Program program;
  int blocks = 0, least_grid = 0, block = 0;
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, program.spin, 1024, 0));
  CHECK(blocks == 2);
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, program.spin, 256, 40 << 10));
  CHECK(blocks == 5);
  OK(cuOccupancyMaxPotentialBlockSize(&least_grid, &block, program.spin, nullptr, 0, 0));
  CHECK(block == 1024);
  CHECK(least_grid == 264);
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 32, 0) ==
        CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("tools read the model clock from the library") {
  Program program;
  const auto clock = reinterpret_cast<int (*)(unsigned long long*, double*)>(
      dlsym(dlopen(LULL_SIM_CUDA, RTLD_NOW), "simgpu_model_clock"));
  REQUIRE(clock != nullptr);
  unsigned long long origin = 0;
  double slow = 0;
  CHECK(clock(&origin, &slow) == 0);
  CHECK(origin > 0);
  CHECK(slow == 1.0);
}
