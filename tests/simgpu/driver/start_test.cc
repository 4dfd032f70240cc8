// What needs a process that has not called the driver yet: each case runs in a child of its own.
#include <sys/wait.h>

#include <functional>

#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

namespace {
// The number of the first check that fails in a child process, 0 if none, -1 if it died.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
int first_failed(std::initializer_list<bool> checks) {
  int number = 1;
  for (const bool passed : checks) {
    if (!passed) return number;
    ++number;
  }
  return 0;
}
}  // namespace

TEST_CASE("before cuInit every call but the few that need no device is refused") {
  use_own_device("4");
  CHECK(in_child([] {
          int value = 0;
          CUcontext context = nullptr;
          CUdeviceptr memory = 0;
          return first_failed({cuDeviceGetCount(&value) == CUDA_ERROR_NOT_INITIALIZED,
                               cuCtxCreate_v2(&context, 0, 0) == CUDA_ERROR_NOT_INITIALIZED,
                               cuMemAlloc_v2(&memory, 4) == CUDA_ERROR_NOT_INITIALIZED,
                               cuStreamSynchronize(nullptr) == CUDA_ERROR_NOT_INITIALIZED,
                               cuDriverGetVersion(&value) == CUDA_SUCCESS,
                               cuInit(1) == CUDA_ERROR_INVALID_VALUE, cuInit(0) == CUDA_SUCCESS,
                               cuMemAlloc_v2(&memory, 4) == CUDA_ERROR_INVALID_CONTEXT});
        }) == 0);
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses and orders devices") {
  use_own_device("4");
  CHECK(in_child([] {
          setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
          int count = 0;
          char id[32];
          return first_failed({cuInit(0) == CUDA_SUCCESS, cuDeviceGetCount(&count) == CUDA_SUCCESS,
                               count == 2, cuDeviceGetPCIBusId(id, sizeof id, 0) == CUDA_SUCCESS,
                               std::string(id) == "0000:03:00.0"});
        }) == 0);
  CHECK(in_child([] {
          setenv("CUDA_VISIBLE_DEVICES", "", 1);
          return first_failed({cuInit(0) == CUDA_ERROR_NO_DEVICE});
        }) == 0);
}

TEST_CASE("a process may end with work in flight, a held stream and no clean-up") {
  use_own_device("4");
  CHECK(in_child([]() -> int {
          Program* program = new Program;
          if (program->launch(nullptr, 10'000'000'000) != CUDA_SUCCESS) return 1;
          if (program->hold(CU_STREAM_PER_THREAD) != CUDA_SUCCESS) return 2;
          exit(0);
        }) == 0);
}

TEST_CASE("a fork child of a process with a context is refused, and the parent goes on") {
  use_own_device("4");
  CHECK(in_child([] {
          Program program;
          CUdeviceptr memory = 0;
          cuMemAlloc_v2(&memory, 4096);
          program.launch(nullptr, 1'000'000);
          const int child = in_child([&] {
            int count = 0;
            CUcontext context = nullptr;
            return first_failed({cuInit(0) == CUDA_ERROR_NOT_INITIALIZED,
                                 cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED,
                                 cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED,
                                 program.launch(nullptr, 1) == CUDA_ERROR_NOT_INITIALIZED,
                                 cuMemFree_v2(memory) == CUDA_ERROR_NOT_INITIALIZED});
          });
          return first_failed({child == 0, program.launch(nullptr, 1000) == CUDA_SUCCESS,
                               cuCtxSynchronize() == CUDA_SUCCESS,
                               cuMemFree_v2(memory) == CUDA_SUCCESS});
        }) == 0);
}
