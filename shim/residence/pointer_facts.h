// What a program is told of an address that the arena knows: what the driver would say had it made
// the allocation itself. Any thread, no lock of the caller's.
#pragma once

#include "shim/driver.h"

namespace lull::shim {

enum class Known {
  kNot,         // the driver's answer is right
  kAllocation,  // of the arena
  kNowhere,     // inside a slab, in no allocation: as an address that nobody knows
  kMapping,     // the program's own
};
Known what_is(CUdeviceptr address);

// Of an allocation.
bool allocation_range(CUdeviceptr address, CUdeviceptr& begin, uint64_t& bytes);
// Writes over what the driver said about the address; false: it was right, or said nothing.
bool correct_pointer_attribute(CUpointer_attribute attribute, CUdeviceptr address, void* value);

}  // namespace lull::shim
