// library_work cublas|cudnn [LAUNCHES]: NVIDIA's libraries, opened at run time by their soname, do
// some work on memory of the driver API; the result is checked. How many kernels that is, is theirs
// to know: the last line is `launches=?`. Exit code 77: the library is not on this machine.
#include <cuda.h>
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "program.h"

static constexpr int kNotHere = 77;

static void* open_library(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  std::fprintf(stderr, "program: %s\n", dlerror());
  std::exit(kNotHere);
}

template <typename Function>
static Function* look_up(void* library, const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) std::fprintf(stderr, "program: the library has no %s\n", name);
  if (found == nullptr) std::exit(kNotHere);
  return found;
}

static CUdeviceptr upload(const std::vector<float>& values) {
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, values.size() * sizeof(float)));
  CHECK(cuMemcpyHtoD(memory, values.data(), values.size() * sizeof(float)));
  return memory;
}

static std::vector<float> download(CUdeviceptr memory, size_t count) {
  std::vector<float> values(count);
  CHECK(cuMemcpyDtoH(values.data(), memory, count * sizeof(float)));
  return values;
}

// C = A * identity, several shapes, so that several kernels are chosen.
static void cublas(unsigned long long count) {
  void* library = open_library({"libcublas.so.13", "libcublas.so.12"});
  auto* create = look_up<int(void**)>(library, "cublasCreate_v2");
  auto* destroy = look_up<int(void*)>(library, "cublasDestroy_v2");
  auto* sgemm =
      look_up<int(void*, int, int, int, int, int, const float*, const float*, int, const float*,
                  int, const float*, float*, int)>(library, "cublasSgemm_v2");
  void* handle = nullptr;
  CHECK(create(&handle));
  const float one = 1, zero = 0;
  for (const int size : {16, 100, 512}) {
    const auto n = static_cast<size_t>(size);
    std::vector<float> a(n * n), identity(n * n, 0), c(n * n, -1);
    for (size_t i = 0; i < n * n; ++i) a[i] = static_cast<float>(i % 97);
    for (size_t i = 0; i < n; ++i) identity[i * n + i] = 1;
    const CUdeviceptr da = upload(a), di = upload(identity), dc = upload(c);
    for (unsigned long long i = 0; i < count; ++i) {
      CHECK(sgemm(handle, 0, 0, size, size, size, &one, reinterpret_cast<const float*>(da), size,
                  reinterpret_cast<const float*>(di), size, &zero, reinterpret_cast<float*>(dc),
                  size));
    }
    CHECK(cuCtxSynchronize());
    REQUIRE_THAT(download(dc, n * n) == a);
    for (const CUdeviceptr memory : {da, di, dc}) CHECK(cuMemFree(memory));
  }
  CHECK(destroy(handle));
}

// Softmax of equal values is one over their number.
static void cudnn(unsigned long long count) {
  void* library = open_library({"libcudnn.so.9"});
  auto* create = look_up<int(void**)>(library, "cudnnCreate");
  auto* destroy = look_up<int(void*)>(library, "cudnnDestroy");
  auto* create_tensor = look_up<int(void**)>(library, "cudnnCreateTensorDescriptor");
  auto* set_tensor =
      look_up<int(void*, int, int, int, int, int, int)>(library, "cudnnSetTensor4dDescriptor");
  auto* softmax =
      look_up<int(void*, int, int, const void*, void*, const void*, const void*, void*, void*)>(
          library, "cudnnSoftmaxForward");
  void *handle = nullptr, *tensor = nullptr;
  CHECK(create(&handle));
  CHECK(create_tensor(&tensor));
  constexpr int kRows = 8, kValues = 64;
  CHECK(set_tensor(tensor, /*NCHW*/ 0, /*float*/ 0, kRows, kValues, 1, 1));
  const std::vector<float> values(kRows * kValues, 3.0f);
  const CUdeviceptr x = upload(values), y = upload(values);
  const float one = 1, zero = 0;
  for (unsigned long long i = 0; i < count; ++i) {
    CHECK(softmax(handle, /*accurate*/ 1, /*over channels*/ 1, &one, tensor,
                  reinterpret_cast<void*>(x), &zero, tensor, reinterpret_cast<void*>(y)));
  }
  CHECK(cuCtxSynchronize());
  for (const float value : download(y, values.size()))
    REQUIRE_THAT(std::fabs(value - 1.0f / kValues) < 1e-5f);
  CHECK(destroy(handle));
}

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const unsigned long long count = argument(argc, argv, 2, 5);
  CHECK(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  if (kind == "cublas") {
    cublas(count);
  } else if (kind == "cudnn") {
    cudnn(count);
  } else {
    std::fprintf(stderr, "program: usage: library_work cublas|cudnn [LAUNCHES]\n");
    return 2;
  }
  std::printf("launches=?\n");
  std::fflush(stdout);
  wait_until_told();
  return 0;
}
