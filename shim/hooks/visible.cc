// What names devices: the GPUs that the program does not see are not there, and one that it has
// moved to says where it is.
#include "shim/residence/visible_devices.h"

#include <string.h>

#include "shim/submit.h"

using namespace lull::shim;

namespace {

template <typename Call>
CUresult of_device(CUdevice device, Call call) {
  ThreadState& thread = thread_state;
  if (thread.depth != 0) return call();
  return is_hidden(device) ? CUDA_ERROR_INVALID_DEVICE : forward(thread, call);
}

}  // namespace

LULL_ENTRY(cuDeviceGetCount)(int* count) {
  ThreadState& thread = thread_state;
  const CUresult result = forward(thread, [&] { return driver().cuDeviceGetCount(count); });
  if (result == CUDA_SUCCESS && count != nullptr && thread.depth == 0) {
    *count = visible_count(*count);
  }
  return result;
}
LULL_ENTRY(cuDeviceGet)(CUdevice* device, int ordinal) {
  return of_device(ordinal, [&] { return driver().cuDeviceGet(device, ordinal); });
}
LULL_ENTRY(cuDeviceGetName)(char* name, int length, CUdevice device) {
  return of_device(device, [&] { return driver().cuDeviceGetName(name, length, device); });
}
LULL_ENTRY(cuDeviceGetUuid)(CUuuid* uuid, CUdevice device) {
  return of_device(device, [&] { return driver().cuDeviceGetUuid(uuid, device); });
}
LULL_ENTRY(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice device) {
  return of_device(device, [&] { return driver().cuDeviceGetUuid_v2(uuid, device); });
}
LULL_ENTRY(cuDeviceCanAccessPeer)(int* can, CUdevice device, CUdevice peer) {
  return of_device(device > peer ? device : peer,
                   [&] { return driver().cuDeviceCanAccessPeer(can, device, peer); });
}
LULL_ENTRY(cuDeviceGetP2PAttribute)
(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  return of_device(device > peer ? device : peer, [&] {
    return driver().cuDeviceGetP2PAttribute(value, attribute, device, peer);
  });
}
LULL_ENTRY(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice device) {
  const CUresult result =
      of_device(device, [&] { return driver().cuDeviceGetAttribute(value, attribute, device); });
  if (result != CUDA_SUCCESS || value == nullptr || thread_state.depth != 0) return result;
  int PciPlace::*field = nullptr;
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) field = &PciPlace::domain;
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) field = &PciPlace::bus;
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) field = &PciPlace::device;
  PciPlace place;
  if (field != nullptr && pci_place(first_place_of(device), place)) *value = place.*field;
  return result;
}
LULL_ENTRY(cuDeviceGetPCIBusId)(char* text, int length, CUdevice device) {
  const CUresult result =
      of_device(device, [&] { return driver().cuDeviceGetPCIBusId(text, length, device); });
  PciPlace place;
  if (result != CUDA_SUCCESS || text == nullptr || length <= 0 || thread_state.depth != 0 ||
      !pci_place(first_place_of(device), place)) {
    return result;
  }
  const size_t room = static_cast<size_t>(length) - 1;
  const size_t size = strnlen(place.bus_id, sizeof place.bus_id);
  memcpy(text, place.bus_id, size < room ? size : room);
  text[size < room ? size : room] = '\0';
  return result;
}
// The driver knows a bus id by where it was at cuInit.
LULL_ENTRY(cuDeviceGetByPCIBusId)(CUdevice* device, const char* text) {
  ThreadState& thread = thread_state;
  CUdevice found = -1;
  if (thread.depth != 0 || device == nullptr) return driver().cuDeviceGetByPCIBusId(device, text);
  const CUresult result =
      forward(thread, [&] { return driver().cuDeviceGetByPCIBusId(&found, text); });
  if (result != CUDA_SUCCESS) return result;
  found = present_place_of(found);
  if (found < 0 || is_hidden(found)) return CUDA_ERROR_INVALID_DEVICE;
  *device = found;
  return CUDA_SUCCESS;
}
