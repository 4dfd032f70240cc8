#include "shim/residence/visible_devices.h"

#include <string.h>

#include "shim/system.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

constexpr int kMostDevices = 64;

struct FirstDevice {
  CUuuid uuid;
  PciPlace place;
};

std::atomic<int> limit{-1};  // -1: not read yet, 0: none
FirstDevice first[kMostDevices];
std::atomic<int> first_count;  // release: `first` is written
Lock lock;

int read_limit() {
  int now = limit.load(std::memory_order_relaxed);
  if (now >= 0) return now;
  now = 0;
  const char* text = shim_enabled() ? environment("LULL_VISIBLE_DEVICES") : nullptr;
  for (; text != nullptr && *text >= '0' && *text <= '9' && now < kMostDevices; ++text) {
    now = now * 10 + (*text - '0');
  }
  limit.store(now, std::memory_order_relaxed);
  return now;
}

bool uuid_of(CUdevice ordinal, CUuuid& uuid) {
  OwnCall own(thread_state);
  return driver().cuDeviceGetUuid_v2(&uuid, ordinal) == CUDA_SUCCESS;
}

}  // namespace

int visible_count(int count) {
  const int most = read_limit();
  return most != 0 && count > most ? most : count;
}

void remember_devices() {
  if (read_limit() == 0 || first_count.load(std::memory_order_acquire) != 0) return;
  Locked locked(lock);
  if (first_count.load(std::memory_order_relaxed) != 0) return;
  OwnCall own(thread_state);
  int count = 0;
  if (driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  int known = 0;
  for (; known < count && known < kMostDevices; ++known) {
    FirstDevice& device = first[known];
    if (driver().cuDeviceGetUuid_v2(&device.uuid, known) != CUDA_SUCCESS ||
        driver().cuDeviceGetPCIBusId(device.place.bus_id, sizeof device.place.bus_id, known) !=
            CUDA_SUCCESS) {
      return;
    }
    driver().cuDeviceGetAttribute(&device.place.domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, known);
    driver().cuDeviceGetAttribute(&device.place.bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, known);
    driver().cuDeviceGetAttribute(&device.place.device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, known);
  }
  first_count.store(known, std::memory_order_release);
}

CUdevice first_place_of(CUdevice ordinal) {
  const int count = first_count.load(std::memory_order_acquire);
  CUuuid uuid;
  if (ordinal < 0 || ordinal >= count || !uuid_of(ordinal, uuid)) return ordinal;
  for (CUdevice place = 0; place < count; ++place) {
    if (memcmp(uuid.bytes, first[place].uuid.bytes, sizeof uuid.bytes) == 0) return place;
  }
  return ordinal;
}

CUdevice present_place_of(CUdevice first_place) {
  const int count = first_count.load(std::memory_order_acquire);
  if (first_place < 0 || first_place >= count) return first_place;
  for (CUdevice ordinal = 0; ordinal < count; ++ordinal) {
    if (first_place_of(ordinal) == first_place) return ordinal;
  }
  return -1;
}

bool pci_place(CUdevice first_place, PciPlace& place) {
  if (first_place < 0 || first_place >= first_count.load(std::memory_order_acquire)) return false;
  place = first[first_place].place;
  return true;
}

}  // namespace lull::shim
