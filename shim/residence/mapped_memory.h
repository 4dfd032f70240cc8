// The driver's calls that make, map and undo physical memory, each whole or not at all. No tables,
// no lock of ours; any thread. Errors are the driver's.
#pragma once

#include <stdint.h>

#include "shim/driver.h"
#include "shim/residence/backings.h"

namespace lull::shim {

// Whether the device can map memory; asked once. False, too, where the driver does not say.
bool can_map(CUdevice ordinal);
// What all physical memory on the device is a multiple of.
uint64_t granularity_of(CUdevice ordinal);
// Whether memory of the arena can be handed to another process.
bool can_export(CUdevice ordinal);

struct MappedMemory {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  uint64_t bytes;
  CUmemAllocationProp properties;
};
// New memory of the device at new addresses; `access` by ordinal, kMaxOrdinals of them.
CUresult make_mapped(CUdevice ordinal, uint64_t bytes, const uint8_t* access, MappedMemory& made);
// A second address for what is there already; 0: the driver refused.
CUdeviceptr map_again(CUmemGenericAllocationHandle handle, uint64_t bytes, const uint8_t* access);
// The reverse of both; a handle of 0 is not released.
void drop_mapped(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle,
                 bool is_mapped);

// At addresses that are reserved. On an error nothing is mapped.
CUresult map_at(const Mapping& mapping, CUmemGenericAllocationHandle handle);
// Rights that are not CU_MEM_ACCESS_FLAGS_PROT_NONE.
CUresult give_access(CUdeviceptr address, uint64_t bytes, const uint8_t* access);
CUresult change_access(CUdeviceptr address, uint64_t bytes, CUdevice ordinal, uint8_t flags);

}  // namespace lull::shim
