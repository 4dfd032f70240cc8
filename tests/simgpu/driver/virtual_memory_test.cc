#include "tests/simgpu/driver/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

using namespace sim_test;

namespace {
constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
constexpr CUresult kIllegal = CUDA_ERROR_ILLEGAL_ADDRESS;

template <class T>
T attribute(CUpointer_attribute which, CUdeviceptr address) {
  T value{};
  OK(cuPointerGetAttribute(&value, which, address));
  return value;
}

struct Mapped {
  explicit Mapped(size_t bytes, int device = 0, bool exportable = false) : size(bytes) {
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    handle = make_memory(bytes, device, exportable);
    OK(cuMemMap(address, bytes, 0, handle, 0));
    OK(allow(address, bytes));
  }
  void end() {
    OK(cuMemUnmap(address, size));
    OK(cuMemRelease(handle));
    OK(cuMemAddressFree(address, size));
  }
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  size_t size;
};
}  // namespace

TEST_CASE("memory that is created, mapped and allowed holds bytes until it is released") {
  Program program;
  const size_t before = free_bytes();
  Mapped memory(4 * kUnit);
  CHECK(memory.address % kUnit == 0);
  CHECK(before - free_bytes() == 4 * kUnit);
  CHECK(byte_at(memory.address + 3 * kUnit) == kFreshByte);
  std::vector<unsigned char> host(4 * kUnit, 0x5a);
  OK(cuMemcpyHtoD_v2(memory.address, host.data(), host.size()));
  OK(cuMemsetD8_v2(memory.address + kUnit, 1, 100));
  CHECK(byte_at(memory.address) == 0x5a);
  CHECK(byte_at(memory.address + kUnit + 99) == 1);
  CHECK(byte_at(memory.address + kUnit + 100) == 0x5a);
  memory.end();
  CHECK(free_bytes() == before);
}

TEST_CASE("the same memory at two addresses is the same bytes, and keeps them while it moves") {
  Program program;
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, 4 * kUnit, 0, 0, 0));
  const auto handle = make_memory(kUnit);
  OK(cuMemMap(place, kUnit, 0, handle, 0));
  OK(cuMemMap(place + 2 * kUnit, kUnit, 0, handle, 0));
  OK(allow(place, kUnit));
  OK(allow(place + 2 * kUnit, kUnit));
  OK(cuMemsetD8_v2(place, 3, kUnit));
  CHECK(byte_at(place + 2 * kUnit + 77) == 3);
  OK(cuMemUnmap(place, kUnit));
  OK(cuMemUnmap(place + 2 * kUnit, kUnit));
  OK(cuMemMap(place + kUnit, kUnit, 0, handle, 0));
  OK(allow(place + kUnit, kUnit));
  CHECK(byte_at(place + kUnit + 77) == 3);
  // Released while it is mapped: it stays until it is unmapped.
  const size_t held = free_bytes();
  OK(cuMemRelease(handle));
  CHECK(cuMemRelease(handle) == kWrong);
  CHECK(free_bytes() == held);
  CHECK(byte_at(place + kUnit) == 3);
  // And can be had back through its address.
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(place + kUnit + 5)));
  CHECK(again == handle);
  OK(cuMemRelease(again));
  OK(cuMemUnmap(place + kUnit, kUnit));
  CHECK(free_bytes() == held + kUnit);
  // Other memory at the same address does not have its bytes.
  const auto other = make_memory(kUnit);
  OK(cuMemMap(place + kUnit, kUnit, 0, other, 0));
  OK(allow(place + kUnit, kUnit));
  CHECK(byte_at(place + kUnit + 77) == kFreshByte);
  OK(cuMemUnmap(place + kUnit, kUnit));
  OK(cuMemRelease(other));
  OK(cuMemAddressFree(place, 4 * kUnit));
}

TEST_CASE("copies and memsets go on through neighbouring mappings, and not beyond") {
  Program program;
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, 3 * kUnit, 0, 0, 0));
  CUmemGenericAllocationHandle handles[] = {make_memory(kUnit), make_memory(kUnit)};
  OK(cuMemMap(place, kUnit, 0, handles[0], 0));
  OK(cuMemMap(place + kUnit, kUnit, 0, handles[1], 0));
  OK(allow(place, 2 * kUnit));
  OK(cuMemsetD32_v2(place + kUnit - 400, 0x01010101, 200));
  CHECK(byte_at(place + kUnit - 1) == 1);
  CHECK(byte_at(place + kUnit + 399) == 1);
  std::vector<char> host(3 * kUnit);
  OK(cuMemcpyDtoH_v2(host.data(), place, 2 * kUnit));
  CHECK(host[kUnit] == 1);
  CHECK(cuMemcpyDtoH_v2(host.data(), place, 2 * kUnit + 1) == kWrong);
  CHECK(cuMemsetD8_v2(place + kUnit, 0, kUnit + 1) == kWrong);
  CHECK(cuMemcpyDtoH_v2(host.data(), place + 2 * kUnit, 1) == kWrong);
  // Several whole mappings are unmapped at once, parts of one never.
  CHECK(cuMemUnmap(place, kUnit / 2) == kWrong);
  CHECK(cuMemUnmap(place, 3 * kUnit) == kWrong);
  CHECK(cuMemAddressFree(place, 3 * kUnit) == kWrong);
  OK(cuMemUnmap(place, 2 * kUnit));
  CHECK(cuMemUnmap(place, 2 * kUnit) == kWrong);
  for (const auto handle : handles) OK(cuMemRelease(handle));
  CHECK(cuMemAddressFree(place, kUnit) == kWrong);
  CHECK(cuMemAddressFree(place + kUnit, 2 * kUnit) == kWrong);
  OK(cuMemAddressFree(place, 3 * kUnit));
  CHECK(cuMemAddressFree(place, 3 * kUnit) == kWrong);
}

TEST_CASE("what the driver refuses about virtual memory is refused with its errors") {
  Program program;
  const size_t before = free_bytes();
  CUdeviceptr place = 0;
  CHECK(cuMemAddressReserve(nullptr, kUnit, 0, 0, 0) == kWrong);
  CHECK(cuMemAddressReserve(&place, 0, 0, 0, 0) == kWrong);
  CHECK(cuMemAddressReserve(&place, 1000, 0, 0, 0) == kWrong);
  CHECK(cuMemAddressReserve(&place, kUnit, 3 << 20, 0, 0) == kWrong);
  CHECK(cuMemAddressReserve(&place, kUnit, 0, 0, 1) == kWrong);
  OK(cuMemAddressReserve(&place, 4 * kUnit, 64 << 20, 0, 0));
  CHECK(place % (64 << 20) == 0);

  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = on_device(0);
  size_t unit = 0;
  OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK(unit == kUnit);
  OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  CHECK(unit == kUnit);
  CHECK(cuMemCreate(&handle, 0, &properties, 0) == kWrong);
  CHECK(cuMemCreate(&handle, kUnit + 4096, &properties, 0) == kWrong);
  CHECK(cuMemCreate(&handle, kUnit, nullptr, 0) == kWrong);
  CHECK(cuMemCreate(nullptr, kUnit, &properties, 0) == kWrong);
  CHECK(cuMemCreate(&handle, kUnit, &properties, 1) == kWrong);
  CHECK(cuMemCreate(&handle, size_t{1} << 40, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  properties.location.id = 7;
  CHECK(cuMemCreate(&handle, kUnit, &properties, 0) == CUDA_ERROR_INVALID_DEVICE);
  properties = on_device(0);
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CHECK(cuMemCreate(&handle, kUnit, &properties, 0) == CUDA_ERROR_NOT_SUPPORTED);
  properties = on_device(0);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  CHECK(cuMemCreate(&handle, kUnit, &properties, 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(free_bytes() == before);

  handle = make_memory(2 * kUnit);
  CHECK(cuMemMap(place + 4096, kUnit, 0, handle, 0) == kWrong);
  CHECK(cuMemMap(place, kUnit / 2, 0, handle, 0) == kWrong);
  CHECK(cuMemMap(place, 4 * kUnit, 0, handle, 0) == kWrong);              // larger than the memory
  CHECK(cuMemMap(place, kUnit, kUnit, handle, 0) == kWrong);              // an offset
  CHECK(cuMemMap(place, kUnit, 0, handle + 1, 0) == kWrong);              // no such handle
  CHECK(cuMemMap(place + 3 * kUnit, 2 * kUnit, 0, handle, 0) == kWrong);  // beyond the reservation
  CUdeviceptr plain = 0;
  OK(cuMemAlloc_v2(&plain, 4 * kUnit));
  CHECK(cuMemMap(plain, kUnit, 0, handle, 0) == kWrong);  // not reserved
  OK(cuMemFree_v2(plain));
  OK(cuMemMap(place, 2 * kUnit, 0, handle, 0));
  CHECK(cuMemMap(place, kUnit, 0, handle, 0) == kWrong);  // mapped already
  CHECK(cuMemMap(place + kUnit, 2 * kUnit, 0, handle, 0) == kWrong);
  CHECK(allow(place, 4 * kUnit) == kWrong);  // not mapped to its end
  CHECK(allow(place, kUnit) == kWrong);      // a part of a mapping
  CHECK(allow(place, 2 * kUnit, 9) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuMemSetAccess(place, 2 * kUnit, nullptr, 1) == kWrong);
  unsigned long long flags = 9;
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemGetAccess(&flags, &here, place));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  OK(allow(place, 2 * kUnit, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
  OK(cuMemGetAccess(&flags, &here, place + kUnit));
  CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
  CHECK(cuMemGetAccess(&flags, &here, place + 3 * kUnit) == kWrong);
  CHECK(cuMemFree_v2(place) == kWrong);
  CHECK(cuMemFreeAsync(place, nullptr) == kWrong);
  CUmemAllocationProp told = {};
  OK(cuMemGetAllocationPropertiesFromHandle(&told, handle));
  CHECK(told.location.id == 0);
  CUmemGenericAllocationHandle none = 0;
  CHECK(cuMemRetainAllocationHandle(&none, reinterpret_cast<void*>(place + 3 * kUnit)) == kWrong);
  int descriptor = -1;
  CHECK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                     0) == kWrong);  // nobody asked for one
  OK(cuMemUnmap(place, 2 * kUnit));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(place, 4 * kUnit));
  CHECK(free_bytes() == before);
}

TEST_CASE("a pointer into reserved addresses says what is reserved and what is mapped") {
  Program program;
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, 4 * kUnit, 0, 0, 0));
  const auto handle = make_memory(kUnit, 0, /*exportable=*/true);
  OK(cuMemMap(place + kUnit, kUnit, 0, handle, 0));
  const CUdeviceptr inside = place + kUnit + 100;
  CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, place) == 0);
  CHECK(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, place + 3 * kUnit) == place);
  CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, inside) == 1);
  CHECK(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == place);
  CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == 4 * kUnit);
  CHECK(attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside) == place + kUnit);
  CHECK(attribute<size_t>(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside) == kUnit);
  CHECK(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == 0);
  CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE);
  CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside) == 0);
  CHECK(attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, inside) == nullptr);
  CHECK(attribute<uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside) ==
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) == 0);
  OK(allow(place + kUnit, kUnit));
  CHECK(attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside) ==
        CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  CUdeviceptr begin = 0;
  size_t size = 0;
  OK(cuMemGetAddressRange_v2(&begin, &size, inside));
  CHECK(begin == place + kUnit);
  CHECK(size == kUnit);
  CHECK(cuMemGetAddressRange_v2(&begin, &size, place) == CUDA_ERROR_NOT_FOUND);
  // Other memory at the same address is another block.
  const auto block = attribute<uint64_t>(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, inside);
  const auto other = make_memory(kUnit);
  OK(cuMemUnmap(place + kUnit, kUnit));
  OK(cuMemMap(place + kUnit, kUnit, 0, other, 0));
  CHECK(attribute<uint64_t>(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, inside) != block);
  OK(cuMemUnmap(place + kUnit, kUnit));
  OK(cuMemRelease(handle));
  OK(cuMemRelease(other));
  OK(cuMemAddressFree(place, 4 * kUnit));
}

TEST_CASE("memory outlives the contexts, and no context is needed to make it") {
  Program program;
  const size_t before = free_bytes();
  CUcontext other;
  OK(cuCtxCreate_v2(&other, 0, 0));
  Mapped memory(kUnit);
  OK(cuMemsetD8_v2(memory.address, 5, kUnit));
  OK(cuCtxDestroy_v2(other));
  CHECK(before - free_bytes() == kUnit);
  CHECK(byte_at(memory.address) == 5);
  OK(cuCtxSetCurrent(nullptr));
  const auto handle = make_memory(kUnit, 1);
  OK(cuMemRelease(handle));
  OK(cuCtxSetCurrent(program.context));
  memory.end();
  CHECK(before == free_bytes());
}

TEST_CASE("touching memory that is not allowed fails the context for good, and only that one") {
  Program program;
  CUcontext victim;
  OK(cuCtxCreate_v2(&victim, 0, 0));
  Mapped memory(kUnit);
  CUdeviceptr plain = 0;
  OK(cuMemAlloc_v2(&plain, 64));
  OK(allow(memory.address, kUnit, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
  CHECK(byte_at(memory.address) == kFreshByte);
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SECTION("a memset where only reading is allowed") {
    OK(cuMemsetD8Async(memory.address, 1, 10, stream));
    CHECK(cuStreamSynchronize(stream) == kIllegal);
  }
  SECTION("a copy where nothing is allowed") {
    OK(allow(memory.address, kUnit, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    unsigned char byte = 0;
    CHECK(cuMemcpyDtoH_v2(&byte, memory.address, 1) == kIllegal);
  }
  SECTION("a copy to what is unmapped before its turn comes") {
    unsigned* gate = nullptr;
    OK(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 64, CU_MEMHOSTALLOC_PORTABLE));
    *gate = 0;
    OK(allow(memory.address, kUnit));
    OK(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(gate), 1, 0));
    OK(cuMemcpyDtoDAsync_v2(memory.address, plain, 64, stream));
    OK(cuMemUnmap(memory.address, kUnit));
    __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
    CHECK(cuStreamSynchronize(stream) == kIllegal);
    OK(cuCtxSetCurrent(program.context));
    OK(cuMemMap(memory.address, kUnit, 0, memory.handle, 0));
    OK(cuCtxSetCurrent(victim));
  }
  SECTION("a kernel whose argument nothing may touch") {
    OK(allow(memory.address, kUnit, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    const CUfunction uses = kernel_with_pointer();
    unsigned long long pointer = memory.address + 8;
    void* arguments[] = {&pointer};
    OK(cuLaunchKernel(uses, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
    CHECK(cuCtxSynchronize() == kIllegal);
  }
  CHECK(cuCtxSynchronize() == kIllegal);
  CHECK(cuStreamQuery(stream) == kIllegal);
  CHECK(cuMemsetD8Async(plain, 1, 10, stream) == kIllegal);
  CHECK(cuMemAlloc_v2(&plain, 64) == kIllegal);
  CHECK(cuMemFree_v2(plain) == kIllegal);
  OK(cuCtxSetCurrent(program.context));
  OK(program.launch(nullptr, 1000));
  OK(cuCtxSynchronize());
  OK(cuCtxDestroy_v2(victim));
  memory.end();
}

TEST_CASE("a kernel may be given the end of what it may touch") {
  Program program;
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, 2 * kUnit, 0, 0, 0));
  const auto handle = make_memory(kUnit);
  OK(cuMemMap(place, kUnit, 0, handle, 0));
  OK(allow(place, kUnit));
  const CUfunction uses = kernel_with_pointer();
  for (unsigned long long pointer : {place, place + kUnit / 2, place + kUnit}) {
    void* arguments[] = {&pointer};
    OK(cuLaunchKernel(uses, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    OK(cuCtxSynchronize());
  }
  OK(cuMemUnmap(place, kUnit));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(place, 2 * kUnit));
}

TEST_CASE("each device has memory of its own, and others use it where they are allowed to") {
  Program program;
  const size_t before = free_bytes();
  Mapped memory(kUnit, /*device=*/1);  // device 0 may use it
  CHECK(free_bytes() == before);
  CUcontext other;
  OK(cuCtxCreate_v2(&other, 0, 1));
  size_t free_there = 0, total = 0;
  OK(cuMemGetInfo_v2(&free_there, &total));
  CHECK(total - free_there == kUnit);
  CHECK(attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory.address) == 1);
  CUdeviceptr near = 0;
  OK(cuMemAlloc_v2(&near, kUnit));
  OK(cuMemsetD8_v2(near, 9, kUnit));
  OK(cuCtxSetCurrent(program.context));
  OK(cuMemcpyPeer(memory.address, program.context, near, other, kUnit));
  OK(cuCtxSynchronize());
  CHECK(byte_at(memory.address + 1000) == 9);
  // A kernel here may use plain memory over there once peer access is on.
  const CUfunction uses = kernel_with_pointer();
  void* arguments[] = {&near};
  OK(cuCtxEnablePeerAccess(other, 0));
  OK(cuLaunchKernel(uses, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuCtxSynchronize());
  OK(cuCtxDisablePeerAccess(other));
  OK(cuLaunchKernel(uses, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CHECK(cuCtxSynchronize() == kIllegal);
  OK(cuCtxSetCurrent(other));
  memory.end();
  OK(cuCtxDestroy_v2(other));
}

TEST_CASE("memory is exported as a descriptor and imported with its bytes") {
  Program program;
  const size_t before = free_bytes();
  Mapped memory(2 * kUnit, 0, /*exportable=*/true);
  OK(cuMemsetD8_v2(memory.address, 4, kUnit));
  int descriptor = -1;
  OK(cuMemExportToShareableHandle(&descriptor, memory.handle,
                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(descriptor >= 0);
  CHECK(byte_at(memory.address) == 4);
  CHECK(byte_at(memory.address + kUnit) == kFreshByte);
  CUmemGenericAllocationHandle imported = 0;
  const auto import = [&](int from) {
    return cuMemImportFromShareableHandle(&imported,
                                          reinterpret_cast<void*>(static_cast<uintptr_t>(from)),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  };
  OK(import(descriptor));
  close(descriptor);
  CHECK(before - free_bytes() == 2 * kUnit);
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, 2 * kUnit, 0, 0, 0));
  OK(cuMemMap(place, 2 * kUnit, 0, imported, 0));
  OK(allow(place, 2 * kUnit));
  OK(cuMemsetD8_v2(place + 10, 6, 1));
  CHECK(byte_at(memory.address + 10) == 6);
  OK(cuMemUnmap(place, 2 * kUnit));
  OK(cuMemRelease(imported));
  OK(cuMemAddressFree(place, 2 * kUnit));
  CHECK(byte_at(memory.address + 10) == 6);
  memory.end();
  CHECK(before == free_bytes());
  // Files that are no memory.
  const int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  CHECK(import(zeros) == kWrong);
  close(zeros);
  CHECK(import(-1) == kWrong);
  const int file = memfd_create("not-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(file, kUnit + 4096) == 0);
  CHECK(import(file) == kWrong);
  close(file);
}

TEST_CASE("calls about virtual memory take the time that was measured") {
  Program program;
  constexpr size_t kBytes = size_t{1} << 30;
  CUdeviceptr place = 0;
  OK(cuMemAddressReserve(&place, kBytes, 0, 0, 0));
  const auto us_of = [](auto&& call) {
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    OK(call());
    clock_gettime(CLOCK_MONOTONIC, &end);
    return static_cast<double>(end.tv_sec - begin.tv_sec) * 1e6 +
           static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e3;
  };
  CUmemGenericAllocationHandle handle = 0;
  const auto properties = on_device(0);
  CHECK(us_of([&] { return cuMemCreate(&handle, kBytes, &properties, 0); }) >= 37);
  CHECK(us_of([&] { return cuMemMap(place, kBytes, 0, handle, 0); }) >= 3.5);
  CHECK(us_of([&] { return allow(place, kBytes); }) >= 102);
  CHECK(us_of([&] { return cuMemUnmap(place, kBytes); }) >= 59.7);
  CHECK(us_of([&] { return cuMemRelease(handle); }) >= 504);
  OK(cuMemAddressFree(place, kBytes));
}
