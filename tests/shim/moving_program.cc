// A program with memory on the simulated GPU, whose contents it knows: commands on stdin, one a
// line, one answer a line. Nothing in it knows of lull.
#include <cuda.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

// Programs call cuCtxAttach still.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

struct Allocation {
  CUdeviceptr address;
  size_t bytes;
  uint64_t seed;
};

std::vector<Allocation> allocations;
std::vector<CUcontext> contexts;
CUstream streams[3];
uint32_t* host_word;
CUdeviceptr reserved;
std::thread worker;
std::atomic<bool> stop;
std::atomic<int> worker_result;
std::atomic<long> rounds;
pthread_t held_thread;

uint64_t mix(uint64_t value) {
  value ^= value >> 31;
  value *= 0x9e3779b97f4a7c15ULL;
  return value ^ (value >> 29);
}

void fill(std::vector<uint64_t>& words, uint64_t seed) {
  for (size_t n = 0; n < words.size(); ++n) words[n] = mix(seed * 1'000'003 + n);
}

int write_all(const Allocation& allocation) {
  std::vector<uint64_t> words(allocation.bytes / 8);
  fill(words, allocation.seed);
  return cuMemcpyHtoD(allocation.address, words.data(), words.size() * 8);
}

// -1: the contents are wrong.
int check(const Allocation& allocation) {
  std::vector<uint64_t> expected(allocation.bytes / 8);
  std::vector<uint64_t> words(allocation.bytes / 8);
  fill(expected, allocation.seed);
  const int result = cuMemcpyDtoH(words.data(), allocation.address, words.size() * 8);
  if (result != 0) return result;
  return words == expected ? 0 : -1;
}

int allocate(size_t bytes, uint64_t seed) {
  Allocation allocation{0, bytes, seed};
  int result = cuMemAlloc(&allocation.address, bytes);
  if (result == 0) result = write_all(allocation);
  if (result == 0) allocations.push_back(allocation);
  return result;
}

int check_all() {
  for (const Allocation& allocation : allocations) {
    if (const int result = check(allocation)) return result;
  }
  return 0;
}

// Allocations, frees, copies of all kinds, memsets, streams and events, with every byte checked.
void work(CUcontext context) {
  int result = cuCtxSetCurrent(context);
  uint64_t seed = 77;
  for (; result == 0 && !stop; ++rounds) {
    seed = mix(seed);
    const size_t bytes = (size_t{1} << (12 + seed % 10)) + 8 * (seed >> 32 & 1023);
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    std::vector<uint64_t> words(bytes / 8);
    std::vector<uint64_t> back(bytes / 8);
    fill(words, seed);
    result = cuMemAlloc(&first, bytes);
    if (result == 0) result = cuMemAlloc(&second, bytes);
    if (result == 0) result = cuMemsetD8Async(second, 0x11, bytes, streams[0]);
    if (result == 0) result = cuMemcpyHtoDAsync(first, words.data(), bytes / 8 * 8, streams[0]);
    if (result == 0) result = cuMemcpyDtoDAsync(second, first, bytes / 8 * 8, streams[0]);
    if (result == 0) result = cuMemcpyDtoHAsync(back.data(), second, bytes / 8 * 8, streams[0]);
    if (result == 0) result = cuStreamSynchronize(streams[0]);
    if (result == 0 && back != words) result = -1;
    if (first != 0 && result == 0) result = cuMemFree(first);
    if (second != 0 && result == 0) result = cuMemFree(second);
  }
  worker_result = result;
}

struct Unmapped {
  CUmemGenericAllocationHandle handle;
  size_t bytes;
} unmapped;

// Maps it, calls `use` and unmaps it again.
template <typename Use>
int with_mapping(Use use) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr at = 0;
  int result = cuMemAddressReserve(&at, unmapped.bytes, 0, 0, 0);
  if (result == 0) result = cuMemMap(at, unmapped.bytes, 0, unmapped.handle, 0);
  if (result == 0) result = cuMemSetAccess(at, unmapped.bytes, &access, 1);
  if (result == 0) result = use(Allocation{at, unmapped.bytes, 4711});
  if (result == 0) result = cuMemUnmap(at, unmapped.bytes);
  if (result == 0) result = cuMemAddressFree(at, unmapped.bytes);
  return result;
}
int make_unmapped() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const int result = cuMemCreate(&unmapped.handle, unmapped.bytes, &properties, 0);
  return result == 0 ? with_mapping(write_all) : result;
}
int check_unmapped() { return with_mapping(check); }

std::string uuid_of(CUdevice device) {
  CUuuid uuid;
  if (cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS) return "none";
  std::string text;
  for (unsigned char byte : uuid.bytes) {
    char hex[3];
    snprintf(hex, sizeof hex, "%02x", byte);
    text += hex;
  }
  return text;
}

}  // namespace

int main() {
  char line[256];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin) != nullptr) {
    char word[32] = "";
    unsigned long long a = 0, b = 0, c = 0;
    sscanf(line, "%31s %llu %llu %llu", word, &a, &b, &c);
    const std::string command = word;
    if (command ==
        "init") {  // init DEVICES: a context on each of the first ones, the first current
      int result = cuInit(0);
      for (int n = 0; result == 0 && n < static_cast<int>(a == 0 ? 1 : a); ++n) {
        CUcontext context = nullptr;
        result = cuDevicePrimaryCtxRetain(&context, n);
        contexts.push_back(context);
      }
      if (result == 0) result = cuCtxSetCurrent(contexts[0]);
      for (CUstream& stream : streams) {
        if (result == 0) result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      }
      if (result == 0) result = cuMemHostAlloc(reinterpret_cast<void**>(&host_word), 4096, 0);
      printf("%d\n", result);
    } else if (command == "device") {  // device INDEX: its context becomes current
      printf("%d\n", cuCtxSetCurrent(contexts[a]));
    } else if (command == "alloc") {  // alloc BYTES COUNT
      int result = 0;
      for (unsigned n = 0; n < b && result == 0; ++n) result = allocate(a, allocations.size() + 1);
      printf("%d\n", result);
    } else if (command == "churn") {  // a thread frees and allocates BYTES again until "endchurn"
      stop = false;
      worker = std::thread([bytes = a] {
        cuCtxSetCurrent(contexts[0]);
        while (!stop) {
          CUdeviceptr address = 0;
          if (cuMemAlloc(&address, bytes) == CUDA_SUCCESS) cuMemFree(address);
        }
      });
      printf("0\n");
    } else if (command == "endchurn") {
      stop = true;
      worker.join();
      printf("0\n");
    } else if (command == "reserve") {  // memory that nobody writes
      printf("%d\n", cuMemAlloc(&reserved, a));
    } else if (command == "release") {
      printf("%d\n", cuMemFree(reserved));
    } else if (command == "free") {  // free EVERY: each so many-th one
      int result = 0;
      std::vector<Allocation> kept;
      for (size_t n = 0; n < allocations.size(); ++n) {
        if (n % a != 0) {
          kept.push_back(allocations[n]);
        } else if (result == 0) {
          result = cuMemFree(allocations[n].address);
        }
      }
      allocations = kept;
      printf("%d\n", result);
    } else if (command == "change") {  // each allocation gets other contents
      int result = 0;
      for (Allocation& allocation : allocations) {
        allocation.seed = mix(allocation.seed);
        if (result == 0) result = write_all(allocation);
      }
      printf("%d\n", result);
    } else if (command == "check") {
      printf("%d\n", check_all());
    } else if (command == "managed") {
      CUdeviceptr address = 0;
      printf("%d\n", cuMemAllocManaged(&address, a, CU_MEM_ATTACH_GLOBAL));
    } else if (command == "block") {  // a stream waits for the host
      *host_word = 0;
      printf("%d\n", cuStreamWaitValue32(streams[1], reinterpret_cast<CUdeviceptr>(host_word), 1,
                                         CU_STREAM_WAIT_VALUE_EQ));
    } else if (command == "unblock") {
      __atomic_store_n(host_word, 1, __ATOMIC_SEQ_CST);
      printf("%d\n", cuStreamSynchronize(streams[1]));
    } else if (command == "capture") {
      printf("%d\n", cuStreamBeginCapture(streams[2], CU_STREAM_CAPTURE_MODE_GLOBAL));
    } else if (command == "endcapture") {
      CUgraph graph = nullptr;
      printf("%d\n", cuStreamEndCapture(streams[2], &graph));
    } else if (command == "destroycapture") {  // the stream that captures is destroyed
      int result = cuStreamDestroy(streams[2]);
      if (result == 0) result = cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING);
      printf("%d\n", result);
    } else if (command == "spoilcapture") {  // invalidates it
      printf("%d\n", cuStreamQuery(streams[2]));
    } else if (command == "wrongend") {  // of a stream that does not capture
      CUgraph graph = nullptr;
      printf("%d\n", cuStreamEndCapture(streams[0], &graph));
    } else if (command == "joincapture") {  // streams[0] joins the capture, and is destroyed
      CUevent event = nullptr;
      int result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      if (result == 0) result = cuEventRecord(event, streams[2]);
      if (result == 0) result = cuStreamWaitEvent(streams[0], event, 0);
      if (result == 0) result = cuStreamDestroy(streams[0]);
      if (result == 0) result = cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING);
      printf("%d\n", result);
    } else if (command == "threadcapture") {  // another thread begins it, and ends
      int result = 0;
      std::thread([&] {
        result = cuCtxSetCurrent(contexts[0]);
        if (result == 0) result = cuStreamBeginCapture(streams[2], CU_STREAM_CAPTURE_MODE_RELAXED);
      }).join();
      printf("%d\n", result);
    } else if (command == "leftcapture") {  // a thread begins one of its own kind, and ends
      // 0: in a stream of the program; 1: in the thread's own default stream
      int result = 0;
      std::thread([&] {
        result = cuCtxSetCurrent(contexts[0]);
        const CUstream stream = a == 0 ? streams[2] : CU_STREAM_PER_THREAD;
        if (result == 0) result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
      }).join();
      printf("%d\n", result);
    } else if (command == "contextcapture") {  // in a context of its own, which is destroyed
      CUcontext context = nullptr;
      CUstream stream = nullptr;
      int result = cuCtxCreate(&context, nullptr, 0, 0);
      if (result == 0) result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      if (result == 0) result = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
      if (result == 0) result = cuCtxDestroy(context);
      if (result == 0) result = cuCtxSetCurrent(contexts[0]);
      printf("%d\n", result);
    } else if (command == "blockown") {  // the thread's own default stream waits for the host
      *host_word = 0;
      printf("%d\n",
             cuStreamWaitValue32(CU_STREAM_PER_THREAD, reinterpret_cast<CUdeviceptr>(host_word), 1,
                                 CU_STREAM_WAIT_VALUE_EQ));
    } else if (command == "unblockown") {
      __atomic_store_n(host_word, 1, __ATOMIC_SEQ_CST);
      printf("%d\n", cuStreamSynchronize(CU_STREAM_PER_THREAD));
    } else if (command == "perthread") {  // work on the thread's own default stream
      int result = cuMemsetD8Async(allocations[0].address, 0, 8, CU_STREAM_PER_THREAD);
      if (result == 0) result = cuStreamSynchronize(CU_STREAM_PER_THREAD);
      if (result == 0) result = write_all(allocations[0]);
      printf("%d\n", result);
    } else if (command == "destroyprimary") {  // which is an error, and changes nothing
      printf("%d\n", cuCtxDestroy(contexts[0]));
    } else if (command == "attach") {  // one more reference, and without it
      CUcontext same = nullptr;
      int result = cuCtxAttach(&same, 0);
      if (result == 0) result = cuCtxDetach(same);
      printf("%d\n", result);
    } else if (command == "context") {  // a context of its own, in which all goes on
      CUcontext context = nullptr;
      int result = cuCtxCreate(&context, nullptr, 0, 0);
      for (CUstream& stream : streams) {
        if (result == 0) result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      }
      if (result == 0) contexts[0] = context;
      printf("%d\n", result);
    } else if (command == "endcontext" || command == "reset") {  // it goes with all that is in it
      int result = command == "reset" ? cuDevicePrimaryCtxReset(0) : cuCtxDestroy(contexts[0]);
      allocations.clear();
      if (result == 0) result = cuDevicePrimaryCtxRetain(&contexts[0], 0);
      if (result == 0) result = cuCtxSetCurrent(contexts[0]);
      for (CUstream& stream : streams) {
        if (result == 0) result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      }
      if (result == 0) result = cuMemHostAlloc(reinterpret_cast<void**>(&host_word), 4096, 0);
      printf("%d\n", result);
    } else if (command == "unmapped") {  // memory by a handle, with contents and without a mapping
      unmapped.bytes = a;
      printf("%d\n", make_unmapped());
    } else if (command == "checkunmapped") {
      printf("%d\n", check_unmapped());
    } else if (command == "work") {
      stop = false;
      worker_result = 0;
      rounds = 0;
      worker = std::thread(work, contexts[0]);
      printf("0\n");
    } else if (command == "rounds") {
      printf("%ld\n", rounds.load());
    } else if (command == "endwork") {
      stop = true;
      worker.join();
      printf("%d\n", worker_result.load());
    } else if (command ==
               "hold") {  // a thread that writes to the first allocation, and is not waited for
      pthread_create(
          &held_thread, nullptr,
          [](void*) -> void* {
            if (cuCtxSetCurrent(contexts[0]) == CUDA_SUCCESS) {
              cuMemsetD8(allocations[0].address, 0, 0);
            }
            pthread_testcancel();
            return nullptr;
          },
          nullptr);
      printf("0\n");
    } else if (command == "cancel") {
      printf("%d\n", pthread_cancel(held_thread));
    } else if (command == "join") {
      void* result = nullptr;
      pthread_join(held_thread, &result);
      printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "done");
    } else if (command == "fork") {  // a child that calls the driver, and ends
      const pid_t child = fork();
      if (child == 0) {
        CUdeviceptr address = 0;
        _exit(cuMemAlloc(&address, 4096) == CUDA_SUCCESS ? 1 : 0);
      }
      int status = -1;
      waitpid(child, &status, 0);
      printf("%d\n", status);
    } else if (command == "count") {
      int count = 0;
      cuDeviceGetCount(&count);
      printf("%d\n", count);
    } else if (command == "get") {
      CUdevice device;
      printf("%d\n", cuDeviceGet(&device, static_cast<int>(a)));
    } else if (command == "uuid") {
      printf("%s\n", uuid_of(static_cast<CUdevice>(a)).c_str());
    } else if (command == "bus") {
      char text[32] = "none";
      cuDeviceGetPCIBusId(text, sizeof text, static_cast<CUdevice>(a));
      int number = -1;
      cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, static_cast<CUdevice>(a));
      CUdevice same = -1;
      cuDeviceGetByPCIBusId(&same, text);
      printf("%s %d %d\n", text, number, same);
    } else if (command == "bybus") {  // by the name in the line
      char text[32] = "";
      sscanf(line, "%*s %31s", text);
      CUdevice device;
      printf("%d\n", cuDeviceGetByPCIBusId(&device, text));
    } else if (command == "peer") {
      int can = 0;
      printf("%d\n", cuDeviceCanAccessPeer(&can, 0, static_cast<CUdevice>(a)));
    } else if (command == "free_memory") {
      size_t free_bytes = 0;
      size_t total = 0;
      cuMemGetInfo(&free_bytes, &total);
      printf("%zu\n", free_bytes);
    } else if (command == "atexit") {  // an exit handler that uses device memory
      printf("%d\n", atexit([] { fprintf(stderr, "at exit %d\n", check_all()); }));
    } else if (command == "_exit") {
      _exit(static_cast<int>(a));
    } else if (command == "exec") {
      execl("/bin/sh", "sh", "-c", "exit 9", nullptr);
    } else if (command == "exit") {
      printf("bye\n");
      exit(static_cast<int>(a));
    } else {
      printf("what?\n");
    }
  }
  return 0;
}
