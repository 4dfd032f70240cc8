/* libkernel_witness.so: what the driver itself says it ran, to hold against what lull saw.
 *
 * The driver opens the file named by CUDA_INJECTION64_PATH at its start and calls
 * InitializeInjection. The witness then asks CUPTI (opened at run time: LULL_WITNESS_CUPTI, else by
 * soname) for a record of every kernel, copy and memset, and writes them to LULL_WITNESS_OUT.<pid>,
 * one line each:
 *
 *   cupti VERSION
 *   k START END DEVICE CONTEXT STREAM CORRELATION GRAPH_NODE GX GY GZ BX BY BZ SHARED NAME
 *   c START END DEVICE CONTEXT STREAM CORRELATION KIND BYTES           (copies)     tab separated,
 *   s START END DEVICE CONTEXT STREAM CORRELATION BYTES                (memsets)    times in ns
 *   problem TEXT
 *   end DROPPED                                                        at a proper exit only
 *
 * Never in the program's way: whatever is missing is written down, and the program goes on. CUPTI
 * calls back on threads of its own; one lock around the file. A forked child writes nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cupti_records.h"

#define EXPORT __attribute__((visibility("default")))

typedef void (*request_buffer)(uint8_t**, size_t*, size_t*);
typedef void (*take_buffer)(void*, uint32_t, uint8_t*, size_t, size_t);

static const size_t kBufferBytes = 4 << 20;
static FILE* out;
static pid_t owner;
static uint64_t dropped, senseless;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int (*get_version)(uint32_t*);
static int (*register_callbacks)(request_buffer, take_buffer);
static int (*register_clock)(uint64_t (*)(void));
static int (*enable)(int);
static int (*next_record)(uint8_t*, size_t, void**);
static int (*count_dropped)(void*, uint32_t, size_t*);
static int (*flush_all)(uint32_t);

EXPORT int InitializeInjection(void);
EXPORT void lull_witness_flush(void);

static void problem(const char* what, const char* more) {
  if (out) fprintf(out, "problem\t%s%s\n", what, more ? more : "");
  if (out) fflush(out);
}

static void request(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  void* memory = NULL;
  *most_records = 0; /* as many as fit */
  *bytes = posix_memalign(&memory, 64, kBufferBytes) == 0 ? kBufferBytes : 0;
  *buffer = memory;
}

static void write_kernel(const struct cupti_kernel* k) {
  if (k->grid[0] < 1 || k->block[0] < 1 || k->block[0] > 1024 || k->end_ns < k->start_ns ||
      k->name == NULL) {
    ++senseless;
    return;
  }
  fprintf(out, "k\t%llu\t%llu\t%u\t%u\t%u\t%u\t%llu\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n",
          (unsigned long long)k->start_ns, (unsigned long long)k->end_ns, k->device, k->context,
          k->stream, k->correlation, (unsigned long long)k->graph_node, k->grid[0], k->grid[1],
          k->grid[2], k->block[0], k->block[1], k->block[2], k->dynamic_shared_bytes, k->name);
}

static void write_transfer(const struct cupti_transfer* t) {
  if (t->kind == CUPTI_KIND_MEMCPY) {
    fprintf(out, "c\t%llu\t%llu\t%u\t%u\t%u\t%u\t%u\t%llu\n", (unsigned long long)t->start_ns,
            (unsigned long long)t->end_ns, t->device, t->context, t->stream, t->correlation,
            t->copy_kind, (unsigned long long)t->bytes);
  } else {
    fprintf(out, "s\t%llu\t%llu\t%u\t%u\t%u\t%u\t%llu\n", (unsigned long long)t->start_ns,
            (unsigned long long)t->end_ns, t->device, t->context, t->stream, t->correlation,
            (unsigned long long)t->bytes);
  }
}

static void take(void* context, uint32_t stream, uint8_t* buffer, size_t bytes, size_t valid) {
  (void)bytes;
  void* record = NULL;
  size_t lost = 0;
  pthread_mutex_lock(&lock);
  if (out && getpid() == owner) {
    while (valid > 0 && next_record(buffer, valid, &record) == CUPTI_SUCCESS_ && record != NULL) {
      const uint32_t kind = *(const uint32_t*)record;
      if (kind == CUPTI_KIND_CONCURRENT_KERNEL) write_kernel(record);
      if (kind == CUPTI_KIND_MEMCPY || kind == CUPTI_KIND_MEMSET) write_transfer(record);
    }
    if (count_dropped && count_dropped(context, stream, &lost) == CUPTI_SUCCESS_) dropped += lost;
  }
  pthread_mutex_unlock(&lock);
  free(buffer);
}

static uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Also for programs that end without running their exit handlers. */
void lull_witness_flush(void) {
  if (!out || !flush_all || getpid() != owner) return;
  if (flush_all(CUPTI_FLUSH_FORCED) != CUPTI_SUCCESS_)
    problem("cuptiActivityFlushAll failed", NULL);
  pthread_mutex_lock(&lock);
  fflush(out);
  pthread_mutex_unlock(&lock);
}

static void at_end(void) {
  if (!out || getpid() != owner) return;
  lull_witness_flush();
  pthread_mutex_lock(&lock);
  if (senseless)
    fprintf(out, "problem\t%llu records made no sense\n", (unsigned long long)senseless);
  fprintf(out, "end\t%llu\n", (unsigned long long)dropped);
  fclose(out);
  out = NULL;
  pthread_mutex_unlock(&lock);
}

static void* open_cupti(void) {
  static const char* const kNames[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  /* One that the program has already: a second copy would see nothing. */
  for (size_t i = 0; i < 3; ++i) {
    void* there = dlopen(kNames[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (there) return there;
  }
  const char* told = getenv("LULL_WITNESS_CUPTI");
  void* opened = told && *told ? dlopen(told, RTLD_NOW | RTLD_LOCAL) : NULL;
  for (size_t i = 0; i < 3 && !opened; ++i) opened = dlopen(kNames[i], RTLD_NOW | RTLD_LOCAL);
  return opened;
}

/* 1: understood. */
int InitializeInjection(void) {
  const char* path = getenv("LULL_WITNESS_OUT");
  if (out || !path || !*path) return 1;
  char name[4096];
  snprintf(name, sizeof name, "%s.%d", path, (int)getpid());
  out = fopen(name, "we");
  if (!out) return 1;
  owner = getpid();
  void* cupti = open_cupti();
  if (!cupti) {
    const char* why = dlerror();
    problem("no libcupti: ", why ? why : "");
    return 1;
  }
#define LOOK_UP(pointer, symbol) *(void**)&(pointer) = dlsym(cupti, symbol)
  LOOK_UP(get_version, "cuptiGetVersion");
  LOOK_UP(register_callbacks, "cuptiActivityRegisterCallbacks");
  LOOK_UP(register_clock, "cuptiActivityRegisterTimestampCallback");
  LOOK_UP(enable, "cuptiActivityEnable");
  LOOK_UP(next_record, "cuptiActivityGetNextRecord");
  LOOK_UP(count_dropped, "cuptiActivityGetNumDroppedRecords");
  LOOK_UP(flush_all, "cuptiActivityFlushAll");
#undef LOOK_UP
  uint32_t version = 0;
  if (!get_version || !register_callbacks || !enable || !next_record || !flush_all ||
      get_version(&version) != CUPTI_SUCCESS_) {
    problem("libcupti lacks a call that is needed", NULL);
    flush_all = NULL;
    return 1;
  }
  fprintf(out, "cupti\t%u\n", version);
  if (version < CUPTI_OLDEST_VERSION) {
    problem("libcupti is older than its records are known here", NULL);
    flush_all = NULL;
    return 1;
  }
  /* lull's own clock, where CUPTI lets us choose. */
  if (register_clock && register_clock(monotonic_ns) != CUPTI_SUCCESS_)
    problem("CUPTI keeps its own clock", NULL);
  if (register_callbacks(request, take) != CUPTI_SUCCESS_) {
    problem("cuptiActivityRegisterCallbacks failed", NULL);
    flush_all = NULL;
    return 1;
  }
  if (enable(CUPTI_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS_)
    problem("CUPTI records no kernels here", NULL);
  if (enable(CUPTI_KIND_MEMCPY) != CUPTI_SUCCESS_) problem("CUPTI records no copies here", NULL);
  if (enable(CUPTI_KIND_MEMSET) != CUPTI_SUCCESS_) problem("CUPTI records no memsets here", NULL);
  fflush(out);
  atexit(at_end);
  return 1;
}
