// A program that knows nothing of CUDA: it opens a plugin and asks it to work.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  char path[4096] = "./libgpu_plugin.so";
  const char* slash = strrchr(argv[0], '/');
  if (argc > 1) {
    snprintf(path, sizeof path, "%s", argv[1]);
  } else if (slash != NULL) {
    snprintf(path, sizeof path, "%.*s/libgpu_plugin.so", (int)(slash - argv[0]), argv[0]);
  }
  void* plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "plugin_host: %s\n", dlerror());
    return 1;
  }
  int (*work)(int) = (int (*)(int))dlsym(plugin, "gpu_plugin_work");
  if (work == NULL) {
    fprintf(stderr, "plugin_host: %s has no gpu_plugin_work\n", path);
    return 1;
  }
  return work(argc > 2 ? atoi(argv[2]) : 100);
}
