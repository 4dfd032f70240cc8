// plugin_host local|deepbind PLUGIN [LAUNCHES]: knows nothing of CUDA; opens PLUGIN RTLD_LOCAL, or
// RTLD_DEEPBIND, which no preloaded library sees into.
#include <dlfcn.h>

#include <string>

#include "program.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool deep = std::string(argv[1]) == "deepbind";
  void* plugin = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0));
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
