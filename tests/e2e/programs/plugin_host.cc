// plugin_host local|deepbind PLUGIN [LAUNCHES]: knows nothing of CUDA; opens PLUGIN RTLD_LOCAL, or
// RTLD_DEEPBIND, which no preloaded library sees into.
#include <dlfcn.h>

#include <string>

#include "program.h"

// Apart and not inlined, so that each call's flags are a constant in the code, which is what
// `lull doctor` looks for.
__attribute__((noinline)) static void* open_deep(const char* path) {
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
}
__attribute__((noinline)) static void* open_local(const char* path) {
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool deep = std::string(argv[1]) == "deepbind";
  void* plugin = deep ? open_deep(argv[2]) : open_local(argv[2]);
  if (plugin == nullptr) {
    std::fprintf(stderr, "program: %s\n", dlerror());
    return 1;
  }
  const auto run =
      reinterpret_cast<void (*)(unsigned long long, Counts*)>(dlsym(plugin, "plugin_run"));
  REQUIRE_THAT(run != nullptr);
  Counts counts;
  run(argument(argc, argv, 3, 10), &counts);
  return finish(counts);
}
