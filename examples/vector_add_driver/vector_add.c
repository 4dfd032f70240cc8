// Adds two vectors with the CUDA driver API alone: plain C, the kernel is PTX text.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kPtx[] =
    ".version 7.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count)\n"
    "{\n"
    "  .reg .pred %p<2>;\n"
    "  .reg .b32 %r<6>;\n"
    "  .reg .b64 %rd<8>;\n"
    "  .reg .f32 %f<4>;\n"
    "  mov.u32 %r1, %ctaid.x;\n"
    "  mov.u32 %r2, %ntid.x;\n"
    "  mov.u32 %r3, %tid.x;\n"
    "  mad.lo.u32 %r4, %r1, %r2, %r3;\n"
    "  ld.param.u32 %r5, [count];\n"
    "  setp.ge.u32 %p1, %r4, %r5;\n"
    "  @%p1 bra done;\n"
    "  mul.wide.u32 %rd1, %r4, 4;\n"
    "  ld.param.u64 %rd2, [a];\n"
    "  ld.param.u64 %rd3, [b];\n"
    "  ld.param.u64 %rd4, [sum];\n"
    "  add.u64 %rd5, %rd2, %rd1;\n"
    "  add.u64 %rd6, %rd3, %rd1;\n"
    "  add.u64 %rd7, %rd4, %rd1;\n"
    "  ld.global.f32 %f1, [%rd5];\n"
    "  ld.global.f32 %f2, [%rd6];\n"
    "  add.f32 %f3, %f1, %f2;\n"
    "  st.global.f32 [%rd7], %f3;\n"
    "done:\n"
    "  ret;\n"
    "}\n";

static void check(CUresult result, const char* what) {
  const char* text = NULL;
  if (result == CUDA_SUCCESS) return;
  cuGetErrorString(result, &text);
  fprintf(stderr, "vector_add: %s: %s (%d)\n", what, text ? text : "?", (int)result);
  exit(1);
}
#define CHECK(call) check(call, #call)

int main(int argc, char** argv) {
  enum { kCount = 1 << 20 };
  const int rounds = argc > 1 ? atoi(argv[1]) : 100;
  const size_t bytes = kCount * sizeof(float);
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction vector_add;
  CUdeviceptr a, b, sum;
  char name[256];

  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetName(name, sizeof name, device));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoadData(&module, kPtx));
  CHECK(cuModuleGetFunction(&vector_add, module, "vector_add"));
  CHECK(cuMemAlloc(&a, bytes));
  CHECK(cuMemAlloc(&b, bytes));
  CHECK(cuMemAlloc(&sum, bytes));

  float* host_a = malloc(bytes);
  float* host_b = malloc(bytes);
  float* host_sum = malloc(bytes);
  if (!host_a || !host_b || !host_sum) return 1;
  for (int i = 0; i < kCount; ++i) {
    host_a[i] = (float)i;
    host_b[i] = 2.0f * (float)i;
  }
  CHECK(cuMemcpyHtoD(a, host_a, bytes));
  CHECK(cuMemcpyHtoD(b, host_b, bytes));
  CHECK(cuMemsetD8(sum, 0, bytes));

  unsigned count = kCount;
  void* arguments[] = {&a, &b, &sum, &count};
  for (int round = 0; round < rounds; ++round) {
    CHECK(cuLaunchKernel(vector_add, (kCount + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, arguments,
                         NULL));
  }
  CHECK(cuCtxSynchronize());
  CHECK(cuMemcpyDtoH(host_sum, sum, bytes));

  int wrong = 0;
  if (strstr(name, "simulated")) {
    // A kernel costs time there and may compute nothing: what can be checked are the copies.
    memset(host_sum, 0, bytes);
    CHECK(cuMemcpyDtoH(host_sum, b, bytes));
    for (int i = 0; i < kCount; ++i) wrong += host_sum[i] != host_b[i];
    printf("%s: %d launches; the copies are right, the sums were not checked (simulated)\n", name,
           rounds);
  } else {
    for (int i = 0; i < kCount; ++i) wrong += host_sum[i] != host_a[i] + host_b[i];
    printf("%s: %d launches; %d of %d sums are right\n", name, rounds, kCount - wrong, kCount);
  }
  CHECK(cuMemFree(a));
  CHECK(cuMemFree(b));
  CHECK(cuMemFree(sum));
  CHECK(cuDevicePrimaryCtxRelease(device));
  free(host_a);
  free(host_b);
  free(host_sum);
  return wrong != 0;
}
