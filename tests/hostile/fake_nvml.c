// Two GPUs; the second is divided and has one instance, in place 3 of 7, of half its memory. What
// is found is told through the calls that lulld makes, with NVML's own types.
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { kSuccess = 0, kInvalid = 2, kNotFound = 6 };

static int handles[3];  // two GPUs and the instance

EXPORT int nvmlInit_v2(void) { return kSuccess; }
EXPORT int nvmlShutdown(void) { return kSuccess; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kSuccess;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= 2) return kInvalid;
  *device = &handles[index];
  return kSuccess;
}
EXPORT int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  static const char* const uuids[3] = {"GPU-01010101-0101-0101-0101-010101010101",
                                       "GPU-02020202-0202-0202-0202-020202020202",
                                       "MIG-0a0b0c0d-0303-0303-0303-030303030303"};
  snprintf(text, length, "%s", uuids[(int*)device - handles]);
  return kSuccess;
}
EXPORT int nvmlDeviceGetName(void* device, char* text, unsigned length) {
  snprintf(text, length, "%s", device == &handles[2] ? "Fake GPU MIG 3g.40gb" : "Fake GPU");
  return kSuccess;
}
EXPORT int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = (device == &handles[2] ? 40ULL : 80ULL) << 30;
  memory[1] = memory[2] = 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  *count = device == &handles[1] ? 7 : 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** part) {
  if (device != &handles[1] || index != 3) return kNotFound;
  *part = &handles[2];
  return kSuccess;
}
