// A library that wraps a libc function the usual way: if dlsym(RTLD_NEXT) took the shim for its
// caller, it would find itself and never return.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

long gethostid(void) {
  long (*next)(void) = (long (*)(void))dlsym(RTLD_NEXT, "gethostid");
  if (next == gethostid) return -1;
  return next != NULL ? 77 : -2;
}
