#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "coordinator/channel/model_clock.h"
#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

TEST_CASE("memory is counted, found by any address in it, and refused when there is no more") {
  Program program;
  size_t before = 0, after = 0, total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  CUdeviceptr memory = 0, begin = 0, more = 0;
  OK(cuMemAlloc_v2(&memory, 10 << 20));
  CHECK(memory % 256 == 0);
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(before - after == 10 << 20);
  size_t size = 0;
  OK(cuMemGetAddressRange_v2(&begin, &size, memory + 12345));
  CHECK(begin == memory);
  CHECK(size == 10 << 20);
  CHECK(cuMemAlloc_v2(&more, total) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc_v2(&more, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree_v2(memory + 8) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(memory));
  CHECK(cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(0));
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(before == after);
  CHECK(cuMemGetAddressRange_v2(&begin, &size, memory) == CUDA_ERROR_NOT_FOUND);
  // Forty of fifty GiB can be had without anybody touching them.
  OK(cuMemAlloc_v2(&memory, size_t{40} << 30));
  OK(cuMemFree_v2(memory));
  CUdeviceptr_v1 low = 0;
  OK(cuMemAlloc(&low, 4096));
  OK(cuMemsetD8(low, 3, 4096));
  unsigned char byte = 0;
  OK(cuMemcpyDtoH(&byte, low + 4095, 1));
  CHECK(byte == 3);
  OK(cuMemFree(low));
}

TEST_CASE("memory that nobody has written is not zeros, and never what somebody else left there") {
  Program program;
  const size_t bytes = GENERATE(size_t{300}, size_t{200'000}, size_t{5'000'000});
  std::vector<unsigned char> host(bytes);
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr memory;
    OK(cuMemAlloc_v2(&memory, bytes));
    OK(cuMemcpyDtoH_v2(host.data(), memory, bytes));
    CHECK(std::ranges::count(host, kFreshByte) == static_cast<ptrdiff_t>(bytes));
    // A part of a block that is written leaves the rest of it as it is.
    OK(cuMemsetD8_v2(memory + 100, 7, 100));
    OK(cuMemcpyDtoH_v2(host.data(), memory, bytes));
    CHECK(std::ranges::count(host, kFreshByte) == static_cast<ptrdiff_t>(bytes - 100));
    CHECK(std::ranges::count(host, 7) == 100);
    OK(cuMemFree_v2(memory));
  }
}

TEST_CASE("pinning takes its time, and more where the memory is not there yet") {
  Program program;
  constexpr size_t kBytes = 32 << 20;
  const auto ns_of = [](auto&& call) {
    const uint64_t before = lull::channel::monotonic_ns();
    call();
    return lull::channel::monotonic_ns() - before;
  };
  void* pinned = nullptr;
  // 1.72 and 23.4 GB/s: 19.5 and 1.4 ms.
  CHECK(ns_of([&] { OK(cuMemHostAlloc(&pinned, kBytes, 0)); }) > 20'000'000);
  OK(cuMemFreeHost(pinned));
  std::vector<char> there(kBytes, 1);
  CHECK(ns_of([&] { OK(cuMemHostRegister_v2(there.data(), kBytes, 0)); }) > 1'400'000);
  OK(cuMemHostUnregister(there.data()));
}

TEST_CASE("a destroyed context gives its memory back") {
  Program program;
  size_t before = 0, after = 0, total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  CUcontext other;
  OK(cuCtxCreate_v2(&other, 0, 0));
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 64 << 20));
  OK(cuCtxDestroy_v2(other));
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(before == after);
  CHECK(cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("linear copies of every kind move the bytes, pinned and pageable") {
  Program program;
  const size_t bytes = GENERATE(size_t{1000}, size_t{300'000});
  const bool pinned = GENERATE(false, true);
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<unsigned char> pageable(2 * bytes);
  unsigned char* host = pageable.data();
  if (pinned) OK(cuMemHostAlloc(reinterpret_cast<void**>(&host), 2 * bytes, 0));
  std::iota(host, host + bytes, static_cast<unsigned char>(1));
  std::vector<unsigned char> want(host, host + bytes);
  CUdeviceptr a, b;
  OK(cuMemAlloc_v2(&a, bytes));
  OK(cuMemAlloc_v2(&b, bytes));
  const auto check = [&] {
    CHECK(std::memcmp(host + bytes, want.data(), bytes) == 0);
    std::memset(host + bytes, 0, bytes);
    OK(cuMemsetD8_v2(a, 0, bytes));
    OK(cuMemsetD8_v2(b, 0, bytes));
    OK(cuCtxSynchronize());
  };
  OK(cuMemcpyHtoD_v2(a, host, bytes));
  OK(cuMemcpyDtoD_v2(b, a, bytes));
  OK(cuMemcpyDtoH_v2(host + bytes, b, bytes));
  check();
  OK(cuMemcpyHtoDAsync_v2(a, host, bytes, stream));
  OK(cuMemcpyDtoDAsync_v2(b, a, bytes, stream));
  OK(cuMemcpyDtoHAsync_v2(host + bytes, b, bytes, stream));
  OK(cuStreamSynchronize(stream));
  check();
  OK(cuMemcpyAsync(a, reinterpret_cast<CUdeviceptr>(host), bytes, stream));
  OK(cuMemcpyPeerAsync(b, program.context, a, program.context, bytes, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpy(reinterpret_cast<CUdeviceptr>(host + bytes), b, bytes));
  check();
  CHECK(cuMemcpyHtoD_v2(a, host, bytes * 2 + (4 << 20)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyDtoH_v2(host, reinterpret_cast<CUdeviceptr>(&program), 1) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE(
    "an asynchronous copy from pinned memory reads it when its turn comes, from pageable at once") {
  Program program;
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned* pinned = nullptr;
  OK(cuMemAllocHost_v2(reinterpret_cast<void**>(&pinned), 4));
  unsigned pageable = 1;
  *pinned = 1;
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 8));
  OK(program.hold(stream));
  OK(cuMemcpyHtoDAsync_v2(memory, pinned, 4, stream));
  OK(cuMemcpyHtoDAsync_v2(memory + 4, &pageable, 4, stream));
  *pinned = 2;
  pageable = 2;
  program.open_gate();
  OK(cuStreamSynchronize(stream));
  unsigned got[2];
  OK(cuMemcpyDtoH_v2(got, memory, 8));
  CHECK(got[0] == 2);
  CHECK(got[1] == 1);
}

TEST_CASE("copies of planes and volumes move rows, and memsets of every width fill them") {
  Program program;
  CUdeviceptr plane;
  size_t pitch = 0;
  OK(cuMemAllocPitch_v2(&plane, &pitch, 20, 6, 4));
  CHECK(pitch == 512);
  std::vector<unsigned char> host(20 * 6), back(20 * 6);
  std::iota(host.begin(), host.end(), static_cast<unsigned char>(0));
  CUDA_MEMCPY2D up = {};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host.data();
  up.srcPitch = 20;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = plane;
  up.dstPitch = pitch;
  up.WidthInBytes = 20;
  up.Height = 6;
  OK(cuMemcpy2D_v2(&up));
  unsigned char one = 0;
  OK(cuMemcpyDtoH_v2(&one, plane + 5 * pitch + 19, 1));
  CHECK(one == 119);
  CUDA_MEMCPY3D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = plane;
  down.srcPitch = pitch;
  down.srcHeight = 3;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = back.data();
  down.dstPitch = 20;
  down.dstHeight = 3;
  down.WidthInBytes = 20;
  down.Height = 3;
  down.Depth = 2;
  OK(cuMemcpy3D_v2(&down));
  CHECK(back == host);
  up.srcPitch = 10;
  CHECK(cuMemcpy2D_v2(&up) == CUDA_ERROR_INVALID_VALUE);
  up.srcMemoryType = CU_MEMORYTYPE_ARRAY;  // and no array
  CHECK(cuMemcpy2D_v2(&up) == CUDA_ERROR_INVALID_VALUE);

  OK(cuMemsetD2D16_v2(plane, pitch, 0xabcd, 10, 6));
  OK(cuMemsetD2D8_v2(plane, pitch, 0x11, 2, 2));
  OK(cuMemsetD32_v2(plane + 4, 0x01020304, 1));
  OK(cuMemcpy3D_v2(&down));
  CHECK(back[0] == 0x11);
  CHECK(back[4] == 0x04);
  CHECK(back[8] == 0xcd);
  CHECK(back[119] == 0xab);
  CHECK(cuMemsetD32_v2(plane + 1, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD8_v2(plane, 0, 1 << 30) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemsetD8_v2(plane, 0, 0));
}

TEST_CASE("host memory is pinned, registered and recognised") {
  Program program;
  std::vector<char> own(8192);
  OK(cuMemHostRegister_v2(own.data(), own.size(), CU_MEMHOSTREGISTER_DEVICEMAP));
  CHECK(cuMemHostRegister_v2(own.data() + 10, 10, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr address = 0;
  OK(cuMemHostGetDevicePointer_v2(&address, own.data() + 16, 0));
  CHECK(address == reinterpret_cast<CUdeviceptr>(own.data() + 16));
  unsigned type = 0, managed = 1;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  CHECK(type == CU_MEMORYTYPE_HOST);
  OK(cuMemHostUnregister(own.data()));
  CHECK(cuMemHostUnregister(own.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
        CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr plain, shared;
  OK(cuMemAlloc_v2(&plain, 100));
  OK(cuMemAllocManaged(&shared, 100, CU_MEM_ATTACH_GLOBAL));
  std::memset(reinterpret_cast<void*>(shared), 9, 100);
  int ordinal = -1;
  CUcontext owner = nullptr;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_CONTEXT};
  void* out[] = {&type, &managed, &ordinal, &owner};
  OK(cuPointerGetAttributes(4, wanted, out, plain + 50));
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(managed == 0);
  CHECK(ordinal == 0);
  CHECK(owner == program.context);
  OK(cuPointerGetAttributes(4, wanted, out, shared));
  CHECK(managed == 1);
  OK(cuPointerGetAttributes(4, wanted, out, reinterpret_cast<CUdeviceptr>(&program)));
  CHECK(type == 0);
  void* host = nullptr;
  CHECK(cuMemFreeHost(own.data()) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_PORTABLE));
  unsigned flags = 0;
  OK(cuMemHostGetFlags(&flags, host));
  CHECK((flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
  OK(cuMemFreeHost(host));
}

TEST_CASE("stream-ordered memory goes when its stream gets there, and pools count it") {
  Program program;
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUmemoryPool pool, current, made;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(pool == current);
  const auto used = [&](CUmemoryPool of) {
    cuuint64_t value = 0;
    OK(cuMemPoolGetAttribute(of, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
    return value;
  };
  CUdeviceptr memory, other;
  OK(cuMemAllocAsync(&memory, 1 << 20, stream));
  OK(cuMemsetD8Async(memory, 1, 1 << 20, stream));
  CHECK(used(pool) == 2 << 20);
  OK(program.hold(stream));
  OK(cuMemFreeAsync(memory, stream));
  CHECK(cuMemFreeAsync(memory, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(used(pool) == 2 << 20);
  program.open_gate();
  OK(cuStreamSynchronize(stream));
  CHECK(used(pool) == 0);
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemPoolCreate(&made, &properties));
  OK(cuMemAllocFromPoolAsync(&other, 4096, made, stream));
  CHECK(used(made) == 4096);
  OK(cuMemFreeAsync(other, stream));
  // Each round frees what the next one needs.
  size_t free_bytes = 0, total = 0;
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  for (int i = 0; i < 5; ++i) {
    OK(cuMemAllocAsync(&memory, total / 5 * 3, stream));
    OK(program.launch(stream, 100'000));
    OK(cuMemFreeAsync(memory, stream));
  }
  OK(cuStreamSynchronize(stream));
  cuuint64_t threshold = 1 << 30, back = 0;
  OK(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  OK(cuMemPoolGetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &back));
  CHECK(back == threshold);
  OK(cuDeviceSetMemPool(0, made));
  OK(cuMemPoolDestroy(made));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(current == pool);
  CHECK(cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("calls that are not modelled say so") {
  Program program;
  CUtexObject texture;
  const CUDA_RESOURCE_DESC resource = {};
  const CUDA_TEXTURE_DESC description = {};
  CHECK(cuTexObjectCreate(&texture, &resource, &description, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
}
