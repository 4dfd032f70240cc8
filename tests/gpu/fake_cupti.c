/* A stand-in for libcupti: when flushed it hands out two kernels, a copy and a memset, with every
 * field at the byte where CUPTI's public headers of CUDA 12 and 13 have it (numbers written down
 * apart from the witness's own declarations, so that a slip in either shows). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*request_buffer)(uint8_t**, size_t*, size_t*);
typedef void (*take_buffer)(void*, uint32_t, uint8_t*, size_t, size_t);
static request_buffer request;
static take_buffer take;
static int kinds;
static int handed_out;

static void put32(uint8_t* record, size_t at, uint32_t value) { memcpy(record + at, &value, 4); }
static void put64(uint8_t* record, size_t at, uint64_t value) { memcpy(record + at, &value, 8); }

enum { kKernelBytes = 216, kCopyBytes = 96, kMemsetBytes = 80 };

static void kernel(uint8_t* r, uint64_t start, uint64_t end, uint64_t graph_node,
                   const char* name) {
  put32(r, 0, 10);
  put64(r, 16, start);
  put64(r, 24, end);
  put32(r, 40, 0);
  put32(r, 44, 1);
  put32(r, 48, 7);
  put32(r, 52, 3);
  put32(r, 56, 2);
  put32(r, 60, 1);
  put32(r, 64, 128);
  put32(r, 68, 1);
  put32(r, 72, 1);
  put32(r, 80, 4096);
  put32(r, 92, 55);
  memcpy(r + 104, &name, sizeof name);
  put64(r, 144, graph_node);
}

int cuptiGetVersion(uint32_t* version) {
  *version = 130001;
  return 0;
}
int cuptiActivityRegisterCallbacks(request_buffer r, take_buffer t) {
  request = r;
  take = t;
  return 0;
}
int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) { return clock() == 0; }
int cuptiActivityEnable(int kind) {
  kinds |= 1 << kind;
  return 0;
}
int cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream, size_t* dropped) {
  (void)context, (void)stream;
  *dropped = 2;
  return 0;
}
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, void** record) {
  const size_t sizes[] = {kKernelBytes, kKernelBytes, kKernelBytes, kCopyBytes, kMemsetBytes};
  size_t at = 0, i = 0;
  if (*record) {
    while (buffer + at != *record) at += sizes[i++];
    at += sizes[i];
  }
  if (at >= valid) return 12;
  *record = buffer + at;
  return 0;
}
int cuptiActivityFlushAll(uint32_t flag) {
  (void)flag;
  if (!request || handed_out || kinds != (1 << 10 | 1 << 1 | 1 << 2)) return 0;
  handed_out = 1;
  uint8_t* buffer = NULL;
  size_t bytes = 0, most = 1;
  request(&buffer, &bytes, &most);
  if (!buffer || most != 0) return 1;
  memset(buffer, 0, 1024);
  kernel(buffer, 1000, 3000, 0, "_Z4workPf");
  kernel(buffer + kKernelBytes, 4000, 4500, 77, "in_a_graph");
  kernel(buffer + 2 * kKernelBytes, 9000, 8000, 0, "ends before it begins");
  uint8_t* copy = buffer + 3 * kKernelBytes;
  put32(copy, 0, 1);
  copy[4] = 2;
  put64(copy, 8, 65536);
  put64(copy, 16, 3500);
  put64(copy, 24, 3600);
  put32(copy, 40, 7);
  uint8_t* set = copy + kCopyBytes;
  put32(set, 0, 2);
  put64(set, 8, 512);
  put64(set, 16, 5000);
  put64(set, 24, 5100);
  put32(set, 40, 7);
  take(NULL, 0, buffer, bytes, 3 * kKernelBytes + kCopyBytes + kMemsetBytes);
  return 0;
}
