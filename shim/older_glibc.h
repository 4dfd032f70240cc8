// Binds what glibc has moved into libc.so.6 since 2.31 (the dlopen family, thread keys and attributes)
// to the version that every glibc knows, in libc.so.6, libdl.so.2 or libpthread.so.0. A preloaded
// library that asks for a version which the image does not have ends every program there.
//
// Included into every source of the shim by its CMakeLists.txt. `stat` and `fstat` have no older
// version of that name: coordinator/channel/file_status.h.
#pragma once

#if defined(__x86_64__)
#define LULL_BASE_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define LULL_BASE_VERSION "GLIBC_2.17"
#else
#error "lull does not know the first glibc version of this processor"
#endif

#define LULL_BASE_SYMBOL(name) asm(".symver " #name ", " #name "@" LULL_BASE_VERSION)
LULL_BASE_SYMBOL(dladdr);
LULL_BASE_SYMBOL(dlclose);
LULL_BASE_SYMBOL(dlopen);
LULL_BASE_SYMBOL(dlvsym);
LULL_BASE_SYMBOL(pthread_attr_getstack);
LULL_BASE_SYMBOL(pthread_attr_setdetachstate);
LULL_BASE_SYMBOL(pthread_create);
LULL_BASE_SYMBOL(pthread_detach);
LULL_BASE_SYMBOL(pthread_getattr_np);
LULL_BASE_SYMBOL(pthread_key_create);
LULL_BASE_SYMBOL(pthread_setspecific);
LULL_BASE_SYMBOL(pthread_sigmask);
#undef LULL_BASE_SYMBOL
#undef LULL_BASE_VERSION
