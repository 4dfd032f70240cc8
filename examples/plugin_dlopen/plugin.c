// A plugin that reaches CUDA by itself: dlopen of the driver, dlsym of each call, as frameworks do
// that must also load where there is no driver.
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char kPtx[] =
    ".version 7.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".visible .entry fill(.param .u64 data, .param .u32 value)\n"
    "{\n"
    "  .reg .b32 %r<6>;\n"
    "  .reg .b64 %rd<4>;\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mov.u32 %r2, %ntid.x;\n"
    "  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "  ld.param.u32 %r5, [value];\n"
    "  ld.param.u64 %rd1, [data];\n"
    "  mul.wide.u32 %rd2, %r4, 4;\n"
    "  add.u64 %rd3, %rd1, %rd2;\n"
    "  st.global.u32 [%rd3], %r5;\n"
    "  ret;\n"
    "}\n";

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)  // with the suffix cuda.h gives it: cuMemAlloc is cuMemAlloc_v2

// One row per driver call: looked up by name, kept in a pointer of its own.
#define DRIVER_CALLS(ROW)                                                          \
  ROW(cuInit)                                                                      \
  ROW(cuDeviceGet) ROW(cuDeviceGetName) ROW(cuDevicePrimaryCtxRetain)              \
      ROW(cuDevicePrimaryCtxRelease) ROW(cuCtxSetCurrent) ROW(cuModuleLoadData)    \
          ROW(cuModuleGetFunction) ROW(cuMemAlloc) ROW(cuMemFree) ROW(cuMemsetD32) \
              ROW(cuMemcpyDtoH) ROW(cuLaunchKernel) ROW(cuCtxSynchronize)
#define ROW_(name) static __typeof__(&name) p_##name;
#define ROW(name) ROW_(name)
DRIVER_CALLS(ROW)
#undef ROW
#define CALL_(name) p_##name
#define CALL(name) CALL_(name)

static int load_driver(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL) return 0;
#define ROW(name) \
  if ((*(void**)&CALL(name) = dlsym(driver, TEXT(name))) == NULL) return 0;
  DRIVER_CALLS(ROW)
#undef ROW
  return 1;
}

#define CHECK(call)                                                       \
  do {                                                                    \
    const CUresult result_ = (call);                                      \
    if (result_ != CUDA_SUCCESS) {                                        \
      fprintf(stderr, "gpu_plugin: %s: error %d\n", #call, (int)result_); \
      return 1;                                                           \
    }                                                                     \
  } while (0)

int gpu_plugin_work(int rounds) {
  enum { kCount = 1 << 18 };
  static unsigned host[kCount];
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction fill;
  CUdeviceptr data;
  char name[256];
  unsigned value = 7;

  if (!load_driver()) {
    printf("no CUDA driver here: nothing to do\n");
    return 0;
  }
  CHECK(CALL(cuInit)(0));
  CHECK(CALL(cuDeviceGet)(&device, 0));
  CHECK(CALL(cuDeviceGetName)(name, sizeof name, device));
  CHECK(CALL(cuDevicePrimaryCtxRetain)(&context, device));
  CHECK(CALL(cuCtxSetCurrent)(context));
  CHECK(CALL(cuModuleLoadData)(&module, kPtx));
  CHECK(CALL(cuModuleGetFunction)(&fill, module, "fill"));
  CHECK(CALL(cuMemAlloc)(&data, sizeof host));
  CHECK(CALL(cuMemsetD32)(data, 3, kCount));

  // A simulated kernel costs time and may compute nothing: there the memset is what is checked.
  const int simulated = strstr(name, "simulated") != NULL;
  const unsigned expected = simulated ? 3 : value;
  void* arguments[] = {&data, &value};
  if (simulated) {
    CHECK(CALL(cuMemcpyDtoH)(host, data, sizeof host));
  }
  for (int round = 0; round < rounds; ++round) {
    CHECK(CALL(cuLaunchKernel)(fill, kCount / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
  }
  CHECK(CALL(cuCtxSynchronize)());
  if (!simulated) CHECK(CALL(cuMemcpyDtoH)(host, data, sizeof host));
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += host[i] != expected;
  printf("%s: %d launches from a plugin; %s%s\n", name, rounds,
         wrong       ? "WRONG"
         : simulated ? "the memset is right"
                     : "every value is right",
         simulated ? ", the kernel's values were not checked (simulated)" : "");
  CHECK(CALL(cuMemFree)(data));
  CHECK(CALL(cuDevicePrimaryCtxRelease)(device));
  return wrong != 0;
}
