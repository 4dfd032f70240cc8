#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

namespace {
struct Events {
  explicit Events(int count, unsigned flags = 0) : event(count) {
    for (CUevent& each : event) OK(cuEventCreate(&each, flags));
  }
  CUevent operator[](int i) const { return event[static_cast<size_t>(i)]; }
  std::vector<CUevent> event;
};
bool near_ms(float got, double want) { return std::abs(got - want) < 1e-6 * want + 1e-6; }
}  // namespace

TEST_CASE("a kernel takes exactly as long as its argument says, in every form of launch") {
  Program program;
  Events e(9);
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned long long ns = 300'000;
  void* arguments[] = {&ns};
  size_t size = sizeof ns;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  // Held, so that the host adds no gap of its own between the ops.
  OK(program.hold(stream));
  OK(cuEventRecord(e[0], stream));
  OK(cuLaunchKernel(program.spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
  OK(cuEventRecord(e[1], stream));
  ns = 500'000;
  OK(cuLaunchKernel(program.spin, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra));
  OK(cuEventRecord(e[2], stream));
  ns = 700'000;
  OK(cuLaunchKernelEx(&config, program.spin, arguments, nullptr));
  OK(cuEventRecord(e[3], stream));
  ns = 900'000;
  OK(cuLaunchCooperativeKernel(program.spin, 2, 1, 1, 32, 1, 1, 0, stream, arguments));
  OK(cuEventRecord(e[4], stream));
  OK(cuFuncSetBlockShape(program.spin, 8, 1, 1));
  OK(cuParamSetSize(program.spin, 8));
  ns = 1'100'000;
  OK(cuParamSetv(program.spin, 0, &ns, sizeof ns));
  OK(cuLaunchGridAsync(program.spin, 2, 2, stream));
  OK(cuEventRecord(e[5], stream));
  ns = 0;  // the arguments were copied
  CHECK(cuEventQuery(e[5]) == CUDA_ERROR_NOT_READY);
  program.open_gate();
  OK(cuEventSynchronize(e[5]));
  for (int i = 0; i < 5; ++i) {
    INFO(i);
    CHECK(near_ms(elapsed_ms(e[i], e[i + 1]), 0.3 + 0.2 * i));
  }
}

TEST_CASE("launches that the driver would refuse are refused") {
  Program program;
  unsigned long long ns = 1;
  void* arguments[] = {&ns};
  void* extra[] = {CU_LAUNCH_PARAM_END};
  const auto launch = [&](unsigned gx, unsigned gy, unsigned bx, unsigned bz, unsigned shared,
                          void** a, void** b) {
    return cuLaunchKernel(program.spin, gx, gy, 1, bx, 1, bz, shared, nullptr, a, b);
  };
  CHECK(launch(0, 1, 1, 1, 0, arguments, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 65536, 1, 1, 0, arguments, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1025, 1, 0, arguments, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 64, 65, 0, arguments, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 1, 100 << 10, arguments, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 1, 0, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch(1, 1, 1, 1, 0, arguments, extra) == CUDA_ERROR_INVALID_VALUE);
  OK(cuFuncSetAttribute(program.spin, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  CHECK(launch(1, 1, 1, 1, 100 << 10, arguments, nullptr) == CUDA_SUCCESS);
  CHECK(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) ==
        CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuLaunchKernel(program.spin, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(0x1234),
                       arguments, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuLaunchCooperativeKernel(program.spin, 1'000'000, 1, 1, 1024, 1, 1, 0, nullptr,
                                  arguments) == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_CASE("kernels of two streams overlap, kernels of one do not") {
  Program program;
  CUstream one, two;
  OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  Events e(4);
  OK(program.hold(one));
  OK(cuEventRecord(e[0], one));
  OK(cuStreamWaitEvent(two, e[0], 0));
  OK(program.launch(one, 4'000'000));
  OK(program.launch(one, 4'000'000));
  OK(cuEventRecord(e[1], one));
  OK(program.launch(two, 4'000'000));
  OK(cuEventRecord(e[2], two));
  program.open_gate();
  OK(cuCtxSynchronize());
  CHECK(near_ms(elapsed_ms(e[0], e[1]), 8.0));
  CHECK(near_ms(elapsed_ms(e[0], e[2]), 4.0));
}

TEST_CASE(
    "the legacy stream waits for blocking streams and they for it; non-blocking ones do not") {
  Program program;
  CUstream blocking, free_stream;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
  Events e(3);
  OK(program.hold(blocking));
  OK(program.launch(nullptr, 1000));
  OK(cuEventRecord(e[0], nullptr));
  OK(program.launch(free_stream, 1000));
  OK(cuEventRecord(e[1], free_stream));
  OK(cuEventSynchronize(e[1]));
  CHECK(cuEventQuery(e[0]) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
  CHECK(cuStreamQuery(free_stream) == CUDA_SUCCESS);
  program.open_gate();
  OK(cuStreamSynchronize(nullptr));
  CHECK(cuEventQuery(e[0]) == CUDA_SUCCESS);
  // The other way round.
  *program.gate = 0;
  OK(program.hold(CU_STREAM_LEGACY));
  OK(cuEventRecord(e[0], blocking));
  OK(cuEventRecord(e[1], free_stream));
  OK(cuEventRecord(e[2], CU_STREAM_PER_THREAD));
  OK(cuEventSynchronize(e[1]));
  CHECK(cuEventQuery(e[0]) == CUDA_ERROR_NOT_READY);
  CHECK(cuEventQuery(e[2]) == CUDA_ERROR_NOT_READY);
  program.open_gate();
  OK(cuCtxSynchronize());
  CHECK(cuEventQuery(e[0]) == CUDA_SUCCESS);
  CHECK(cuEventQuery(e[2]) == CUDA_SUCCESS);
}

TEST_CASE("stream 0 is the thread's own in the per-thread calls, and differs between threads") {
  Program program;
  unsigned long long legacy = 0, mine = 0, same = 0, other = 0;
  OK(cuStreamGetId(nullptr, &legacy));
  OK(cuStreamGetId_ptsz(nullptr, &mine));
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &same));
  CHECK(mine != legacy);
  CHECK(mine == same);
  std::thread([&] {
    CHECK(cuCtxSetCurrent(program.context) == CUDA_SUCCESS);
    CHECK(cuStreamGetId_ptsz(nullptr, &other) == CUDA_SUCCESS);
  }).join();
  CHECK(other != mine);
  Events e(2);
  unsigned long long ns = 250'000;
  void* arguments[] = {&ns};
  OK(cuEventRecord_ptsz(e[0], nullptr));
  OK(cuLaunchKernel_ptsz(program.spin, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuEventRecord_ptsz(e[1], nullptr));
  OK(cuStreamSynchronize_ptsz(nullptr));
  CHECK(elapsed_ms(e[0], e[1]) >= 0.249f);
}

TEST_CASE("more streams than threads and contexts allow at once are made and destroyed again") {
  Program program;
  for (int i = 0; i < 600; ++i) {
    CUstream stream;
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, -1));
    int priority = 0;
    OK(cuStreamGetPriority(stream, &priority));
    CHECK(priority == -1);
    OK(cuStreamDestroy_v2(stream));
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_INVALID_HANDLE);
  }
  for (int i = 0; i < 300; ++i) {
    std::thread([&] {
      cuCtxSetCurrent(program.context);
      CHECK(program.launch(CU_STREAM_PER_THREAD, 1) == CUDA_SUCCESS);
      CHECK(cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
    }).join();
  }
}

TEST_CASE("a wait for an event orders two streams, and outlives the stream it was recorded in") {
  Program program;
  CUstream one, two;
  OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
  Events e(2);
  OK(program.hold(one));
  OK(cuEventRecord(e[0], one));
  OK(cuStreamWaitEvent(two, e[0], 0));
  OK(cuEventRecord(e[1], two));
  OK(cuStreamDestroy_v2(one));
  CHECK(cuEventQuery(e[1]) == CUDA_ERROR_NOT_READY);
  CHECK(cuEventQuery(e[0]) == CUDA_ERROR_NOT_READY);
  program.open_gate();
  OK(cuStreamSynchronize(two));
  CHECK(elapsed_ms(e[0], e[1]) >= 0.0f);
}

TEST_CASE("events answer as the driver's do") {
  Program program;
  CUevent plain, untimed, bad;
  OK(cuEventCreate(&plain, 0));
  OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventCreate(&bad, 64) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuEventQuery(plain) == CUDA_SUCCESS);
  float ms = 0;
  CHECK(cuEventElapsedTime(&ms, plain, plain) == CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventRecord(untimed, nullptr));
  OK(cuEventRecord(plain, nullptr));
  OK(cuEventSynchronize(untimed));
  CHECK(cuEventElapsedTime_v2(&ms, plain, untimed) == CUDA_ERROR_INVALID_HANDLE);
  OK(program.hold(nullptr));
  CUevent late;
  OK(cuEventCreate(&late, 0));
  OK(cuEventRecordWithFlags(late, nullptr, 0));
  CHECK(cuEventElapsedTime(&ms, plain, late) == CUDA_ERROR_NOT_READY);
  program.open_gate();
  OK(cuEventSynchronize(late));
  CHECK(cuEventElapsedTime(&ms, plain, late) == CUDA_SUCCESS);
  CHECK(ms >= 0);
  OK(cuEventDestroy_v2(plain));
  CHECK(cuEventRecord(plain, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuEventDestroy(plain) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("host functions run in stream order, on another thread, and may not call the driver") {
  Program program;
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  struct Seen {
    std::vector<int> order;
    std::thread::id thread;
    CUresult inside = CUDA_SUCCESS;
    unsigned value = 0;
    unsigned* host = nullptr;
  } seen;
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 4));
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&seen.host), 4, 0));
  OK(cuMemsetD32Async(memory, 42, 1, stream));
  OK(cuMemcpyDtoHAsync_v2(seen.host, memory, 4, stream));
  OK(cuLaunchHostFunc(
      stream,
      [](void* p) {
        auto& s = *static_cast<Seen*>(p);
        s.order.push_back(1);
        s.thread = std::this_thread::get_id();
        s.inside = cuCtxSynchronize();
        s.value = *s.host;
      },
      &seen));
  OK(cuStreamAddCallback(
      stream,
      [](CUstream, CUresult status, void* p) {
        if (status == CUDA_SUCCESS) static_cast<Seen*>(p)->order.push_back(2);
      },
      &seen, 0));
  OK(cuStreamSynchronize(stream));
  CHECK(seen.order == std::vector<int>{1, 2});
  CHECK(seen.thread != std::this_thread::get_id());
  CHECK(seen.inside == CUDA_ERROR_NOT_PERMITTED);
  CHECK(seen.value == 42);
}

TEST_CASE("a program that only polls its own memory sees what its streams write") {
  Program program;
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint64_t* flag = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag), 64, 0));
  flag[0] = flag[1] = 0;
  OK(program.launch(stream, 200'000));
  OK(cuStreamWriteValue64_v2(stream, reinterpret_cast<CUdeviceptr>(flag), 77, 0));
  while (__atomic_load_n(&flag[0], __ATOMIC_ACQUIRE) != 77) std::this_thread::yield();
  // Waits of each kind, released by the host and by another stream.
  CUstream other;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUstreamBatchMemOpParams ops[2] = {};
  ops[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[0].waitValue.address = reinterpret_cast<CUdeviceptr>(flag);
  ops[0].waitValue.value64 = 100;
  ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  ops[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ops[1].writeValue.address = reinterpret_cast<CUdeviceptr>(flag + 1);
  ops[1].writeValue.value = 5;
  OK(cuStreamBatchMemOp_v2(stream, 2, ops, 0));
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  CHECK(flag[1] == 0);
  OK(cuStreamWriteValue64(other, reinterpret_cast<CUdeviceptr>(flag), 100, 0));
  OK(cuStreamSynchronize(stream));
  CHECK(flag[1] == 5);
  unsigned outside = 0;
  CHECK(cuStreamWriteValue32(stream, reinterpret_cast<CUdeviceptr>(&outside), 1, 0) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWriteValue64(stream, reinterpret_cast<CUdeviceptr>(flag) + 4, 1, 0) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("far more work than the device keeps in flight is accepted and finished in order") {
  Program program;
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, 4));
  Events e(2);
  OK(cuEventRecord(e[0], stream));
  for (unsigned i = 0; i < 5000; ++i) {
    REQUIRE(program.launch(stream, 1000) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD32Async(memory, i, 1, stream) == CUDA_SUCCESS);
  }
  OK(cuEventRecord(e[1], stream));
  unsigned last = 0;
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(&last, memory, 4));
  CHECK(last == 4999);
  CHECK(elapsed_ms(e[0], e[1]) >= 5.0f);
}
