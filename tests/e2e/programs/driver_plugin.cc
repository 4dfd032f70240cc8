// libdriver_plugin.so: reaches the driver in three ways, LAUNCHES each: through its PLT, by dlsym
// on a handle, by dlsym(RTLD_DEFAULT).
#define DRIVER(name) name
#include "driver_work.h"

#include <dlfcn.h>

extern "C" __attribute__((visibility("default"))) void plugin_run(unsigned long long count,
                                                                  Counts* counts) {
  DriverWork work;
  work.start();
  counts->add(work.run(count, 10000));
  unsigned long long spin_ns = 10000;
  void* arguments[] = {&spin_ns};
  void* handle = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE_THAT(handle != nullptr);
  for (void* where : {handle, static_cast<void*>(RTLD_DEFAULT)}) {
    const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(where, "cuLaunchKernel"));
    REQUIRE_THAT(launch != nullptr);
    for (unsigned long long i = 0; i < count; ++i) {
      CHECK(launch(work.spin, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
    }
    counts->launches += count;
  }
  CHECK(cuCtxSynchronize());
}
