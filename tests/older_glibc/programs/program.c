/* A driver-API program that runs on every glibc since 2.17, as one built long ago would: started
 * without the building machine's start files, with the first versions of what has moved since.
 * Launches, says how often, and stays until its standard input ends. */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#if defined(__x86_64__)
#define BASE "GLIBC_2.2.5"
__asm__(".globl _start\n_start: xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#elif defined(__aarch64__)
#define BASE "GLIBC_2.17"
__asm__(".globl _start\n_start: mov x29, #0\n mov x0, sp\n b begin\n");
#endif
__asm__(".symver __libc_start_main, __libc_start_main@" BASE);
__asm__(".symver pthread_create, pthread_create@" BASE);
__asm__(".symver pthread_join, pthread_join@" BASE);
__asm__(".symver dlopen, dlopen@" BASE);
__asm__(".symver dlsym, dlsym@" BASE);

enum { kLaunches = 10, kThreads = 4 };

typedef CUresult (*Launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, CUstream, void**, void**);
static Launch launch;
static CUfunction function;

static void* work(void* result) {
  for (int n = 0; n < kLaunches; ++n) {
    if (launch(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0) != CUDA_SUCCESS) return 0;
  }
  *(int*)result = kLaunches;
  return 0;
}

static int program(int argc, char** argv, char** environment) {
  (void)argc, (void)argv, (void)environment;
  CUcontext context;
  CUmodule module;
  int done[kThreads] = {0};
#if defined(THREADS)
  /* As a runtime library finds its driver. */
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL) return 2;
  __typeof__(&cuInit) init = (__typeof__(&cuInit))dlsym(driver, "cuInit");
  __typeof__(&cuDevicePrimaryCtxRetain) retain =
      (__typeof__(&cuDevicePrimaryCtxRetain))dlsym(driver, "cuDevicePrimaryCtxRetain");
  __typeof__(&cuModuleLoadData) load =
      (__typeof__(&cuModuleLoadData))dlsym(driver, "cuModuleLoadData");
  __typeof__(&cuModuleGetFunction) get =
      (__typeof__(&cuModuleGetFunction))dlsym(driver, "cuModuleGetFunction");
  launch = (Launch)dlsym(driver, "cuLaunchKernel");
  if (init(0) != 0 || retain(&context, 0) != 0 || load(&module, "image") != 0 ||
      get(&function, module, "kernel") != 0) {
    return 3;
  }
  pthread_t threads[kThreads];
  for (int n = 0; n < kThreads; ++n) {
    if (pthread_create(&threads[n], NULL, work, &done[n]) != 0) return 4;
  }
  for (int n = 0; n < kThreads; ++n) pthread_join(threads[n], NULL);
#else
  launch = cuLaunchKernel;
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
      cuModuleLoadData(&module, "image") != 0 ||
      cuModuleGetFunction(&function, module, "kernel") != 0) {
    return 3;
  }
  work(&done[0]);
#endif
  int sum = 0;
  for (int n = 0; n < kThreads; ++n) sum += done[n];
  printf("launches=%d\n", sum);
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return 0;
}

int __libc_start_main(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void),
                      void (*)(void), void*);
__attribute__((used, noreturn)) void begin(long* stack) {
  __libc_start_main(program, (int)stack[0], (char**)(stack + 1), 0, 0, 0, stack);
  __builtin_unreachable();
}
