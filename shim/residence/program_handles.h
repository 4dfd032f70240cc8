// The program's own virtual memory management: it holds tokens (backings.h), the driver's handles
// stand behind them and may change. Every call that takes or returns a handle goes through here;
// others (handles of multicast objects, of host memory) are not ours and pass unchanged. Any
// thread; in processes that can be moved.
//
// The driver's handle lives as long as the memory does; what the program retained and released is
// counted here alone.
#pragma once

#include "shim/residence/backings.h"

namespace lull::shim {

// After the driver's success: `handle` becomes the program's. `fixed`: why it cannot be swapped.
void handle_created(CUmemGenericAllocationHandle& handle, uint64_t bytes,
                    const CUmemAllocationProp& properties, uint32_t device, Fixed fixed);

// The driver's handle for the program's. One that is not ours is its own.
CUmemGenericAllocationHandle real_handle(CUmemGenericAllocationHandle handle);
// It is shared from now on, or part of what cannot be made again.
void fix_handle(CUmemGenericAllocationHandle handle, Fixed kind);
void fix_address(CUdeviceptr address, uint64_t bytes, Fixed kind);

CUresult release_handle(CUmemGenericAllocationHandle handle);
CUresult retain_handle(CUmemGenericAllocationHandle* handle, CUdeviceptr address);
CUresult map_handle(CUdeviceptr address, uint64_t bytes, uint64_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult unmap_range(CUdeviceptr address, uint64_t bytes);
CUresult set_access(CUdeviceptr address, uint64_t bytes, const CUmemAccessDesc* rights,
                    size_t count);
// Whether an address belongs to an allocation of the arena: to the program that is no mapping.
bool is_plain_to_program(CUdeviceptr address);

}  // namespace lull::shim
