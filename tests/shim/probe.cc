// The program under the shim: a plain driver-API program that does what its standard input says,
// one command a line, one answer a line.
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>

#include "tests/nvtx/nvtx_client.h"

extern "C" int recorded_calls(const char** out, int room);
extern "C" void refuse_next_launches(int count);
extern "C" void shape_graph_kernels(unsigned grid);
extern "C" void hang(bool on);
extern "C" void hold_up_next_launch(uint64_t ns);
extern "C" void be_idle(uint64_t call_ns);
extern "C" int events_alive();

namespace {

CUmodule module_;
CUstream stream_;
CUgraphExec graph_exec_;

std::vector<std::pair<std::string, CUfunction>> known;
CUfunction function(const char* name) {
  static std::mutex lock;
  const std::lock_guard locked(lock);
  for (auto& [key, value] : known) {
    if (key == name) return value;
  }
  CUfunction found = nullptr;
  cuModuleGetFunction(&found, module_, name);
  known.emplace_back(name, found);
  return found;
}

std::string owner_of(void* address) {
  Dl_info where{};
  if (address == nullptr) return "null";
  if (dladdr(address, &where) == 0) return "?";
  const char* file = strrchr(where.dli_fname, '/');
  return std::string(file != nullptr ? file + 1 : where.dli_fname) + ":" +
         (where.dli_sname != nullptr ? where.dli_sname : "?");
}

int launch(const char* name, unsigned grid, int count, CUstream stream) {
  int result = 0;
  for (int n = 0; n < count && result == 0; ++n) {
    result = cuLaunchKernel(function(name), grid, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr);
  }
  return result;
}

// ---- ranges by NVTX
std::string nvtx(const std::string& what, unsigned long long number) {
  using namespace nvtx_client;
  static void* data;
  static uint64_t started;
  static std::string text;
  if (what == "load") return std::to_string(load());
  if (what == "push") return std::to_string(push("outer"));
  if (what == "pushwide") return std::to_string(push(L"inn\u00e9r"));
  if (what == "pushnumber") return text = "step " + std::to_string(number), std::to_string(push(text.c_str()));
  if (what == "pop") return std::to_string(pop());
  if (what == "start") return started = start("long"), std::to_string(started != 0);
  if (what == "endelsewhere") return std::thread([] { end(started); }).join(), "0";
  if (what == "mark") return mark("here"), "0";
  if (what == "domain") return data = domain("data"), std::to_string(data != nullptr);
  if (what == "pushdomain") {
    Attributes attributes;
    attributes.message_type = 3;
    attributes.message = registered(data, "batch");
    return std::to_string(push(data, attributes));
  }
  if (what == "popdomain") return std::to_string(pop(data));
  if (what == "nothing") {  // what a program can get wrong
    const Attributes none;
    Attributes shorter;
    shorter.size = 8;
    push(static_cast<const char*>(nullptr)), push(none), push(shorter), push(&started, none);
    end(12345), mark(nullptr), domain(nullptr), registered(nullptr, nullptr);
    std::string levels = std::to_string(pop(&started));
    for (int n = 0; n < 3; ++n) levels += std::to_string(pop());
    return levels;
  }
  if (what == "many") {  // push and pop so often
    for (unsigned long long n = 0; n < number; ++n) push("k"), pop();
    return "0";
  }
  return "?";
}

// ---- paths to a launch. Not inlined, no tail calls: each call is a frame with an address of its own.
[[gnu::noinline]] int leaf() {
  const int result = launch("k", 1, 1, stream_);
  asm volatile("");
  return result;
}
// The same depth, the same frames below: the paths differ in one return address.
[[gnu::noinline]] int two_layers() {
  const int first = leaf();
  const int second = leaf();
  return first + second;
}
[[gnu::noinline]] int below(int depth) {
  volatile char frame[256];
  frame[0] = static_cast<char>(depth);
  const int result = depth == 0 ? leaf() : below(depth - 1);
  return result + (frame[0] == static_cast<char>(depth) ? 0 : 1);
}
[[gnu::noinline]] int with_frame_of(size_t bytes) {
  auto* room = static_cast<volatile char*>(alloca(bytes));
  room[0] = 1;
  const int result = leaf();
  return result + room[0] - 1;
}
int coroutine_result;
void coroutine() { coroutine_result = leaf(); }

}  // namespace

int main() {
  char line[256];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin) != nullptr) {
    char word[32] = "", name[64] = "";
    unsigned long long a = 0, b = 0, c = 0;
    sscanf(line, "%31s %63s %llu %llu %llu", word, name, &a, &b, &c);
    const std::string command = word;
    if (command == "init") {
      CUcontext context;
      int result = cuInit(0);
      if (result == 0) cuDevicePrimaryCtxRetain(&context, 0);
      if (result == 0) cuModuleLoadData(&module_, ".version 8.0\n.target sm_90\n");
      if (result == 0) cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
      printf("%d\n", result);
    } else if (command == "launch") {  // launch NAME GRID COUNT STREAM(0 legacy, 1 own)
      printf("%d\n", launch(name, static_cast<unsigned>(a), static_cast<int>(b), c != 0 ? stream_ : nullptr));
    } else if (command == "elsewhere") {  // elsewhere NAME GRID COUNT: on the own stream, by a thread of its own
      int result = 0;
      std::thread([&] {
        result = launch(name, static_cast<unsigned>(a), static_cast<int>(b), stream_);
      }).join();
      printf("%d\n", result);
    } else if (command == "holdup") {  // holdup NS: the next launch call sleeps, the device runs dry
      hold_up_next_launch(strtoull(name, nullptr, 10));
      printf("ok\n");
    } else if (command == "refuse") {
      refuse_next_launches(1);
      printf("ok\n");
    } else if (command == "load") {  // load TEXT: a module of that image
      known.clear();
      printf("%d\n", cuModuleLoadData(&module_, name));
    } else if (command == "unload") {
      known.clear();
      printf("%d\n", cuModuleUnload(module_));
    } else if (command == "graphgrid") {
      shape_graph_kernels(static_cast<unsigned>(atoi(name)));
      printf("ok\n");
    } else if (command == "layers") {  // layers COUNT
      int result = 0;
      for (int n = 0; n < atoi(name); ++n) result += two_layers();
      printf("%d\n", result);
    } else if (command == "below") {  // below DEPTH
      printf("%d\n", below(atoi(name)));
    } else if (command == "frames") {  // the same code with frames of many sizes
      int result = 0;
      for (size_t bytes = 16; bytes < 4096; bytes += 48) result += with_frame_of(bytes);
      printf("%d\n", result);
    } else if (command == "smallstack") {
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      pthread_attr_setstacksize(&attributes, 40 << 10);
      pthread_t thread;
      pthread_create(&thread, &attributes,
                     [](void*) { return reinterpret_cast<void*>(static_cast<intptr_t>(leaf())); },
                     nullptr);
      void* result = nullptr;
      pthread_join(thread, &result);
      printf("%d\n", static_cast<int>(reinterpret_cast<intptr_t>(result)));
    } else if (command == "coroutine") {
      static char stack[256 << 10];
      ucontext_t here, there;
      getcontext(&there);
      there.uc_stack.ss_sp = stack;
      there.uc_stack.ss_size = sizeof stack;
      there.uc_link = &here;
      makecontext(&there, coroutine, 0);
      swapcontext(&here, &there);
      printf("%d\n", coroutine_result);
    } else if (command == "sync") {
      printf("%d\n", cuStreamSynchronize(stream_));
    } else if (command == "hang") {  // hang ON(0, 1): no event happens
      hang(atoi(name) != 0);
      printf("ok\n");
    } else if (command == "idle") {  // idle CALL_NS: launches find an idle stream and take so long
      be_idle(strtoull(name, nullptr, 10));
      printf("ok\n");
    } else if (command == "release") {  // and how many events are alive then
      const int result = cuDevicePrimaryCtxRelease(0);
      printf("%d %d\n", result, events_alive());
    } else if (command == "calls") {
      const char* calls[4096];
      const int count = recorded_calls(calls, 4096);
      for (int n = 0; n < count; ++n) printf("%s ", calls[n]);
      printf(".\n");
    } else if (command == "dlsym") {  // dlsym NAME: by handle, RTLD_DEFAULT
      void* handle = dlopen("libcuda.so.1", RTLD_NOW);
      printf("%s %s\n", owner_of(dlsym(handle, name)).c_str(),
             owner_of(dlsym(RTLD_DEFAULT, name)).c_str());
    } else if (command == "next") {
      printf("%ld\n", gethostid());
    } else if (command == "gpa") {  // gpa NAME VERSION FLAGS
      void* address = nullptr;
      CUdriverProcAddressQueryResult status;
      const int result = cuGetProcAddress(strcmp(name, "-") == 0 ? "" : name, &address,
                                          static_cast<int>(a), b, &status);
      printf("%d %s\n", result, owner_of(address).c_str());
    } else if (command == "gpa1") {  // through the four-argument form, found by the five-argument one
      void* first = nullptr;
      CUdriverProcAddressQueryResult status;
      cuGetProcAddress("cuGetProcAddress", &first, 11030, 0, &status);
      void* address = nullptr;
      const int result = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t)>(first)(
          name, &address, static_cast<int>(a), b);
      printf("%d %s %s\n", result, owner_of(first).c_str(), owner_of(address).c_str());
    } else if (command == "begin") {
      printf("%d\n", cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    } else if (command == "end") {
      CUgraph graph;
      printf("%d\n", cuStreamEndCapture(stream_, &graph));
    } else if (command == "graph") {
      int result = cuGraphInstantiate(&graph_exec_, reinterpret_cast<CUgraph>(32), 0);
      if (result == 0) result = cuGraphLaunch(graph_exec_, stream_);
      printf("%d\n", result);
    } else if (command == "copy") {  // copy NAME BYTES
      const bool in = strcmp(name, "h2d") == 0;
      printf("%d\n", in ? cuMemcpyHtoDAsync(0x1000, line, a, stream_) : cuMemcpyDtoH(line, 0x1000, a));
    } else if (command == "alloc") {
      CUdeviceptr address = 0;
      const int result = cuMemAlloc(&address, strtoull(name, nullptr, 10));
      printf("%d %llu\n", result, address);
    } else if (command == "free") {
      printf("%d\n", cuMemFree(strtoull(name, nullptr, 10)));
    } else if (command == "meminfo") {
      size_t free_bytes = 0, total = 0, device_total = 0;
      cuMemGetInfo(&free_bytes, &total);
      cuDeviceTotalMem(&device_total, 0);
      printf("%zu %zu %zu\n", free_bytes, total, device_total);
    } else if (command == "fork") {
      fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        const int result = launch("k", 7, 3, stream_);
        _exit(result == 0 ? 42 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      printf("%d\n", WEXITSTATUS(status));
    } else if (command == "closefds") {
      for (int fd = 3; fd < 4096; ++fd) close(fd);
      printf("ok\n");
    } else if (command == "reusefds") {  // other things where the socket was
      for (int fd = 3; fd < 1000; ++fd) dup2(2, fd);
      printf("ok\n");
    } else if (command == "cancel") {  // a thread that launches is cancelled meanwhile
      pthread_t thread;
      pthread_create(&thread, nullptr, [](void*) -> void* {
        launch("cancelled", 1, 1, stream_);
        for (;;) pause();
      }, nullptr);
      pthread_cancel(thread);
      void* value = nullptr;
      pthread_join(thread, &value);
      printf("%d\n", value == PTHREAD_CANCELED ? 1 : 0);
    } else if (command == "threads") {  // threads COUNT: that many threads, each launches once
      std::vector<std::thread> threads;
      static pthread_barrier_t together;
      pthread_barrier_init(&together, nullptr, static_cast<unsigned>(atoi(name)));
      for (int n = 0; n < atoi(name); ++n) {
        threads.emplace_back([] {
          launch("k", 1, 1, stream_);
          pthread_barrier_wait(&together);
          launch("k", 1, 1, stream_);
        });
      }
      for (auto& thread : threads) thread.join();
      printf("ok\n");
    } else if (command == "nvtx") {  // nvtx WHAT [N]: the answer is what the call returns
      printf("%s\n", nvtx(name, a).c_str());
    } else if (command == "background") {
      std::thread([] { launch("held", 1, 1, stream_); }).detach();
      printf("ok\n");
    } else if (command == "quit") {
      exit(5);
    } else {
      printf("what\n");
    }
    fflush(stdout);
  }
  return 0;
}
