/* Where a program begins, for glibc older than 2.34. The start files of a newer one hand no function to
 * __libc_start_main, which then runs the constructors itself; an older one calls what it is handed
 * and nothing else. A newer one does so, too, when it is called by its older version, as here. Linked
 * into programs, next to older_glibc.c. */

#if defined(__x86_64__)
#define LULL_FIRST "GLIBC_2.2.5"
#else
#define LULL_FIRST "GLIBC_2.17"
#endif

typedef int main_function(int, char**, char**);
typedef void init_function(int, char**, char**);

int lull_older_start(main_function* main, int count, char** words, init_function* init,
                     void (*fini)(void), void (*linker_fini)(void), void* stack_end);
__asm__(".symver lull_older_start, __libc_start_main@" LULL_FIRST);

extern void _init(void);
extern init_function* __init_array_start[] __attribute__((visibility("hidden")));
extern init_function* __init_array_end[] __attribute__((visibility("hidden")));

static void run_constructors(int count, char** words, char** environment) {
  _init();
  for (init_function** at = __init_array_start; at != __init_array_end; ++at) {
    (*at)(count, words, environment);
  }
}

int __libc_start_main(main_function* main, int count, char** words, init_function* init,
                      void (*fini)(void), void (*linker_fini)(void), void* stack_end);
int __libc_start_main(main_function* main, int count, char** words, init_function* init,
                      void (*fini)(void), void (*linker_fini)(void), void* stack_end) {
  return lull_older_start(main, count, words, init != 0 ? init : run_constructors, fini, linker_fini,
                          stack_end);
}
