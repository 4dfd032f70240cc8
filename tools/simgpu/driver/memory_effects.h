// What finished copies, memsets and values do to memory, as `device` (as the program counts) does
// it. Called when actions are applied (effects.h); no lock of the API layer is held.
// CUDA_ERROR_ILLEGAL_ADDRESS: the device may not touch all of it, and nothing was written.
#pragma once

#include <cuda.h>

#include <expected>

#include "tools/simgpu/driver/memory_map.h"
#include "tools/simgpu/driver/work.h"

namespace simgpu::driver {

// From the first byte of the first row to the last byte of the last; height and depth at least 1.
uint64_t extent_bytes(uint64_t width, uint64_t height, uint64_t pitch, uint64_t depth,
                      uint64_t slice);

// `staged`: the source's bytes where they were read at the call, else null.
CUresult copy_bytes(MemoryMap& memory, int device, const CopyShape& shape, const uint8_t* staged);
CUresult fill_bytes(MemoryMap& memory, int device, const CUDA_MEMSET_NODE_PARAMS& set);
// Pairs with whatever the program reads its own memory by; release, as the device's write is.
CUresult write_value(MemoryMap& memory, int device, const CUstreamBatchMemOpParams& operation);
std::expected<bool, CUresult> value_reached(MemoryMap& memory, int device,
                                            const CUstreamBatchMemOpParams& operation);

}  // namespace simgpu::driver
