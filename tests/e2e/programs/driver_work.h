// The work every driver-API program does, whatever way it reaches the driver. The including file
// says how by defining DRIVER(name) before: `name` itself, or an entry of a table.
#pragma once

#include <cuda.h>

#include <vector>

#include "program.h"
#include "spin_ptx.h"

struct DriverWork {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr, second_spin = nullptr;

  void start() {
    CHECK(DRIVER(cuInit)(0));
    CUdevice device = 0;
    CHECK(DRIVER(cuDeviceGet)(&device, 0));
    CHECK(DRIVER(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(DRIVER(cuCtxSetCurrent)(context));
    CHECK(DRIVER(cuModuleLoadData)(&module, kSpinPtx));
    CHECK(DRIVER(cuModuleGetFunction)(&spin, module, "spin"));
    CHECK(DRIVER(cuModuleGetFunction)(&second_spin, module, "second_spin"));
  }

  void launch(unsigned long long index, unsigned long long spin_ns, CUstream stream = nullptr) {
    void* arguments[] = {&spin_ns};
    CHECK(DRIVER(cuLaunchKernel)(index % 2 == 0 ? spin : second_spin, 1, 1, 1, 32, 1, 1, 0, stream,
                                 arguments, nullptr));
  }

  // `count` launches between a copy there, a memset and a copy back whose bytes are checked.
  Counts run(unsigned long long count, unsigned long long spin_ns) {
    constexpr size_t kBytes = 1 << 16;
    std::vector<unsigned char> out(kBytes, 7), back(kBytes, 0);
    CUdeviceptr memory = 0;
    CHECK(DRIVER(cuMemAlloc)(&memory, kBytes));
    CHECK(DRIVER(cuMemcpyHtoD)(memory, out.data(), kBytes));
    CHECK(DRIVER(cuMemsetD8)(memory, 9, kBytes / 2));
    for (unsigned long long i = 0; i < count; ++i) launch(i, spin_ns);
    CHECK(DRIVER(cuStreamSynchronize)(nullptr));
    CHECK(DRIVER(cuMemcpyDtoH)(back.data(), memory, kBytes));
    for (size_t i = 0; i < kBytes; ++i) REQUIRE_THAT(back[i] == (i < kBytes / 2 ? 9 : 7));
    CHECK(DRIVER(cuMemFree)(memory));
    Counts counts;
    counts.launches = count;
    counts.copies = 2;
    counts.memsets = 1;
    return counts;
  }
};
