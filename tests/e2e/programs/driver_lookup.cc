// driver_lookup WAY [LAUNCHES [SPIN_NS [PATH]]]: not linked with the driver; finds it by WAY:
//   soname    dlopen("libcuda.so.1") + dlsym          develop   dlopen("libcuda.so") + dlsym
//   path      dlopen(PATH) + dlsym                    default   dlsym(RTLD_DEFAULT), opened
//   RTLD_GLOBAL proc1     cuGetProcAddress, 4 arguments           proc2     cuGetProcAddress_v2, 5
//   arguments proc2_per_thread   the same, asking for the per-thread default stream
#include <cstring>
#include <string>

#include "driver_table.h"

static DriverTable table;
#define DRIVER(name) DRIVER_(name)  // expand cuda.h's suffix the same way the table did
#define DRIVER_(name) table_entry_##name()
#define ROW(name, version, per_thread_version) ROW_(name, name##_)
#define ROW_(name, member) \
  static auto table_entry_##name() { return table.member; }
DRIVER_TABLE(ROW)
#undef ROW
#undef ROW_

#include "driver_work.h"

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "soname";
  const char* library = way == "develop"            ? "libcuda.so"
                        : way == "path" && argc > 4 ? argv[4]
                                                    : "libcuda.so.1";
  void* handle = dlopen(library, RTLD_NOW | (way == "default" ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) {
    std::fprintf(stderr, "program: %s\n", dlerror());
    return 1;
  }
  if (way == "proc1") {
    using Ask = CUresult (*)(const char*, void**, int, cuuint64_t);
    const auto ask = reinterpret_cast<Ask>(dlsym(handle, "cuGetProcAddress"));
    REQUIRE_THAT(ask != nullptr);
    table.fill_by_version(ask, /*per_thread=*/false);
  } else if (way == "proc2" || way == "proc2_per_thread") {
    using Ask = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    const auto ask = reinterpret_cast<Ask>(dlsym(handle, "cuGetProcAddress_v2"));
    REQUIRE_THAT(ask != nullptr);
    table.fill_by_version(
        [&](const char* name, void** address, int version, cuuint64_t flags) {
          return ask(name, address, version, flags, nullptr);
        },
        way == "proc2_per_thread");
  } else if (way == "soname" || way == "develop" || way == "path") {
    table.fill_by_name(handle);
  } else if (way == "default") {
    table.fill_by_name(RTLD_DEFAULT);
  } else {
    std::fprintf(stderr, "program: unknown way %s\n", way.c_str());
    return 2;
  }
  DriverWork work;
  work.start();
  return finish(work.run(argument(argc, argv, 2, 10), argument(argc, argv, 3, 10000)));
}
