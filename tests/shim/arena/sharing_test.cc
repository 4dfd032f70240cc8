// Peers, and other processes.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/shim/arena/moved_program.h"

using namespace arena_test;

namespace {

// A second context, on the second device.
struct Peer {
  CUcontext context = nullptr;
  CUfunction spin = nullptr;
  Peer() {
    CUmodule module = nullptr;
    OK(cuCtxCreate_v2(&context, 0, 1));
    OK(cuModuleLoadData(&module, sim_test::kPtx));
    OK(cuModuleGetFunction(&spin, module, "spin"));
  }
  // In the peer's context: what a kernel of its does with the address.
  CUresult touch(CUdeviceptr address) const {
    unsigned long long ns = address;
    void* arguments[] = {&ns};
    CUresult result = cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr);
    if (result == CUDA_SUCCESS) result = cuCtxSynchronize();
    return result;
  }
};

unsigned rights_here(CUdeviceptr address) {
  unsigned flags = 99;
  OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
  return flags;
}

}  // namespace

TEST_CASE("peer access holds for what was allocated before and after, and while it is granted") {
  MovedProgram it;
  CUdeviceptr before = 0, after = 0, small = 0;
  OK(cuMemAlloc_v2(&before, 3 * kMiB));
  OK(cuMemAlloc_v2(&small, 100));
  const Peer peer;
  CHECK(rights_here(before) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
  OK(cuCtxEnablePeerAccess(it.program.context, 0));
  CHECK(cuCtxEnablePeerAccess(it.program.context, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  OK(cuCtxSetCurrent(it.program.context));
  OK(cuMemAlloc_v2(&after, 5 * kMiB));
  cycle();
  OK(cuCtxSetCurrent(peer.context));
  for (const CUdeviceptr address : {before, after, small}) {
    CHECK(rights_here(address) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  }
  OK(cuCtxDisablePeerAccess(it.program.context));
  for (const CUdeviceptr address : {before, after, small}) {
    CHECK(rights_here(address) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
  }
  // It goes with the context that had it.
  OK(cuCtxEnablePeerAccess(it.program.context, 0));
  CHECK(rights_here(small) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  OK(cuCtxDestroy_v2(peer.context));
  OK(cuCtxSetCurrent(it.program.context));
  const Peer another;
  CHECK(rights_here(small) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
  OK(cuCtxDestroy_v2(another.context));
  OK(cuCtxSetCurrent(it.program.context));
  for (const CUdeviceptr address : {before, after, small}) OK(cuMemFree_v2(address));
  it.check_no_leak();
}

TEST_CASE("a pool's rights hold for what comes from it") {
  MovedProgram it;
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  CUmemAccessDesc right{};
  right.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  right.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr before = 0, after = 0;
  OK(cuMemAllocAsync(&before, 3 * kMiB, stream));
  OK(cuMemPoolSetAccess(pool, &right, 1));
  OK(cuMemAllocAsync(&after, 3 * kMiB, stream));
  const Peer peer;
  CHECK(rights_here(before) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  CHECK(rights_here(after) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  right.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  OK(cuMemPoolSetAccess(pool, &right, 1));
  CHECK(rights_here(before) == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE);
  OK(cuCtxDestroy_v2(peer.context));
  OK(cuCtxSetCurrent(it.program.context));
  OK(cuMemFreeAsync(before, stream));
  OK(cuMemFreeAsync(after, stream));
  OK(cuStreamSynchronize(stream));
  CHECK(free_bytes() == it.free_at_first);
}

TEST_CASE("another process opens memory of the arena, and both see the same bytes") {
  // Before CUDA is there: two processes, each with a context of its own on the same device.
  sim_test::use_own_device("2");
  int link[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, link) == 0);
  const Bytes large_before = noise(5 * kMiB, 1), small_before = noise(1000, 2);
  const Bytes large_after = noise(5 * kMiB, 3), small_after = noise(1000, 4);
  struct Names {
    CUipcMemHandle large, small;
  };
  char go = 0;
  const pid_t child = fork();
  if (child == 0) {
    int failed = 0;
    const auto check = [&](int what, bool right) {
      if (!right && failed == 0) failed = what;
    };
    CUcontext context = nullptr;
    Names names{};
    check(1, read(link[1], &names, sizeof names) == ssize_t{sizeof names});
    check(2, cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    CUdeviceptr large = 0, small = 0, again = 0;
    check(3, cuIpcOpenMemHandle_v2(&large, names.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                 CUDA_SUCCESS);
    check(4, cuIpcOpenMemHandle_v2(&small, names.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                 CUDA_SUCCESS);
    check(5, cuIpcOpenMemHandle_v2(&again, names.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                     CUDA_SUCCESS &&
                 again == small);
    Bytes read_large(large_before.size()), read_small(small_before.size());
    check(6, cuMemcpyDtoH_v2(read_large.data(), large, read_large.size()) == CUDA_SUCCESS &&
                 read_large == large_before);
    check(7, cuMemcpyDtoH_v2(read_small.data(), small, read_small.size()) == CUDA_SUCCESS &&
                 read_small == small_before);
    check(8, cuMemcpyHtoD_v2(large, large_after.data(), large_after.size()) == CUDA_SUCCESS);
    check(9, cuMemcpyHtoD_v2(small, small_after.data(), small_after.size()) == CUDA_SUCCESS);
    check(10, cuIpcCloseMemHandle(small) == CUDA_SUCCESS);
    check(11, cuMemcpyDtoH_v2(read_small.data(), small, 1) == CUDA_SUCCESS);  // opened twice
    check(12, cuIpcCloseMemHandle(small) == CUDA_SUCCESS);
    check(13, cuIpcCloseMemHandle(small) != CUDA_SUCCESS);
    check(14, cuIpcCloseMemHandle(large) == CUDA_SUCCESS);
    names.small.reserved[20] ^= 1;  // no memory of that number
    check(15, cuIpcOpenMemHandle_v2(&small, names.small, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                  CUDA_ERROR_INVALID_HANDLE);
    check(16, write(link[1], &go, 1) == 1);
    check(17, read(link[1], &go, 1) == 1);  // it was freed
    check(18, cuIpcOpenMemHandle_v2(&large, names.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
                  CUDA_SUCCESS);
    _exit(failed);
  }
  {
    MovedProgram it;
    CUdeviceptr large = 0, small = 0, pooled = 0, opened = 0;
    OK(cuMemAlloc_v2(&large, large_before.size()));
    OK(cuMemAlloc_v2(&small, small_before.size()));
    write(large, large_before);
    write(small, small_before);
    cycle();
    const unsigned on = 1;  // of memory that is registered, and shared then
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, small));
    int capable = 0;
    OK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large));
    CHECK(capable == 1);
    Names names{};
    OK(cuIpcGetMemHandle(&names.large, large));
    OK(cuIpcGetMemHandle(&names.small, small + 10));
    CHECK(cuIpcOpenMemHandle_v2(&opened, names.large, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
          CUDA_ERROR_INVALID_CONTEXT);
    OK(cuMemAllocAsync(&pooled, 100, nullptr));
    CUipcMemHandle none{};
    CHECK(cuIpcGetMemHandle(&none, pooled) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(pooled, nullptr));
    CHECK(arena_probe_fixed(0) >= 38 * kMiB);
    CHECK(std::string(arena_probe_reason()).find("cuIpcGetMemHandle") != std::string::npos);
    REQUIRE(::write(link[0], &names, sizeof names) == ssize_t{sizeof names});
    REQUIRE(read(link[0], &go, 1) == 1);
    CHECK(holds(large, large_after));
    CHECK(holds(small, small_after));
    cycle();
    CHECK(holds(large, large_after));
    // What comes now is in another slab, which can be moved.
    CUdeviceptr later = 0;
    OK(cuMemAlloc_v2(&later, 1000));
    CHECK(cycle() == 32 * kMiB);
    OK(cuMemFree_v2(later));
    OK(cuMemFree_v2(large));
    OK(cuMemFree_v2(small));
    CHECK(free_bytes() == it.free_at_first);
  }
  REQUIRE(::write(link[0], &go, 1) == 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}
