#include "shim/residence/gpu_lock.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "shim/connection.h"
#include "shim/devices.h"
#include "shim/system.h"

namespace lull::shim {

void write_uuid(const uint8_t (&uuid)[16], char (&text)[kUuidText]) {
  char* at = text;
  memcpy(at, "GPU-", 4);
  at += 4;
  for (int n = 0; n < 16; ++n) {
    if (n == 4 || n == 6 || n == 8 || n == 10) *at++ = '-';
    *at++ = "0123456789abcdef"[uuid[n] >> 4];
    *at++ = "0123456789abcdef"[uuid[n] & 15];
  }
  *at = '\0';
}

bool GpuLocks::take() {
  KeepErrno keep;
  const char* socket = coordinator_path();
  const char* slash = socket != nullptr ? strrchr(socket, '/') : nullptr;
  if (slash == nullptr) return true;
  uint8_t uuids[channel::kMaxDevices][16];
  const uint32_t devices = devices_in_use();
  for (uint32_t n = 0; n < devices; ++n) {
    uint8_t uuid[16];
    device_uuid(n, uuid);
    uint32_t at = n;
    for (; at > 0 && memcmp(uuids[at - 1], uuid, 16) > 0; --at)
      memcpy(uuids[at], uuids[at - 1], 16);
    memcpy(uuids[at], uuid, 16);
  }
  for (uint32_t n = 0; n < devices; ++n) {
    char text[kUuidText];
    write_uuid(uuids[n], text);
    char path[256];
    const int length = snprintf(path, sizeof path, "%.*s/return-%s.lock",
                                static_cast<int>(slash - socket), socket, text);
    if (length <= 0 || length >= static_cast<int>(sizeof path)) continue;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      return false;
    }
    fds_[count_++] = fd;
  }
  return true;
}

GpuLocks::~GpuLocks() {
  while (count_ > 0) close(fds_[--count_]);
}

namespace {

// NVML's, as its documentation gives them (NVML API reference, "Device Queries").
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using NvmlInit = int (*)();
using NvmlByUuid = int (*)(const char*, void**);
using NvmlMemoryInfo = int (*)(void*, NvmlMemory*);

}  // namespace

uint64_t free_on_gpu(const uint8_t (&uuid)[16]) {
  static NvmlByUuid by_uuid;
  static NvmlMemoryInfo memory_info;
  static bool looked;
  KeepErrno keep;
  if (!looked) {
    looked = true;
    void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml == nullptr) return UINT64_MAX;
    const DlsymFunction lookup = lull_real_dlsym();
    const auto init = reinterpret_cast<NvmlInit>(lookup(nvml, "nvmlInit_v2"));
    if (init == nullptr || init() != 0) return UINT64_MAX;
    by_uuid = reinterpret_cast<NvmlByUuid>(lookup(nvml, "nvmlDeviceGetHandleByUUID"));
    memory_info = reinterpret_cast<NvmlMemoryInfo>(lookup(nvml, "nvmlDeviceGetMemoryInfo"));
  }
  if (by_uuid == nullptr || memory_info == nullptr) return UINT64_MAX;
  char text[kUuidText];
  write_uuid(uuid, text);
  void* device = nullptr;
  NvmlMemory memory{};
  if (by_uuid(text, &device) != 0 || memory_info(device, &memory) != 0) return UINT64_MAX;
  return memory.free;
}

}  // namespace lull::shim
