// The devices this process uses, in order of first use: index into lull_client.device, to the
// program's own ordinal. A device is published once a context is made on it, or at the first
// launch or allocation there; the daemon knows it by UUID. Any thread.
#pragma once

#include <stdint.h>

#include <atomic>

#include "coordinator/channel/layout.h"
#include "shim/driver.h"

namespace lull::shim {

struct Attachment;
struct ThreadState;

inline constexpr uint32_t kNoDevice = UINT32_MAX;

// Index of that ordinal; publishes it when it is new. kNoDevice: unknown to the driver, or the
// table is full.
uint32_t use_device(CUdevice ordinal);
// Index of that ordinal if it is in use; kNoDevice.
uint32_t device_in_use(CUdevice ordinal);
// The device of the calling thread's current context, as `use_device`; kNoDevice without one.
uint32_t current_device();
// True when the process can see one device only: then every stream is on it.
bool single_device();

uint32_t devices_in_use();
// Of a device in use.
CUdevice device_ordinal(uint32_t index);
uint64_t device_total_bytes(uint32_t index);
void device_uuid(uint32_t index, uint8_t (&uuid)[16]);
// The driver has put the process onto other GPUs: asks again who they are, and says so. Service thread.
void devices_moved();
void republish_devices(Attachment& link);

void lock_devices();
void unlock_devices();

}  // namespace lull::shim
