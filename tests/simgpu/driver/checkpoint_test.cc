// Checkpoints: of the process itself, by another process, onto other devices, and of processes that
// are killed in between. This process never calls the driver: its children do, each on the device
// of its case.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/seed.h"
#include "tests/simgpu/driver/sim_program.h"
#include "tools/simgpu/device/inspect.h"
#include "tools/simgpu/device/shared_device.h"

namespace {

// In a child: says what is wrong and leaves.
#define WANT(condition)                                                            \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                    \
    }                                                                              \
  } while (false)
#define DONE(call) WANT((call) == CUDA_SUCCESS)

constexpr size_t kUnit = 2 << 20;
constexpr uint64_t kMemoryBytes = 256 << 20;

// A device on which a checkpoint takes a millisecond.
struct Machine {
  explicit Machine(const char* devices = "1", const char* sharing = "time_slice") {
    char name[] = "/tmp/simgpu-checkpoint.XXXXXX";
    folder = mkdtemp(name);
    std::ofstream(folder + "/profile.json")
        << R"({"name": "small", "memory_bytes": )" << kMemoryBytes
        << R"(, "checkpoint_out_ns": 1000000, "checkpoint_out_gb_per_s": 50,
             "checkpoint_back_ns": 1000000, "checkpoint_back_gb_per_s": 50})";
    setenv("SIMGPU_DEVICE", (folder + "/device").c_str(), 1);
    setenv("SIMGPU_PROFILE", (folder + "/profile.json").c_str(), 1);
    setenv("SIMGPU_DEVICES", devices, 1);
    setenv("SIMGPU_SHARING", sharing, 1);
    unsetenv("SIMGPU_SLOW_MOTION");
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  ~Machine() {
    for (const char* file : {"/device", "/profile.json"}) unlink((folder + file).c_str());
    rmdir(folder.c_str());
    unsetenv("SIMGPU_PROFILE");
  }
  // Nobody holds memory any more. The dead are removed by whoever comes by more than 5 ms later.
  bool comes_to_nothing() const {
    for (int i = 0; i < 120'000; ++i, usleep(1000)) {
      const auto used = used_bytes_of(folder + "/device");
      if (std::ranges::all_of(used, [](uint64_t bytes) { return bytes == 0; })) return true;
    }
    return false;
  }
  static std::vector<uint64_t> used_bytes_of(const std::string& path) {
    std::vector<uint64_t> used;
    const auto usage = simgpu::read_usage(path);
    if (!usage) return used;
    for (const auto& device : usage->devices) {
      used.push_back(0);
      for (const auto& process : device.processes) used.back() += process.memory_bytes;
    }
    return used;
  }
  // Somebody has asked for a transition of the process, and it has not come yet.
  void wait_until_asked(pid_t pid) const {
    const auto device = simgpu::SharedDevice::open_existing(folder + "/device");
    REQUIRE(device);
    for (bool asked = false; !asked; usleep(500)) {
      const simgpu::Session session(**device);
      const auto process = session.seen().find_process(pid, simgpu::own_pid_namespace());
      asked = process && session.seen().is_asked(*process);
    }
  }
  std::string folder;
};

uint64_t used_here(size_t device = 0) {
  return Machine::used_bytes_of(getenv("SIMGPU_DEVICE")).at(device);
}

// A pipe between two children: one says when it has got somewhere, the other waits for it.
struct Signal {
  Signal() { REQUIRE(pipe(ends) == 0); }
  ~Signal() {
    close(ends[0]);
    close(ends[1]);
  }
  void give(int value = 0) const { WANT(write(ends[1], &value, sizeof value) == sizeof value); }
  int take() const {
    int value = 0;
    WANT(read(ends[0], &value, sizeof value) == sizeof value);
    return value;
  }
  int ends[2];
};

pid_t child(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(0);
  }
  return pid;
}

bool ends_well(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Short in a failure's output, which shows the expression as it is written.
void must_end_well(pid_t pid) { CHECK(ends_well(pid)); }

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

CUcontext start(int device = 0) {
  CUcontext context = nullptr;
  DONE(cuInit(0));
  DONE(cuCtxCreate_v2(&context, 0, device));
  return context;
}

CUprocessState state_of(int pid) {
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  DONE(cuCheckpointProcessGetState(pid, &state));
  return state;
}

CUdeviceptr filled(size_t bytes, unsigned char value) {
  CUdeviceptr memory = 0;
  DONE(cuMemAlloc_v2(&memory, bytes));
  DONE(cuMemsetD8_v2(memory, value, bytes));
  DONE(cuCtxSynchronize());
  return memory;
}

bool holds(CUdeviceptr memory, size_t bytes, unsigned char value) {
  std::vector<unsigned char> host(bytes);
  DONE(cuMemcpyDtoH_v2(host.data(), memory, bytes));
  for (const unsigned char byte : host) {
    if (byte != value) return false;
  }
  return true;
}

CUresult lock(int pid, unsigned timeout_ms = 0) {
  CUcheckpointLockArgs arguments = {};
  arguments.timeoutMs = timeout_ms;
  return cuCheckpointProcessLock(pid, &arguments);
}
CUresult checkpoint(int pid) { return cuCheckpointProcessCheckpoint(pid, nullptr); }
CUresult restore(int pid) { return cuCheckpointProcessRestore(pid, nullptr); }
CUresult unlock(int pid) { return cuCheckpointProcessUnlock(pid, nullptr); }

CUresult restore_onto(int pid, std::vector<CUcheckpointGpuPair> pairs) {
  CUcheckpointRestoreArgs arguments = {};
  arguments.gpuPairs = pairs.data();
  arguments.gpuPairsCount = static_cast<unsigned>(pairs.size());
  return cuCheckpointProcessRestore(pid, &arguments);
}

}  // namespace

TEST_CASE(
    "a process suspends itself from a thread; its memory is out, its other threads stand still") {
  Machine machine;
  must_end_well(child([] {
    const CUcontext context = start();
    constexpr size_t kPlain = 5 * kUnit;
    const CUdeviceptr plain = filled(kPlain, 0x5a);
    const CUdeviceptr small = filled(700, 0x77);
    CUdeviceptr place = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DONE(cuMemAddressReserve(&place, 2 * kUnit, 0, 0, 0));
    DONE(cuMemCreate(&handle, kUnit, &properties, 0));
    DONE(cuMemMap(place, kUnit, 0, handle, 0));
    DONE(cuMemSetAccess(place, kUnit, &access, 1));
    DONE(cuMemsetD8_v2(place, 0x33, kUnit));
    DONE(cuCtxSynchronize());
    const uint64_t used = used_here();
    WANT(used >= kPlain + kUnit);

    std::atomic<bool> stop{false};
    std::atomic<uint64_t> calls{0};
    std::thread other([&] {
      WANT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
      while (!stop) {
        DONE(cuMemsetD8_v2(small, 0x77, 700));
        DONE(cuCtxSynchronize());
        ++calls;
      }
    });
    const int self = getpid();
    WANT(state_of(self) == CU_PROCESS_STATE_RUNNING);
    for (int round = 0; round < 5; ++round) {
      const uint64_t calls_then = calls;
      while (calls == calls_then) usleep(100);
      DONE(lock(self));
      WANT(state_of(self) == CU_PROCESS_STATE_LOCKED);
      WANT(used_here() == used);
      DONE(checkpoint(self));
      WANT(state_of(self) == CU_PROCESS_STATE_CHECKPOINTED);
      WANT(used_here() == 0);
      // Whoever looked now would see other bytes.
      for (const CUdeviceptr memory : {plain, place}) {
        WANT(*reinterpret_cast<volatile unsigned char*>(memory + 70'000) != 0x5a);
        WANT(*reinterpret_cast<volatile unsigned char*>(memory + 70'000) != 0x33);
      }
      const uint64_t calls_suspended = calls;
      usleep(5000);
      WANT(calls == calls_suspended);
      DONE(restore(self));
      WANT(state_of(self) == CU_PROCESS_STATE_LOCKED);
      WANT(used_here() == used);
      WANT(calls == calls_suspended);
      DONE(unlock(self));
      WANT(state_of(self) == CU_PROCESS_STATE_RUNNING);
      WANT(holds(plain, kPlain, 0x5a));
      WANT(holds(small, 700, 0x77));
      WANT(holds(place, kUnit, 0x33));
    }
    stop = true;
    other.join();
    // Reserved addresses survive too.
    DONE(cuMemMap(place + kUnit, kUnit, 0, handle, 0));
  }));
  CHECK(machine.comes_to_nothing());
}

TEST_CASE("what was submitted is done before a process is locked, or the lock gives up in time") {
  Machine machine;
  must_end_well(child([] {
    start();
    const int self = getpid();
    unsigned* gate = nullptr;
    DONE(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 64, 0));
    *gate = 0;
    static std::atomic<int> called{0};
    CUstream stream;
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DONE(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(gate), 1, 0));
    DONE(cuLaunchHostFunc(
        stream, [](void*) { ++called; }, nullptr));
    WANT(lock(self, 30) == CUDA_ERROR_NOT_READY);
    WANT(state_of(self) == CU_PROCESS_STATE_RUNNING);
    DONE(cuLaunchHostFunc(
        stream, [](void*) { ++called; }, nullptr));  // calls are let in again
    std::thread opener([&] {
      usleep(20'000);
      __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
    });
    DONE(lock(self));
    WANT(called == 2);
    opener.join();
    DONE(unlock(self));
    DONE(cuStreamSynchronize(stream));
  }));
}

TEST_CASE("transitions from a wrong state are refused and change nothing") {
  Machine machine;
  must_end_well(child([] {
    DONE(cuInit(0));
    const int self = getpid();
    const auto illegal = CUDA_ERROR_ILLEGAL_STATE;
    // Without a context too.
    WANT(state_of(self) == CU_PROCESS_STATE_RUNNING);
    CUcontext context = nullptr;
    DONE(cuCtxCreate_v2(&context, 0, 0));
    const CUdeviceptr memory = filled(100'000, 1);
    WANT(checkpoint(self) == illegal);
    WANT(restore(self) == illegal);
    WANT(unlock(self) == illegal);
    DONE(lock(self));
    WANT(lock(self) == illegal);
    WANT(restore(self) == illegal);
    DONE(checkpoint(self));
    WANT(lock(self) == illegal);
    WANT(checkpoint(self) == illegal);
    WANT(unlock(self) == illegal);
    WANT(state_of(self) == CU_PROCESS_STATE_CHECKPOINTED);
    DONE(restore(self));
    DONE(unlock(self));
    WANT(holds(memory, 100'000, 1));
    CUprocessState state;
    int thread = 0;
    WANT(cuCheckpointProcessGetState(1, &state) == CUDA_ERROR_INVALID_VALUE);
    WANT(cuCheckpointProcessGetState(self, nullptr) == CUDA_ERROR_INVALID_VALUE);
    WANT(lock(1) == CUDA_ERROR_INVALID_VALUE);
    DONE(cuCheckpointProcessGetRestoreThreadId(self, &thread));
    const std::string task = "/proc/self/task/" + std::to_string(thread) + "/comm";
    std::string name;
    std::getline(std::ifstream(task), name);
    WANT(name == "simgpu");
  }));
  must_end_well(child([] {
    CUprocessState state;
    WANT(cuCheckpointProcessGetState(getpid(), &state) == CUDA_ERROR_NOT_INITIALIZED);
    WANT(lock(getpid()) == CUDA_ERROR_NOT_INITIALIZED);
  }));
}

TEST_CASE("another process suspends a process and resumes it") {
  Machine machine;
  Signal ready, resumed;
  const pid_t target = child([&] {
    start();
    const CUdeviceptr memory = filled(3'000'000, 0x42);
    ready.give();
    resumed.take();
    WANT(holds(memory, 3'000'000, 0x42));
  });
  must_end_well(child([&] {
    DONE(cuInit(0));
    ready.take();
    WANT(state_of(target) == CU_PROCESS_STATE_RUNNING);
    DONE(lock(target, 10'000));
    DONE(checkpoint(target));
    WANT(state_of(target) == CU_PROCESS_STATE_CHECKPOINTED);
    WANT(used_here() == 0);
    DONE(restore(target));
    DONE(unlock(target));
    resumed.give();
  }));
  must_end_well(target);
}

TEST_CASE("what a checkpoint cannot carry is refused, and the process goes on") {
  Machine machine;
  must_end_well(child([] {
    start();
    const int self = getpid();
    CUdeviceptr managed = 0;
    const CUdeviceptr memory = filled(5000, 9);
    DONE(cuMemAllocManaged(&managed, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    DONE(lock(self));
    WANT(checkpoint(self) == CUDA_ERROR_NOT_SUPPORTED);
    WANT(state_of(self) == CU_PROCESS_STATE_LOCKED);
    DONE(unlock(self));
    WANT(holds(memory, 5000, 9));
    DONE(cuMemFree_v2(managed));
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    int descriptor = -1;
    DONE(cuMemCreate(&handle, kUnit, &properties, 0));
    DONE(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    DONE(lock(self));
    WANT(checkpoint(self) == CUDA_ERROR_NOT_SUPPORTED);
    DONE(unlock(self));
    DONE(cuMemRelease(handle));
    DONE(lock(self));
    DONE(checkpoint(self));
    DONE(restore(self));
    DONE(unlock(self));
    WANT(holds(memory, 5000, 9));
  }));
  Machine shared("1", "mps");
  must_end_well(child([] {
    start();
    WANT(lock(getpid()) == CUDA_ERROR_NOT_SUPPORTED);
    filled(5000, 9);
  }));
}

TEST_CASE("a restore without memory is the end of that process, and of no other") {
  Machine machine;
  Signal ready, suspended, taken, failed;
  const pid_t target = child([&] {
    start();
    filled(kMemoryBytes / 2, 1);
    ready.give();
    DONE(lock(getpid()));
    DONE(checkpoint(getpid()));
    suspended.give();
    taken.take();
    WANT(restore(getpid()) == CUDA_ERROR_OUT_OF_MEMORY);
    WANT(state_of(getpid()) == CU_PROCESS_STATE_FAILED);
    failed.give();
    taken.take();
    WANT(restore(getpid()) == CUDA_ERROR_OPERATING_SYSTEM);
    WANT(unlock(getpid()) == CUDA_ERROR_ILLEGAL_STATE);
    failed.give();
    pause();
  });
  must_end_well(child([&] {
    start();
    suspended.take();
    const CUdeviceptr hog = filled(kMemoryBytes / 4 * 3, 2);
    taken.give();
    failed.take();
    WANT(holds(hog, 1000, 2));
    DONE(cuMemFree_v2(hog));
    taken.give();
    failed.take();
    CUprocessState state;
    DONE(cuCheckpointProcessGetState(target, &state));
    WANT(state == CU_PROCESS_STATE_FAILED);
    const CUdeviceptr all = filled(kMemoryBytes / 8 * 7, 3);
    WANT(holds(all, 1000, 3));
  }));
  end(target);
}

TEST_CASE("a process moves among four devices at random with all its bytes") {
  Machine machine("4");
  const auto seed = static_cast<unsigned>(lull::tests::test_seed());
  CAPTURE(seed);
  must_end_well(child([seed] {
    start(1);
    const int self = getpid();
    std::mt19937 random(seed);
    std::vector<CUuuid> all(4);
    for (int i = 0; i < 4; ++i) DONE(cuDeviceGetUuid_v2(&all[static_cast<size_t>(i)], i));
    std::vector<unsigned char> host(700'000), back(host.size());
    CUdeviceptr memory = 0, place = 0;
    DONE(cuMemAlloc_v2(&memory, host.size()));
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 3};
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DONE(cuMemAddressReserve(&place, kUnit, 0, 0, 0));
    DONE(cuMemCreate(&handle, kUnit, &properties, 0));
    DONE(cuMemMap(place, kUnit, 0, handle, 0));
    DONE(cuMemSetAccess(place, kUnit, &access, 1));
    std::vector<size_t> at = {0, 1, 2, 3};  // device of each ordinal
    for (int round = 0; round < 25; ++round) {
      for (unsigned char& byte : host) byte = static_cast<unsigned char>(random());
      DONE(cuMemcpyHtoD_v2(memory, host.data(), host.size()));
      DONE(cuMemcpyHtoD_v2(place, host.data(), host.size()));
      DONE(cuCtxSynchronize());
      std::vector<size_t> to = {0, 1, 2, 3};
      std::shuffle(to.begin(), to.end(), random);
      std::vector<CUcheckpointGpuPair> pairs;
      for (size_t i = 0; i < 4; ++i) pairs.push_back({all[i], all[to[i]]});
      DONE(lock(self));
      DONE(checkpoint(self));
      DONE(restore_onto(self, pairs));
      for (size_t& device : at) device = to[device];
      WANT(used_here(at[1]) >= host.size());
      WANT(used_here(at[3]) == kUnit);
      WANT(used_here(at[0]) == 0);
      DONE(unlock(self));
      DONE(cuMemcpyDtoH_v2(back.data(), memory, back.size()));
      WANT(back == host);
      DONE(cuMemcpyDtoH_v2(back.data(), place, back.size()));
      WANT(back == host);
      for (int i = 0; i < 4; ++i) {
        CUuuid uuid;
        char bus[32];
        DONE(cuDeviceGetUuid_v2(&uuid, i));
        WANT(std::memcmp(&uuid, &all[at[static_cast<size_t>(i)]], sizeof uuid) == 0);
        // The bus id stays what it was at the start.
        DONE(cuDeviceGetPCIBusId(bus, sizeof bus, i));
        WANT(bus == "0000:0" + std::to_string(i + 1) + ":00.0");
      }
    }
    DONE(cuMemFree_v2(memory));
    DONE(cuMemUnmap(place, kUnit));
    DONE(cuMemRelease(handle));
    for (size_t i = 0; i < 4; ++i) WANT(used_here(i) == 0);
  }));
}

TEST_CASE("pairs have to name every device of the machine once, and the process has to see them") {
  Machine machine("3");
  must_end_well(child([] {
    start();
    const int self = getpid();
    const CUdeviceptr memory = filled(1000, 1);
    std::array<CUuuid, 3> id;
    for (int i = 0; i < 3; ++i) DONE(cuDeviceGetUuid_v2(&id[static_cast<size_t>(i)], i));
    DONE(lock(self));
    DONE(checkpoint(self));
    const auto wrong = CUDA_ERROR_INVALID_VALUE;
    WANT(restore_onto(self, {{id[0], id[1]}}) == wrong);
    WANT(restore_onto(self, {{id[0], id[1]}, {id[1], id[0]}}) == wrong);
    WANT(restore_onto(self, {{id[0], id[1]}, {id[1], id[1]}, {id[2], id[2]}}) == wrong);
    WANT(restore_onto(self, {{id[0], id[1]}, {id[0], id[0]}, {id[2], id[2]}}) == wrong);
    WANT(restore_onto(self, {{id[0], CUuuid{}}, {id[1], id[0]}, {id[2], id[2]}}) == wrong);
    WANT(state_of(self) == CU_PROCESS_STATE_CHECKPOINTED);
    DONE(restore_onto(self, {{id[2], id[2]}, {id[1], id[0]}, {id[0], id[1]}}));
    WANT(used_here(1) > 0);
    DONE(unlock(self));
    WANT(holds(memory, 1000, 1));
  }));
  must_end_well(child([] {
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    start();
    const int self = getpid();
    std::array<CUuuid, 2> id;
    for (int i = 0; i < 2; ++i) DONE(cuDeviceGetUuid_v2(&id[static_cast<size_t>(i)], i));
    DONE(lock(self));
    DONE(checkpoint(self));
    WANT(restore_onto(self, {{id[0], id[0]}, {id[1], id[1]}}) == CUDA_ERROR_INVALID_VALUE);
    DONE(restore(self));
    DONE(unlock(self));
  }));
}

TEST_CASE("a process that is killed in any state leaves nothing on the device") {
  Machine machine("2");
  for (const int steps : {0, 1, 2, 3, 4}) {
    CAPTURE(steps);
    Signal reached, never;
    const pid_t target = child([&] {
      start(1);
      filled(10 * kUnit, 1);
      CUmemGenericAllocationHandle handle = 0;
      CUmemAllocationProp properties = {};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      DONE(cuMemCreate(&handle, kUnit, &properties, 0));
      if (steps >= 1) DONE(lock(getpid()));
      if (steps >= 2) DONE(checkpoint(getpid()));
      if (steps >= 3) DONE(restore(getpid()));
      if (steps >= 4) DONE(unlock(getpid()));
      reached.give();
      never.take();
    });
    reached.take();
    end(target);
    must_end_well(child([&] {
      start(1);
      CUprocessState state;
      WANT(cuCheckpointProcessGetState(target, &state) == CUDA_ERROR_INVALID_VALUE);
      WANT(lock(target) == CUDA_ERROR_INVALID_VALUE);
      // The dead are removed by whoever comes by more than 5 ms later.
      size_t free_bytes = 0, total = 1;
      for (int i = 0; i < 2000 && free_bytes != total; ++i) {
        usleep(1000);
        DONE(cuMemGetInfo_v2(&free_bytes, &total));
      }
      WANT(free_bytes == total);
    }));
    CHECK(machine.comes_to_nothing());
  }
}

TEST_CASE("who asks may be killed, and who is asked: nobody else waits for ever") {
  Machine machine;
  Signal ready, go_on;
  const pid_t target = child([&] {
    start();
    const CUdeviceptr memory = filled(1000, 1);
    unsigned* gate = nullptr;
    DONE(cuMemHostAlloc(reinterpret_cast<void**>(&gate), 64, 0));
    *gate = 0;
    CUstream stream;
    DONE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DONE(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(gate), 1, 0));
    ready.give();
    go_on.take();
    __atomic_store_n(gate, 1u, __ATOMIC_RELEASE);
    WANT(holds(memory, 1000, 1));  // before it is locked, or once it is unlocked
    ready.give();
    go_on.take();
    *gate = 0;
    DONE(cuStreamWaitValue32_v2(stream, reinterpret_cast<CUdeviceptr>(gate), 1, 0));
    ready.give();
    go_on.take();
  });
  Signal asking;
  const pid_t requester = child([&] {
    DONE(cuInit(0));
    ready.take();
    asking.give();
    lock(target);  // waits for the held stream
    _exit(1);
  });
  asking.take();
  machine.wait_until_asked(target);
  end(requester);
  go_on.give();
  // The lock is carried out all the same; somebody else unlocks.
  must_end_well(child([&] {
    DONE(cuInit(0));
    while (state_of(target) != CU_PROCESS_STATE_LOCKED) usleep(1000);
    DONE(unlock(target));
    ready.take();
  }));
  // A target that dies with a request pending: the requester is told.
  go_on.give();
  ready.take();
  const pid_t second = child([&] {
    DONE(cuInit(0));
    asking.give();
    WANT(lock(target) == CUDA_ERROR_INVALID_VALUE);
  });
  asking.take();
  machine.wait_until_asked(target);
  end(target);
  must_end_well(second);
}

TEST_CASE("memory that another process imported outlives its exporter") {
  Machine machine;
  Signal exported, imported;
  const pid_t exporter = child([&] {
    start();
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr place = 0;
    DONE(cuMemAddressReserve(&place, kUnit, 0, 0, 0));
    DONE(cuMemCreate(&handle, kUnit, &properties, 0));
    DONE(cuMemMap(place, kUnit, 0, handle, 0));
    DONE(cuMemSetAccess(place, kUnit, &access, 1));
    DONE(cuMemsetD8_v2(place, 0x21, kUnit));
    DONE(cuCtxSynchronize());
    int descriptor = -1;
    DONE(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      0));
    exported.give(descriptor);
    imported.take();
    DONE(cuMemsetD8_v2(place, 0x22, 100));
    DONE(cuCtxSynchronize());
    exported.give();
    pause();
  });
  must_end_well(child([&] {
    start();
    const int theirs = exported.take();
    const std::string path = "/proc/" + std::to_string(exporter) + "/fd/" + std::to_string(theirs);
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    WANT(descriptor >= 0);
    CUmemGenericAllocationHandle handle = 0;
    DONE(cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(intptr_t{descriptor}),
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(descriptor);
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr place = 0;
    DONE(cuMemAddressReserve(&place, kUnit, 0, 0, 0));
    DONE(cuMemMap(place, kUnit, 0, handle, 0));
    DONE(cuMemSetAccess(place, kUnit, &access, 1));
    WANT(holds(place, kUnit, 0x21));
    imported.give();
    exported.take();
    WANT(holds(place, 100, 0x22));
    kill(exporter, SIGKILL);
    CUprocessState state;
    while (cuCheckpointProcessGetState(exporter, &state) == CUDA_SUCCESS) usleep(1000);
    // The dead are removed by whoever comes by more than 5 ms later.
    size_t free_bytes = 0, total = 0;
    usleep(10'000);
    DONE(cuMemGetInfo_v2(&free_bytes, &total));
    WANT(total - free_bytes == kUnit);
    WANT(holds(place, 100, 0x22));
    DONE(cuMemUnmap(place, kUnit));
    DONE(cuMemRelease(handle));
    DONE(cuMemGetInfo_v2(&free_bytes, &total));
    WANT(total == free_bytes);
  }));
  waitpid(exporter, nullptr, 0);
}

TEST_CASE("a checkpoint takes the time that was measured") {
  Machine machine;
  must_end_well(child([] {
    unsetenv("SIMGPU_PROFILE");
    setenv("SIMGPU_DEVICE", (std::string(getenv("SIMGPU_DEVICE")) + ".real").c_str(), 1);
    start();
    unlink(getenv("SIMGPU_DEVICE"));
    const int self = getpid();
    constexpr size_t kBytes = size_t{1} << 30;
    CUdeviceptr memory = 0;
    DONE(cuMemAlloc_v2(&memory, kBytes));  // nobody touches it: nothing to copy here
    const auto ms_of = [](auto&& call) {
      timespec begin, end;
      clock_gettime(CLOCK_MONOTONIC, &begin);
      DONE(call());
      clock_gettime(CLOCK_MONOTONIC, &end);
      return static_cast<double>(end.tv_sec - begin.tv_sec) * 1e3 +
             static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e6;
    };
    WANT(ms_of([&] { return lock(self); }) >= 0.39);
    WANT(ms_of([&] { return checkpoint(self); }) >= 856);
    WANT(ms_of([&] { return restore(self); }) >= 421);
    WANT(ms_of([&] { return unlock(self); }) >= 1.2);
  }));
}
