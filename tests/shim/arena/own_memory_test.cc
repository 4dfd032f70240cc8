// Programs with virtual memory management of their own: handles of ours, the driver's memory behind
// them.
#include <unistd.h>

#include <map>
#include <random>

#include "tests/seed.h"
#include "tests/shim/arena/moved_program.h"

using namespace arena_test;

namespace {

constexpr size_t kUnit = 2 * kMiB;

CUmemAllocationProp properties_of(int device, bool exportable = false) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  if (exportable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

CUmemGenericAllocationHandle create(size_t bytes, bool exportable = false) {
  const CUmemAllocationProp properties = properties_of(0, exportable);
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, bytes, &properties, 0));
  return handle;
}

CUdeviceptr reserve(size_t bytes) {
  CUdeviceptr address = 0;
  OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  return address;
}

CUresult give_access(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags, int device = 0) {
  CUmemAccessDesc right{};
  right.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  right.flags = flags;
  return cuMemSetAccess(address, bytes, &right, 1);
}

constexpr auto kReadWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

unsigned long long access_of(CUdeviceptr address, int device = 0) {
  const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
  unsigned long long flags = 99;
  OK(cuMemGetAccess(&flags, &location, address));
  return flags;
}

}  // namespace

TEST_CASE("memory that is mapped twice comes back behind both addresses, with the rights of each") {
  MovedProgram it;
  const CUmemGenericAllocationHandle handle = create(2 * kUnit);
  const CUdeviceptr place = reserve(8 * kUnit);
  OK(cuMemMap(place, 2 * kUnit, 0, handle, 0));
  OK(cuMemMap(place + 4 * kUnit, 2 * kUnit, 0, handle, 0));
  OK(give_access(place, 2 * kUnit, kReadWrite));
  OK(give_access(place + 4 * kUnit, 2 * kUnit, CU_MEM_ACCESS_FLAGS_PROT_READ));
  OK(give_access(place, 2 * kUnit, kReadWrite, 1));
  const Bytes contents = noise(2 * kUnit, 1);
  write(place, contents);
  unsigned long long id = 0, again = 0;
  OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, place));
  CHECK(cycle() == 2 * kUnit);
  OK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, place));
  CHECK(id == again);
  CHECK(holds(place, contents));
  CHECK(holds(place + 4 * kUnit, contents));
  CHECK(access_of(place) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(access_of(place, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK(access_of(place + 4 * kUnit) == CU_MEM_ACCESS_FLAGS_PROT_READ);
  CHECK(access_of(place + 4 * kUnit, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  // One place less; the memory stays for the other.
  OK(cuMemUnmap(place, 2 * kUnit));
  OK(cuMemRelease(handle));
  CHECK(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
  CHECK(arena_probe_counted(0) == 2 * kUnit);
  CHECK(cycle() == 2 * kUnit);
  CHECK(holds(place + 4 * kUnit, contents));
  OK(cuMemUnmap(place + 4 * kUnit, 2 * kUnit));
  OK(cuMemAddressFree(place, 8 * kUnit));
  it.check_no_leak(0);
}

TEST_CASE("a handle without a mapping keeps its contents, and one without access too") {
  MovedProgram it;
  const CUmemGenericAllocationHandle handle = create(kUnit);
  const CUdeviceptr place = reserve(kUnit);
  const Bytes contents = noise(kUnit, 2);
  OK(cuMemMap(place, kUnit, 0, handle, 0));
  CHECK(cycle() == kUnit);  // no access yet
  OK(give_access(place, kUnit, kReadWrite));
  write(place, contents);
  OK(cuMemUnmap(place, kUnit));
  OK(cuCtxSynchronize());
  REQUIRE(arena_probe_out() == static_cast<int64_t>(kUnit));
  CHECK(arena_probe_driver_free() == it.free_at_first);
  REQUIRE(arena_probe_back() == 0);
  OK(cuMemMap(place, kUnit, 0, handle, 0));
  OK(give_access(place, kUnit, kReadWrite));
  CHECK(holds(place, contents));
  OK(cuMemUnmap(place, kUnit));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(place, kUnit));
  it.check_no_leak(0);
}

TEST_CASE("handles of ours behave as the driver's") {
  MovedProgram it;
  const CUmemGenericAllocationHandle handle = create(kUnit);
  CUmemGenericAllocationHandle again = 0;
  const CUdeviceptr place = reserve(2 * kUnit);
  CUmemAllocationProp properties{};
  OK(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  CHECK(properties.location.id == 0);
  CHECK(cuMemGetAllocationPropertiesFromHandle(&properties, handle + 1) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(place, kUnit, 0, handle ^ (uint64_t{1} << 33), 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemMap(place, 2 * kUnit, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(place, kUnit, 0, handle, 0));
  CHECK(cuMemMap(place, kUnit, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(place + 5)));
  CHECK(again == handle);
  OK(cuMemRelease(handle));
  OK(cuMemRelease(again));
  CHECK(cuMemMap(place + kUnit, kUnit, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);  // released
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(place)));
  OK(cuMemMap(place + kUnit, kUnit, 0, again, 0));
  CHECK(cuMemUnmap(place + kUnit / 2, kUnit) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(place, 2 * kUnit));
  OK(cuMemRelease(again));
  OK(cuMemAddressFree(place, 2 * kUnit));
  it.check_no_leak(0);
  // A new one is another.
  const CUmemGenericAllocationHandle other = create(kUnit);
  CHECK(other != handle);
  CHECK(cuMemRelease(handle) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRelease(other));
  // The driver's errors.
  CUmemAllocationProp wrong = properties_of(7);
  CHECK(cuMemCreate(&again, kUnit, &wrong, 0) == CUDA_ERROR_INVALID_DEVICE);
  wrong = properties_of(0);
  CHECK(cuMemCreate(&again, kUnit + 1, &wrong, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemCreate(&again, size_t{1} << 40, &wrong, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  it.check_no_leak(0);
}

TEST_CASE("exported and imported memory stays on the device, and is named") {
  MovedProgram it;
  const CUmemGenericAllocationHandle handle = create(kUnit, /*exportable=*/true);
  const CUmemGenericAllocationHandle free_to_go = create(kUnit);
  CHECK(arena_probe_swappable(0) == 2 * kUnit);
  int descriptor = -1;
  OK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                  0));
  CHECK(arena_probe_swappable(0) == kUnit);
  CHECK(arena_probe_fixed(0) == kUnit);
  CHECK(std::string(arena_probe_reason()) == "memory that was exported to other processes");
  CUmemGenericAllocationHandle imported = 0;
  OK(cuMemImportFromShareableHandle(&imported,
                                    reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(descriptor);
  CHECK(imported != handle);
  const CUdeviceptr place = reserve(2 * kUnit);
  OK(cuMemMap(place, kUnit, 0, handle, 0));
  OK(cuMemMap(place + kUnit, kUnit, 0, imported, 0));
  OK(give_access(place, 2 * kUnit, kReadWrite));
  const Bytes contents = noise(kUnit, 4);
  write(place, contents);
  CHECK(cycle() == kUnit);
  CHECK(holds(place + kUnit, contents));
  OK(cuMemUnmap(place, 2 * kUnit));
  OK(cuMemRelease(handle));
  OK(cuMemRelease(imported));
  OK(cuMemRelease(free_to_go));
  OK(cuMemAddressFree(place, 2 * kUnit));
  CHECK(arena_probe_fixed(0) == 0);
  it.check_no_leak(0);
}

TEST_CASE("memory that is tied to what is there now is not moved") {
  MovedProgram it;
  CUdeviceptr address = 0;
  OK(cuMemAlloc_v2(&address, 4 * kMiB));
  const unsigned on = 1;
  OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
  CHECK(arena_probe_fixed(0) == 4 * kMiB);
  CHECK(std::string(arena_probe_reason()).find("RDMA") != std::string::npos);
  CHECK(cycle() == 0);
  OK(cuMemFree_v2(address));
  CHECK(arena_probe_fixed(0) == 0);
  it.check_no_leak(0);
}

TEST_CASE("random mappings, unmappings and moves leave every byte as it was") {
  MovedProgram it;
  const uint64_t seed = lull::tests::test_seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr size_t kSlots = 16;
  const CUdeviceptr place = reserve(kSlots * 2 * kUnit);
  struct Memory {
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    bool released = false;
    Bytes contents;
    int places = 0;
  };
  std::map<int, Memory> all;
  std::map<size_t, int> slots;
  int next = 0;
  const auto forget_if_gone = [&](int n) {
    if (all[n].released && all[n].places == 0) all.erase(n);
  };
  const auto unmap = [&](size_t slot) {
    const int n = slots[slot];
    OK(cuMemUnmap(place + slot * 2 * kUnit, all[n].bytes));
    slots.erase(slot);
    --all[n].places;
    forget_if_gone(n);
  };
  for (int step = 0; step < 250; ++step) {
    const size_t slot = random() % kSlots;
    switch (random() % 6) {
      case 0: {
        if (all.size() == 6) break;
        const size_t bytes = (random() % 2 + 1) * kUnit;
        all[next++] = {create(bytes), bytes, false, {}, 0};
        break;
      }
      case 1:
      case 2: {
        if (all.empty()) break;
        auto found = all.begin();
        std::advance(found, static_cast<long>(random() % all.size()));
        auto& [n, memory] = *found;
        if (memory.released) break;
        if (slots.contains(slot)) {
          // That may have been its last place, but it has a handle.
          unmap(slot);
        }
        const CUdeviceptr at = place + slot * 2 * kUnit;
        OK(cuMemMap(at, memory.bytes, 0, memory.handle, 0));
        OK(give_access(at, memory.bytes, kReadWrite));
        slots[slot] = n;
        ++memory.places;
        if (memory.contents.empty()) {
          memory.contents = noise(memory.bytes, random());
          write(at, memory.contents);
        }
        break;
      }
      case 3:
        if (slots.contains(slot)) unmap(slot);
        break;
      case 4: {
        if (all.empty() || random() % 2 == 0) break;
        const int n = all.begin()->first;
        if (!all[n].released) OK(cuMemRelease(all[n].handle));
        all[n].released = true;
        forget_if_gone(n);
        break;
      }
      default:
        if (random() % 3 == 0) cycle();
        if (slots.contains(slot)) CHECK(holds(place + slot * 2 * kUnit, all[slots[slot]].contents));
    }
  }
  cycle();
  while (!slots.empty()) {
    CHECK(holds(place + slots.begin()->first * 2 * kUnit, all[slots.begin()->second].contents));
    unmap(slots.begin()->first);
  }
  for (const auto& [n, memory] : all) {
    if (!memory.released) OK(cuMemRelease(memory.handle));
  }
  OK(cuMemAddressFree(place, kSlots * 2 * kUnit));
  it.check_no_leak(0);
}
