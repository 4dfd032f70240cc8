#include "shim/devices.h"

#include <string.h>

#include "shim/connection.h"
#include "shim/device_memory.h"
#include "shim/residence/visible_devices.h"
#include "shim/system.h"
#include "shim/thread_state.h"

namespace lull::shim {

namespace {

constexpr CUdevice kMaxOrdinals = 64;

Lock devices_lock;
channel::lull_device known[channel::kMaxDevices];
std::atomic<uint32_t> known_count;
std::atomic<uint8_t> index_plus_one[kMaxOrdinals];
std::atomic<uint32_t> visible;  // 0: not asked yet

// False: the driver does not know the ordinal.
bool describe(CUdevice ordinal, channel::lull_device& device) {
  OwnCall own(thread_state);
  CUuuid uuid{};
  if (driver().cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS &&
      driver().cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS) {
    // A driver that cannot say: devices still differ by ordinal.
    memcpy(uuid.bytes, "lull-no-uuid", 12);
    uuid.bytes[15] = static_cast<char>(ordinal);
  }
  memcpy(device.uuid, uuid.bytes, sizeof device.uuid);
  size_t total = 0;
  if (driver().cuDeviceTotalMem_v2(&total, ordinal) != CUDA_SUCCESS) return false;
  device.total_bytes = total;
  if (driver().cuDeviceGetName(device.name, sizeof device.name, ordinal) != CUDA_SUCCESS) {
    device.name[0] = '\0';
  }
  return true;
}

}  // namespace

uint32_t device_in_use(CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= kMaxOrdinals) return kNoDevice;
  const uint8_t known_as = index_plus_one[ordinal].load(std::memory_order_acquire);
  return known_as == 0 ? kNoDevice : known_as - 1U;
}

uint32_t use_device(CUdevice ordinal) {
  const uint32_t before = device_in_use(ordinal);
  if (before != kNoDevice || ordinal < 0 || ordinal >= kMaxOrdinals) return before;
  channel::lull_device device{};
  device.ordinal = static_cast<uint32_t>(ordinal);
  if (!describe(ordinal, device)) return kNoDevice;
  uint32_t index;
  {
    Locked locked(devices_lock);
    const uint32_t meanwhile = device_in_use(ordinal);
    if (meanwhile != kNoDevice) return meanwhile;
    index = known_count.load(std::memory_order_relaxed);
    if (index == channel::kMaxDevices) return kNoDevice;
    known[index] = device;
    known_count.store(index + 1, std::memory_order_release);
    index_plus_one[ordinal].store(static_cast<uint8_t>(index + 1), std::memory_order_release);
    Attachment* link = attachment.load(std::memory_order_acquire);
    if (link != nullptr) channel::publish_device(link->region, index, device);
  }
  if (Attachment* link = enter(thread_state)) {
    announce_memory(thread_state, *link);
    ring_doorbell(*link);
  }
  return index;
}

uint32_t current_device() {
  CUdevice ordinal = 0;
  if (single_device()) {
    const uint32_t only = device_in_use(0);
    if (only != kNoDevice) return only;
  }
  CUresult result;
  {
    OwnCall own(thread_state);
    result = driver().cuCtxGetDevice(&ordinal);
  }
  return result == CUDA_SUCCESS ? use_device(ordinal) : kNoDevice;
}

bool single_device() {
  uint32_t count = visible.load(std::memory_order_relaxed);
  if (count == 0) {
    int asked = 0;
    OwnCall own(thread_state);
    if (driver().cuDeviceGetCount(&asked) != CUDA_SUCCESS || asked <= 0) return false;
    count = static_cast<uint32_t>(visible_count(asked));
    visible.store(count, std::memory_order_relaxed);
  }
  return count == 1;
}

uint32_t devices_in_use() { return known_count.load(std::memory_order_acquire); }

CUdevice device_ordinal(uint32_t index) { return static_cast<CUdevice>(known[index].ordinal); }

uint64_t device_total_bytes(uint32_t index) { return known[index].total_bytes; }

void device_uuid(uint32_t index, uint8_t (&uuid)[16]) {
  Locked locked(devices_lock);
  memcpy(uuid, known[index].uuid, sizeof uuid);
}

void devices_moved() {
  Attachment* link = attachment.load(std::memory_order_acquire);
  for (uint32_t index = 0; index < devices_in_use(); ++index) {
    channel::lull_device device{};
    device.ordinal = known[index].ordinal;
    if (!describe(device_ordinal(index), device)) continue;
    Locked locked(devices_lock);
    known[index] = device;
    if (link == nullptr) continue;
    channel::retract_device(link->region, index);
    channel::publish_device(link->region, index, device);
  }
}

void republish_devices(Attachment& link) {
  Locked locked(devices_lock);
  for (uint32_t index = 0; index < known_count.load(std::memory_order_relaxed); ++index) {
    channel::publish_device(link.region, index, known[index]);
    channel::publish_memory(link.region, index, memory_held_bytes(index), 0);
  }
}

void lock_devices() { devices_lock.lock(); }
void unlock_devices() { devices_lock.unlock(); }

}  // namespace lull::shim
