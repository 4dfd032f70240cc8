// static_binary: linked statically, so nothing can be preloaded into it; `lull doctor` says so.
#include <stdio.h>

int main(void) {
  puts("launches=0 graph_kernels=0 copies=0 memsets=0 host_functions=0");
  return 0;
}
