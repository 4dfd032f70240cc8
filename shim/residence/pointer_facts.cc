#include "shim/residence/pointer_facts.h"

#include <string.h>

#include "shim/residence/blocks.h"
#include "shim/residence/mapped_memory.h"

namespace lull::shim {

namespace {

template <typename Value>
bool give(void* out, Value value) {
  memcpy(out, &value, sizeof value);
  return true;
}

}  // namespace

Known what_is(CUdeviceptr address) {
  Locked locked(arena_lock);
  const Mapping* mapping = mapping_at(address);
  if (mapping == nullptr) return Known::kNot;
  if (!mapping->backing->ours) return Known::kMapping;
  return block_at(*mapping, address) != nullptr ? Known::kAllocation : Known::kNowhere;
}

bool allocation_range(CUdeviceptr address, CUdeviceptr& begin, uint64_t& bytes) {
  Locked locked(arena_lock);
  const Mapping* mapping = mapping_at(address);
  const Block* block =
      mapping != nullptr && mapping->backing->ours ? block_at(*mapping, address) : nullptr;
  if (block == nullptr) return false;
  begin = block->address;
  bytes = block->bytes;
  return true;
}

bool correct_pointer_attribute(CUpointer_attribute attribute, CUdeviceptr address, void* value) {
  Locked locked(arena_lock);
  const Mapping* mapping = mapping_at(address);
  if (mapping == nullptr || value == nullptr) return false;
  const Backing& backing = *mapping->backing;
  if (!backing.ours) {
    // They outlive the memory that is there now.
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID) return give(value, mapping->id);
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
      return give(value, uint64_t{token_of(backing)});
    return false;
  }
  const Block* block = block_at(*mapping, address);
  if (block == nullptr) return false;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return give(value, block->stream_ordered ? CUcontext{} : block->context);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return give(value, block->id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return give(value, CUdeviceptr{block->address});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(value, size_t{block->bytes});
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return give(value, size_t{block->taken});
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return give(value, uint64_t{CU_MEM_HANDLE_TYPE_NONE});
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return give(value, block->pool);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      // By a descriptor (ipc_memory.h).
      return give(value,
                  !block->stream_ordered && can_export(backing.properties.location.id) ? 1 : 0);
    default:
      return false;
  }
}

}  // namespace lull::shim
