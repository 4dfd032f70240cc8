/* What the C++ runtime and the headers of the building machine ask of its own glibc and an older
 * one does not have. Linked into every program and library of ours that carries its C++ runtime, so
 * that what is built on Debian 12 (glibc 2.36) runs from glibc 2.28 on (Debian 10, Red Hat 8): a
 * wheel's manylinux_2_28. All hidden: nobody else in the process sees these.
 *
 * Three kinds: the same function under its older version (glibc keeps it for ever), a few that
 * newer glibcs alone have, written here by system calls, and one word that says "there may be
 * threads". The start of programs: older_start.c. The preloaded library goes further back:
 * shim/older_glibc.h. What is left is checked against the files themselves:
 * tests/gpu/portability_test.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- older versions of the same -------------------------------------------------------------- */

#if defined(__x86_64__)
#define LULL_FIRST "GLIBC_2.2.5"
#define LULL_2_12 "GLIBC_2.12"
#define LULL_JUMP "jmp"
#define LULL_PLT "@PLT"
#elif defined(__aarch64__)
#define LULL_FIRST "GLIBC_2.17"
#define LULL_2_12 "GLIBC_2.17"
#define LULL_JUMP "b"
#define LULL_PLT ""
#else
#error "lull does not know the first glibc version of this processor"
#endif

/* A hidden function `name` that jumps to glibc's own of that version. The linker then binds every
 * use to it, those in libstdc++.a too, which no .symver of ours could reach. */
#define LULL_OLDER(name, version)                                                              \
  __asm__(".symver lull_older_" #name ", " #name "@" version                                   \
          "\n"                                                                                 \
          ".pushsection .text\n.globl " #name "\n.hidden " #name                               \
          "\n"                                                                                 \
          ".type " #name ", %function\n" #name ":\n\t" LULL_JUMP " lull_older_" #name LULL_PLT \
          "\n.size " #name ", . - " #name                                                      \
          "\n"                                                                                 \
          ".popsection\n")

/* Moved into libc.so.6 by 2.34, a few by 2.32. */
LULL_OLDER(__pthread_key_create, LULL_FIRST);
LULL_OLDER(dladdr, LULL_FIRST);
LULL_OLDER(dlclose, LULL_FIRST);
LULL_OLDER(dlerror, LULL_FIRST);
LULL_OLDER(dlopen, LULL_FIRST);
LULL_OLDER(dlsym, LULL_FIRST);
LULL_OLDER(pthread_create, LULL_FIRST);
LULL_OLDER(pthread_detach, LULL_FIRST);
LULL_OLDER(pthread_getspecific, LULL_FIRST);
LULL_OLDER(pthread_join, LULL_FIRST);
LULL_OLDER(pthread_key_create, LULL_FIRST);
LULL_OLDER(pthread_key_delete, LULL_FIRST);
LULL_OLDER(pthread_kill, LULL_FIRST);
LULL_OLDER(pthread_mutex_consistent, LULL_2_12);
LULL_OLDER(pthread_mutex_trylock, LULL_FIRST);
LULL_OLDER(pthread_mutexattr_destroy, LULL_FIRST);
LULL_OLDER(pthread_mutexattr_init, LULL_FIRST);
LULL_OLDER(pthread_mutexattr_setpshared, LULL_FIRST);
LULL_OLDER(pthread_mutexattr_setrobust, LULL_2_12);
LULL_OLDER(pthread_mutexattr_settype, LULL_FIRST);
LULL_OLDER(pthread_once, LULL_FIRST);
LULL_OLDER(pthread_rwlock_rdlock, LULL_FIRST);
LULL_OLDER(pthread_rwlock_unlock, LULL_FIRST);
LULL_OLDER(pthread_rwlock_wrlock, LULL_FIRST);
LULL_OLDER(pthread_setname_np, LULL_2_12);
LULL_OLDER(pthread_setspecific, LULL_FIRST);
LULL_OLDER(pthread_sigmask, LULL_FIRST);
/* Without the old error handling since 2.29; the values are the same. */
LULL_OLDER(exp, LULL_FIRST);
LULL_OLDER(exp2, LULL_FIRST);
LULL_OLDER(log, LULL_FIRST);
LULL_OLDER(log2, LULL_FIRST);
LULL_OLDER(pow, LULL_FIRST);

/* ---- what older ones do not have --------------------------------------------------------------
 */

/* 2.36. std::random_device takes its numbers from here. */
uint32_t arc4random(void);
uint32_t arc4random(void) {
  uint32_t value = 0;
  if (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) abort();
  return value;
}

/* 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* 2.33. Before, they were inline functions of the headers. */
int stat(const char* restrict path, struct stat* restrict to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0);
}
int lstat(const char* restrict path, struct stat* restrict to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat* to) { return (int)syscall(SYS_fstat, file, to); }
int fstatat(int folder, const char* restrict path, struct stat* restrict to, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, to, flags);
}
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout");
int stat64(const char* restrict path, struct stat64* restrict to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0);
}
int lstat64(const char* restrict path, struct stat64* restrict to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int fstat64(int file, struct stat64* to) { return (int)syscall(SYS_fstat, file, to); }

/* 2.30. std::condition_variable's waits by the steady clock. Waits by the real-time clock, a second
 * at a time, so that a clock that is set costs no more than that; between them it wakes spuriously,
 * as it may. */
int pthread_cond_clockwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           clockid_t clock, const struct timespec* restrict until) {
  const int64_t second_ns = 1000000000;
  struct timespec now;
  if (clock_gettime(clock, &now) != 0) return EINVAL;
  const int64_t left_ns = (until->tv_sec - now.tv_sec) * second_ns + (until->tv_nsec - now.tv_nsec);
  if (left_ns <= 0) return ETIMEDOUT;
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t end_ns = now.tv_nsec + (left_ns < second_ns ? left_ns : second_ns);
  const struct timespec end = {now.tv_sec + end_ns / second_ns, end_ns % second_ns};
  const int woken = pthread_cond_timedwait(condition, mutex, &end);
  if (woken != ETIMEDOUT) return woken;
  clock_gettime(clock, &now);
  const int due =
      now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
  return due ? ETIMEDOUT : 0;
}

/* 2.35. The unwinder's way from an address to its frames, for exceptions. */
static int find_object(struct dl_phdr_info* module, size_t size, void* wanted) {
  (void)size;
  struct dl_find_object* found = wanted;
  const uintptr_t pc = (uintptr_t)found->dlfo_map_start;
  uintptr_t first = UINTPTR_MAX, end = 0, frames = 0;
  int inside = 0;
  for (int n = 0; n < module->dlpi_phnum; ++n) {
    const ElfW(Phdr)* part = &module->dlpi_phdr[n];
    const uintptr_t at = module->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = at;
    if (part->p_type != PT_LOAD) continue;
    if (at < first) first = at;
    if (at + part->p_memsz > end) end = at + part->p_memsz;
    inside |= pc >= at && pc < at + part->p_memsz;
  }
  if (!inside || frames == 0) return 0;
  found->dlfo_map_start = (void*)first;
  found->dlfo_map_end = (void*)end;
  found->dlfo_eh_frame = (void*)frames;
  return 1;
}
int _dl_find_object(void* pc, struct dl_find_object* result) {
  *result = (struct dl_find_object){.dlfo_map_start = pc};
  return dl_iterate_phdr(find_object, result) == 1 ? 0 : -1;
}

/* ---- 2.32: false, whatever threads there are: shared pointers count atomically -----------------
 */
char __libc_single_threaded;
