#include "tests/shim/arena/arena_probe.h"

#include <sys/mman.h>

#include "shim/device_memory.h"
#include "shim/residence/device_arena.h"
#include "shim/residence/host_arena.h"
#include "shim/system.h"
#include "shim/thread_state.h"

using namespace lull::shim;

namespace {

struct Walk {
  CUresult result = CUDA_SUCCESS;
  uint64_t bytes = 0;
  uint32_t count = 0;
};

bool move_out(Backing& backing, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  if (!backing.present) return true;
  const CUdeviceptr address = begin_copying(backing);
  void* copy = map_pages(backing.bytes);
  walk.result = address == 0 || copy == nullptr
                    ? CUDA_ERROR_MAP_FAILED
                    : driver().cuMemcpyDtoH_v2(copy, address, backing.bytes);
  end_copying(backing);
  if (walk.result == CUDA_SUCCESS) walk.result = release_backing(backing);
  if (walk.result != CUDA_SUCCESS) {
    if (copy != nullptr) munmap(copy, backing.bytes);
    return false;
  }
  backing.host_offset = reinterpret_cast<uint64_t>(copy);
  walk.bytes += backing.bytes;
  return true;
}

bool move_back(Backing& backing, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  if (backing.present) return true;
  walk.result = restore_backing(backing);
  if (walk.result != CUDA_SUCCESS) return false;
  const CUdeviceptr address = begin_copying(backing);
  auto* copy = reinterpret_cast<void*>(backing.host_offset);
  walk.result =
      address == 0 ? CUDA_ERROR_MAP_FAILED : driver().cuMemcpyHtoD_v2(address, copy, backing.bytes);
  end_copying(backing);
  munmap(copy, backing.bytes);
  return walk.result == CUDA_SUCCESS;
}

bool count_absent(Backing& backing, void* data) {
  if (!backing.present) ++static_cast<Walk*>(data)->count;
  return true;
}

}  // namespace

#define PROBE extern "C" LULL_PUBLIC

// What was freed in stream order is given back by the service thread, whenever it looks.
PROBE int64_t arena_probe_out() {
  OwnCall own(thread_state);
  Walk walk;
  lock_arena();
  visit_backings(move_out, &walk);
  unlock_arena();
  return walk.result == CUDA_SUCCESS ? static_cast<int64_t>(walk.bytes)
                                     : -static_cast<int64_t>(walk.result);
}

PROBE int arena_probe_back() {
  OwnCall own(thread_state);
  Walk walk;
  lock_arena();
  visit_backings(move_back, &walk);
  unlock_arena();
  return walk.result;
}

PROBE uint64_t arena_probe_swappable(uint32_t device) { return swappable_bytes(device); }
PROBE uint64_t arena_probe_fixed(uint32_t device) { return fixed_bytes(device); }
PROBE const char* arena_probe_reason() { return fixed_memory_reason(); }
PROBE uint32_t arena_probe_absent() {
  Walk walk;
  visit_backings(count_absent, &walk);
  return walk.count;
}
PROBE uint64_t arena_probe_counted(uint32_t device) { return memory_used_bytes(device); }
PROBE int arena_probe_host(uint64_t wanted_bytes, uint64_t allowance_bytes, const char** reason) {
  OwnCall own(thread_state);
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  HostMemory made = HostMemory::kMoreToDo;
  while (made == HostMemory::kMoreToDo) {
    made = prepare_host_arena(wanted_bytes, allowance_bytes, /*ordinal=*/0, *reason);
  }
  driver().cuCtxSetCurrent(current);
  return made == HostMemory::kReady ? 0 : 1;
}
PROBE uint64_t arena_probe_host_at(uint64_t offset) {
  uint64_t left = 0;
  return reinterpret_cast<uint64_t>(host_arena_at(offset, left));
}
PROBE void arena_probe_host_trim() {
  OwnCall own(thread_state);
  trim_host_arena(0);
}
PROBE uint64_t arena_probe_driver_free() {
  OwnCall own(thread_state);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  driver().cuMemGetInfo_v2(&free_bytes, &total_bytes);
  return free_bytes;
}
