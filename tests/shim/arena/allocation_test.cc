// What programs allocate, as they see it, and where it really is.
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/seed.h"
#include "tests/shim/arena/moved_program.h"

using namespace arena_test;

namespace {

struct Attributes {
  CUcontext context;
  unsigned type;
  CUdeviceptr pointer, start, base;
  size_t size, mapping;
  int ordinal;
  unsigned long long id;
  uint64_t handle_types;
  CUmemoryPool pool;
};

Attributes attributes_of(CUdeviceptr address) {
  Attributes all{};
  const auto ask = [&](void* to, CUpointer_attribute attribute) {
    OK(cuPointerGetAttribute(to, attribute, address));
  };
  ask(&all.context, CU_POINTER_ATTRIBUTE_CONTEXT);
  ask(&all.type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  ask(&all.pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
  ask(&all.start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  ask(&all.size, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  ask(&all.base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
  ask(&all.mapping, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
  ask(&all.ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  ask(&all.id, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  ask(&all.handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
  ask(&all.pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
  return all;
}

}  // namespace

TEST_CASE("small and large allocations keep address and contents while their memory is away") {
  MovedProgram it;
  struct Piece {
    CUdeviceptr address;
    Bytes bytes;
  };
  std::vector<Piece> pieces;
  for (const size_t bytes :
       {size_t{1}, size_t{511}, size_t{4096}, size_t{70'001}, kMiB - 1, kMiB, 5 * kMiB + 3}) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, bytes));
    CHECK(address % 512 == 0);
    pieces.push_back({address, noise(bytes, bytes)});
    write(address, pieces.back().bytes);
  }
  CHECK(arena_probe_swappable(0) == (32 + 2 + 6) * kMiB);
  CHECK(arena_probe_fixed(0) == 0);
  CHECK(std::string(arena_probe_reason()).empty());
  for (int n = 0; n < 3; ++n) {
    OK(cuCtxSynchronize());
    CHECK(arena_probe_out() == static_cast<int64_t>(40 * kMiB));
    CHECK(arena_probe_driver_free() == it.free_at_first);
    CHECK(arena_probe_absent() == 3);
    REQUIRE(arena_probe_back() == 0);
    CHECK(arena_probe_absent() == 0);
    for (const auto& piece : pieces) CHECK(holds(piece.address, piece.bytes));
  }
  for (const auto& piece : pieces) OK(cuMemFree_v2(piece.address));
  it.check_no_leak();
}

TEST_CASE("the arena's memory is to a program as the driver's own") {
  MovedProgram it;
  const uint64_t free_before = free_bytes();
  CUdeviceptr small = 0, large = 0;
  OK(cuMemAlloc_v2(&small, 1000));
  CHECK(free_bytes() == free_before - 1024);  // what a slab has left is free
  OK(cuMemAlloc_v2(&large, 3 * kMiB));
  CHECK(free_bytes() == free_before - 1024 - 4 * kMiB);
  for (const auto& [address, bytes] :
       {std::pair{small, size_t{1000}}, std::pair{large, 3 * kMiB}}) {
    const Attributes before = attributes_of(address + 10);
    CHECK(before.context == it.program.context);
    CHECK(before.type == CU_MEMORYTYPE_DEVICE);
    CHECK(before.pointer == address + 10);
    CHECK(before.start == address);
    CHECK(before.size == bytes);
    CHECK(before.base == address);
    CHECK(before.mapping >= bytes);
    CHECK(before.ordinal == 0);
    CHECK(before.handle_types == 0);
    CHECK(before.pool == nullptr);
    CUdeviceptr begin = 0;
    size_t size = 0;
    OK(cuMemGetAddressRange_v2(&begin, &size, address + bytes - 1));
    CHECK(begin == address);
    CHECK(size == bytes);
    cycle();
    CHECK(attributes_of(address + 10).id == before.id);
    // Not mapped memory, to the program.
    CUmemGenericAllocationHandle handle = 0;
    CHECK(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(cuMemUnmap(address / (2 * kMiB) * (2 * kMiB), 2 * kMiB) == CUDA_ERROR_INVALID_VALUE);
    unsigned long long flags = 0;
    const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CHECK(cuMemGetAccess(&flags, &here, address) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(attributes_of(small).id != attributes_of(large).id);
  // Inside the slab, in no allocation.
  unsigned type = 7;
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, small + kMiB) ==
        CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr begin = 0;
  CHECK(cuMemGetAddressRange_v2(&begin, nullptr, small + kMiB) == CUDA_ERROR_NOT_FOUND);
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_CONTEXT};
  size_t size = 1;
  CUcontext context = nullptr;
  void* answers[] = {&type, &size, &context};
  OK(cuPointerGetAttributes(3, asked, answers, small));
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(size == 1000);
  CHECK(context == it.program.context);
  OK(cuPointerGetAttributes(3, asked, answers, small + kMiB));
  CHECK(type == 0);
  CHECK(context == nullptr);

  CHECK(cuMemFree_v2(small + 512) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(small));
  CHECK(cuMemFree_v2(small) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(large));
  CHECK(cuMemFree_v2(large) != CUDA_SUCCESS);
  CHECK(free_bytes() == free_before);
  CHECK(cuMemAlloc_v2(&small, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc_v2(nullptr, 5) == CUDA_ERROR_INVALID_VALUE);
  it.check_no_leak();
}

TEST_CASE("pitched memory has the driver's pitch") {
  MovedProgram it;
  CUdeviceptr address = 0;
  size_t pitch = 0;
  for (const size_t width : {size_t{1}, size_t{512}, size_t{513}, size_t{100'000}}) {
    OK(cuMemAllocPitch_v2(&address, &pitch, width, 37, 4));
    CHECK(pitch == (width + 511) / 512 * 512);
    size_t size = 0;
    OK(cuMemGetAddressRange_v2(nullptr, &size, address));
    CHECK(size == pitch * 37);
    const Bytes contents = noise(pitch * 37, width);
    write(address, contents);
    cycle();
    CHECK(holds(address, contents));
    OK(cuMemFree_v2(address));
  }
  CHECK(cuMemAllocPitch_v2(&address, &pitch, 10, 10, 3) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAllocPitch_v2(&address, &pitch, 0, 10, 4) == CUDA_ERROR_INVALID_VALUE);
  it.check_no_leak();
}

TEST_CASE("memory that is freed in stream order stays until its stream has got there") {
  MovedProgram it;
  CUstream one = nullptr, other = nullptr;
  OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr address = 0, second = 0, third = 0;
  for (const size_t bytes : {size_t{5000}, 4 * kMiB}) {
    it.program.gate[0] = 0;
    void* kept = nullptr;  // pinned: the copy does not wait
    OK(cuMemAllocHost_v2(&kept, bytes));
    OK(cuMemAllocAsync(&address, bytes, one));
    OK(it.program.hold(one));
    OK(cuMemsetD8Async(address, 0x5a, bytes, one));
    OK(cuMemcpyDtoHAsync_v2(kept, address, bytes, one));
    OK(cuMemFreeAsync(address, one));
    CHECK(cuMemFreeAsync(address, one) == CUDA_ERROR_INVALID_VALUE);
    // Another stream may not have it yet, the same one may.
    OK(cuMemAllocAsync(&second, bytes, other));
    CHECK(second != address);
    OK(cuMemsetD8Async(second, 0x77, bytes, other));
    OK(cuMemAllocAsync(&third, bytes, one));
    CHECK(third == address);
    it.program.open_gate();
    OK(cuStreamSynchronize(one));
    CHECK(memcmp(kept, Bytes(bytes, 0x5a).data(), bytes) == 0);
    OK(cuMemFreeHost(kept));
    OK(cuMemFreeAsync(third, one));
    OK(cuMemFreeAsync(second, other));
    OK(cuCtxSynchronize());
  }
  CHECK(free_bytes() == it.free_at_first);
  it.check_no_leak();
}

TEST_CASE(
    "what was freed in stream order goes back to the device though the program calls no more") {
  MovedProgram it;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr address = 0;
  OK(cuMemAllocAsync(&address, 6 * kMiB, stream));
  OK(it.program.hold(stream));
  OK(cuMemFreeAsync(address, stream));
  CHECK(arena_probe_driver_free() == it.free_at_first - 6 * kMiB);
  it.program.open_gate();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (arena_probe_driver_free() != it.free_at_first) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST_CASE("a pool answers for what came from it, and keeps its greatest size") {
  MovedProgram it;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.maxSize = 10 * kMiB;
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &properties));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto used = [&](CUmemPool_attribute attribute) {
    cuuint64_t bytes = 0;
    OK(cuMemPoolGetAttribute(pool, attribute, &bytes));
    return bytes;
  };
  CUdeviceptr a = 0, b = 0, c = 0;
  OK(cuMemAllocFromPoolAsync(&a, 4 * kMiB, pool, stream));
  OK(cuMemAllocFromPoolAsync(&b, 1000, pool, stream));
  CHECK(used(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 4 * kMiB + 1024);
  CHECK(cuMemAllocFromPoolAsync(&c, 8 * kMiB, pool, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(attributes_of(a).pool == pool);
  CHECK(attributes_of(a).context == nullptr);
  const Bytes contents = noise(4 * kMiB, 3);
  write(a, contents);
  CHECK(cycle() == 36 * kMiB);
  CHECK(holds(a, contents));
  OK(cuMemFreeAsync(a, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(used(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 1024);
  CHECK(used(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 4 * kMiB + 1024);
  cuuint64_t zero = 0;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  CHECK(used(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 1024);
  OK(cuMemPoolDestroy(pool));
  OK(cuMemFree_v2(b));
  it.check_no_leak();
}

TEST_CASE(
    "in a capture allocations are nodes of the graph, and frees during one wait for its end") {
  MovedProgram it;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr before = 0, inside = 0, node = 0;
  OK(cuMemAlloc_v2(&before, 3 * kMiB));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemAlloc_v2(&inside, 100));
  OK(cuMemFree_v2(before));
  OK(cuMemAllocAsync(&node, 4096, stream));
  OK(cuMemFreeAsync(node, stream));
  CUgraph graph = nullptr;
  OK(cuStreamEndCapture(stream, &graph));
  size_t nodes = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 2);
  OK(cuMemFree_v2(inside));
  it.check_no_leak(32 * kMiB + 4096);  // the graph's own stays
  // What forbids the driver's allocation forbids the arena's.
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK(cuMemAlloc_v2(&inside, 100) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("a full device: the driver's error, nothing lost, and a smaller request still served") {
  MovedProgram it;
  CUdeviceptr small = 0, large = 0, rest = 0;
  OK(cuMemAlloc_v2(&small, 10'000));
  const uint64_t left = arena_probe_driver_free();
  CHECK(cuMemAlloc_v2(&large, left + 64 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&large, left / (2 * kMiB) * (2 * kMiB) - 4 * kMiB));
  // No room for a slab of full size.
  std::vector<CUdeviceptr> more;
  for (;;) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc_v2(&address, kMiB / 2);
    if (result != CUDA_SUCCESS) {
      CHECK(result == CUDA_ERROR_OUT_OF_MEMORY);
      break;
    }
    more.push_back(address);
  }
  CHECK(more.size() >= (32 + 4) * 2 - 1);
  CHECK(cuMemAlloc_v2(&rest, 3 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY);
  for (const CUdeviceptr address : more) OK(cuMemFree_v2(address));
  OK(cuMemFree_v2(large));
  OK(cuMemFree_v2(small));
  it.check_no_leak();
  CHECK(free_bytes() == it.free_at_first);
}

TEST_CASE("what does not fit is out of memory, and never becomes memory that stays") {
  MovedProgram it;
  CUdeviceptr large = 0, small = 0;
  // Less than the arena needs for anything, more than the driver needs for some.
  OK(cuMemAlloc_v2(&large, arena_probe_driver_free() / (2 * kMiB) * (2 * kMiB)));
  CUdeviceptr filler = 0;
  const uint64_t left = arena_probe_driver_free();
  INFO(left << " bytes are left");
  REQUIRE(left < 2 * kMiB);
  CHECK(cuMemAlloc_v2(&small, 4096) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAllocAsync(&filler, 4096, nullptr) == CUDA_ERROR_OUT_OF_MEMORY);
  size_t pitch = 77;
  CHECK(cuMemAllocPitch_v2(&small, &pitch, 64, 64, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(pitch == 77);
  CHECK(arena_probe_fixed(0) == 0);
  CHECK(std::string(arena_probe_reason()).empty());
  OK(cuMemFree_v2(large));
  it.check_no_leak();
}

TEST_CASE("freed memory whose stream has yet to get there makes room when there is none") {
  MovedProgram it;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const uint64_t half = free_bytes() / 2 / (2 * kMiB) * (2 * kMiB) + 2 * kMiB;
  CUdeviceptr first = 0, second = 0;
  OK(cuMemAllocAsync(&first, half, stream));
  OK(it.program.launch(stream, 20'000'000));
  OK(cuMemFreeAsync(first, stream));
  OK(cuMemAlloc_v2(&second, half));
  OK(cuMemFree_v2(second));
  it.check_no_leak();
}

TEST_CASE("while memory is away another takes it: coming back fails whole, and works later") {
  MovedProgram it;
  CUdeviceptr address = 0, hog = 0;
  OK(cuMemAlloc_v2(&address, 64 * kMiB));
  const Bytes contents = noise(64 * kMiB, 9);
  write(address, contents);
  OK(cuCtxSynchronize());
  REQUIRE(arena_probe_out() == static_cast<int64_t>(64 * kMiB));
  OK(cuMemAlloc_v2(&hog, arena_probe_driver_free() - 10 * kMiB));
  CHECK(arena_probe_back() == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(arena_probe_absent() == 1);
  OK(cuMemFree_v2(hog));
  REQUIRE(arena_probe_back() == 0);
  CHECK(holds(address, contents));
  OK(cuMemFree_v2(address));
  it.check_no_leak();
}

TEST_CASE("a context takes its allocations along, but not those of pools") {
  MovedProgram it;
  CUcontext context = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr address = 0, pooled = 0;
  for (const size_t bytes : {size_t{100}, size_t{70'000}, 2 * kMiB, 9 * kMiB})
    OK(cuMemAlloc_v2(&address, bytes));
  OK(cuMemAllocAsync(&pooled, 6 * kMiB, stream));
  OK(cuMemAllocAsync(&address, 3 * kMiB, stream));
  OK(cuMemFreeAsync(address, stream));
  OK(cuCtxDestroy_v2(context));
  OK(cuCtxSetCurrent(it.program.context));
  CHECK(cuMemFree_v2(address) != CUDA_SUCCESS);
  CHECK(it.is_back((32 + 6) * kMiB));
  OK(cuMemFree_v2(pooled));
  it.check_no_leak();
}

TEST_CASE("a context ends while another's allocation waits for what was freed in it") {
  MovedProgram it;
  const uint64_t half = free_bytes() / 2 / (2 * kMiB) * (2 * kMiB) + 2 * kMiB;
  CUcontext context = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr address = 0;
  OK(cuMemAllocAsync(&address, half, stream));
  OK(it.program.hold(stream));
  OK(cuMemFreeAsync(address, stream));
  CUresult allocated = CUDA_ERROR_UNKNOWN;
  std::thread other([&] {
    CUdeviceptr second = 0;
    allocated = cuCtxSetCurrent(it.program.context);
    if (allocated == CUDA_SUCCESS) allocated = cuMemAlloc_v2(&second, half);
    if (allocated == CUDA_SUCCESS) allocated = cuMemFree_v2(second);
  });
  // Destroying it waits for its work.
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    it.program.open_gate();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  OK(cuCtxDestroy_v2(context));
  opener.join();
  other.join();
  CHECK(allocated == CUDA_SUCCESS);
  OK(cuCtxSetCurrent(it.program.context));
  it.check_no_leak();
}

TEST_CASE("a reset of the primary context takes everything along") {
  MovedProgram it;
  CUcontext primary = nullptr;
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuCtxSetCurrent(primary));
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc_v2(&address, 8 * kMiB));
  OK(cuMemAlloc_v2(&address, 3));
  OK(cuMemAllocAsync(&address, 6 * kMiB, stream));
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuCtxSetCurrent(it.program.context));
  it.check_no_leak();
}

TEST_CASE("a fork child has no arena") {
  MovedProgram it;
  CUdeviceptr address = 0;
  OK(cuMemAlloc_v2(&address, 5 * kMiB));
  const pid_t child = fork();
  if (child == 0) {
    const bool right = arena_probe_swappable(0) == 0 && arena_probe_fixed(0) == 0 &&
                       arena_probe_counted(0) == 0 &&
                       cuMemFree_v2(address) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  OK(cuMemFree_v2(address));
  it.check_no_leak();
}

TEST_CASE("managed memory and memory of the 32-bit interface stay, and are named") {
  MovedProgram it;
  CUdeviceptr managed = 0, mapped = 0;
  OK(cuMemAlloc_v2(&mapped, 4 * kMiB));
  CHECK(std::string(arena_probe_reason()).empty());
  OK(cuMemAllocManaged(&managed, 3 * kMiB, CU_MEM_ATTACH_GLOBAL));
  CHECK(arena_probe_fixed(0) == 3 * kMiB);
  CHECK(std::string(arena_probe_reason()) == "managed memory");
  CHECK(cycle() % (32 * kMiB) == 4 * kMiB);
  OK(cuMemFree_v2(managed));
  CHECK(arena_probe_fixed(0) == 0);
  CHECK(std::string(arena_probe_reason()).empty());
  OK(cuMemFree_v2(mapped));
  it.check_no_leak();
}

TEST_CASE(
    "arrays stay, count as what their elements take, and are named after what refuses a "
    "checkpoint") {
  MovedProgram it;
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = 100;
  description.Height = 50;
  description.Depth = 3;
  description.Format = CU_AD_FORMAT_FLOAT;
  description.NumChannels = 2;
  CUarray deep = nullptr, flat = nullptr;
  CUmipmappedArray mipmap = nullptr;
  OK(cuArray3DCreate_v2(&deep, &description));
  const uint64_t deep_bytes = (100 * 50 * 3 * 8 + 511) / 512 * 512;
  CHECK(arena_probe_fixed(0) == deep_bytes);
  CHECK(arena_probe_counted(0) == deep_bytes);
  CHECK(std::string(arena_probe_reason()).find("arrays") == 0);
  const CUDA_ARRAY_DESCRIPTOR_v1 old{64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 4};
  OK(cuArrayCreate(&flat, &old));
  CHECK(arena_probe_fixed(0) == deep_bytes + 16384);
  description.Depth = 0;
  OK(cuMipmappedArrayCreate(&mipmap, &description, 3));
  const uint64_t mipmap_bytes = ((100 * 50 + 50 * 25 + 25 * 12) * 8 + 511) / 512 * 512;
  CHECK(arena_probe_fixed(0) == deep_bytes + 16384 + mipmap_bytes);
  CHECK(arena_probe_driver_free() == it.free_at_first - arena_probe_fixed(0));
  // Refused ones count for nothing.
  description.NumChannels = 3;
  CUarray none = nullptr;
  CHECK(cuArray3DCreate_v2(&none, &description) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuArrayDestroy(none) == CUDA_ERROR_INVALID_HANDLE);
  CUdeviceptr managed = 0;
  OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  OK(cuArrayDestroy(flat));
  OK(cuArrayCreate(&flat, &old));
  CHECK(std::string(arena_probe_reason()) == "managed memory");
  OK(cuMemFree_v2(managed));
  CHECK(std::string(arena_probe_reason()).find("arrays") == 0);
  // In a context that goes.
  CUcontext context = nullptr;
  CUarray gone = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuArrayCreate(&gone, &old));
  OK(cuCtxDestroy_v2(context));
  OK(cuCtxSetCurrent(it.program.context));
  CHECK(arena_probe_fixed(0) == deep_bytes + 16384 + mipmap_bytes);
  OK(cuArrayDestroy(deep));
  OK(cuArrayDestroy(flat));
  OK(cuMipmappedArrayDestroy(mipmap));
  CHECK(arena_probe_fixed(0) == 0);
  CHECK(std::string(arena_probe_reason()).empty());
  it.check_no_leak();
}

TEST_CASE("arrays count against a task's limit as any memory") {
  setenv("LULL_MEMORY", "1048576", 1);  // read before the first allocation
  MovedProgram it;
  const CUDA_ARRAY_DESCRIPTOR_v1 half{1024, 512, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  const CUDA_ARRAY_DESCRIPTOR_v1 more{1024, 600, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray first = nullptr, second = nullptr;
  CUdeviceptr memory = 0;
  OK(cuArrayCreate(&first, &half));
  CHECK(cuArrayCreate(&second, &more) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc_v2(&memory, 600 << 10) == CUDA_ERROR_OUT_OF_MEMORY);
  // What is wrong in itself is the driver's to say.
  const CUDA_ARRAY_DESCRIPTOR_v1 absurd{0xffffffff, 0xffffffff, CU_AD_FORMAT_FLOAT, 4};
  CHECK(cuArrayCreate(&second, &absurd) == CUDA_ERROR_INVALID_VALUE);
  OK(cuArrayDestroy(first));
  OK(cuArrayCreate(&second, &more));
  OK(cuArrayDestroy(second));
  unsetenv("LULL_MEMORY");
  it.check_no_leak();
}

TEST_CASE("random allocations, frees and moves of several threads leave every byte as it was") {
  MovedProgram it;
  const uint64_t seed = lull::tests::test_seed();
  INFO("seed " << seed);
  struct Piece {
    CUdeviceptr address;
    Bytes bytes;
  };
  constexpr int kThreads = 3;
  std::vector<Piece> pieces[kThreads];
  CUstream streams[kThreads];
  for (auto& stream : streams) OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  bool right[kThreads] = {true, true, true};
  for (int round = 0; round < 10; ++round) {
    std::vector<std::thread> threads;
    for (int n = 0; n < kThreads; ++n) {
      threads.emplace_back([&, n] {
        cuCtxSetCurrent(it.program.context);
        std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(round * kThreads + n));
        for (int step = 0; step < 25; ++step) {
          const bool stream_ordered = random() % 2 == 0;
          if (random() % 5 < 3 || pieces[n].empty()) {
            const size_t bytes =
                random() % 12 == 0 ? random() % (4 * kMiB) + 1 : random() % 40'000 + 1;
            CUdeviceptr address = 0;
            right[n] &= (stream_ordered ? cuMemAllocAsync(&address, bytes, streams[n])
                                        : cuMemAlloc_v2(&address, bytes)) == CUDA_SUCCESS;
            pieces[n].push_back({address, noise(bytes, random())});
            right[n] &= cuMemcpyHtoDAsync_v2(address, pieces[n].back().bytes.data(), bytes,
                                             streams[n]) == CUDA_SUCCESS;
            right[n] &= cuStreamSynchronize(streams[n]) == CUDA_SUCCESS;
          } else {
            const size_t at = random() % pieces[n].size();
            Piece& piece = pieces[n][at];
            Bytes read(piece.bytes.size());
            right[n] &= cuMemcpyDtoH_v2(read.data(), piece.address, read.size()) == CUDA_SUCCESS &&
                        read == piece.bytes;
            right[n] &= (stream_ordered ? cuMemFreeAsync(piece.address, streams[n])
                                        : cuMemFree_v2(piece.address)) == CUDA_SUCCESS;
            std::swap(piece, pieces[n].back());
            pieces[n].pop_back();
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    cycle();
    CHECK(arena_probe_fixed(0) == 0);
  }
  for (int n = 0; n < kThreads; ++n) {
    CHECK(right[n]);
    for (const Piece& piece : pieces[n]) {
      CHECK(holds(piece.address, piece.bytes));
      OK(cuMemFree_v2(piece.address));
    }
  }
  it.check_no_leak();
  CHECK(free_bytes() == it.free_at_first);
}
