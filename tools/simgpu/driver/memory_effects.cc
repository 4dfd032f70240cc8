#include "tools/simgpu/driver/memory_effects.h"

#include <algorithm>
#include <cstring>

namespace simgpu::driver {
namespace {

void copy_rows(const CopyShape& shape, const uint8_t* source) {
  auto* target = reinterpret_cast<uint8_t*>(shape.target);
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y) {
      std::memmove(target + z * shape.target_slice_bytes + y * shape.target_pitch_bytes,
                   source + z * shape.source_slice_bytes + y * shape.source_pitch_bytes,
                   shape.width_bytes);
    }
  }
}

struct Rows {
  uint64_t begin;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t pitch_bytes;
  uint64_t depth;
  uint64_t slice_bytes;
};

// Before they are written. Row by row: what lies between two rows keeps its contents.
bool touch_rows(MemoryMap& memory, int device, const Rows& rows) {
  for (uint64_t z = 0; z < rows.depth; ++z) {
    for (uint64_t y = 0; y < rows.height; ++y) {
      const uint64_t row = rows.begin + z * rows.slice_bytes + y * rows.pitch_bytes;
      if (!memory.touch(row, rows.width_bytes, Touch::kWrite, device)) return false;
    }
  }
  return true;
}

void set_rows(const CUDA_MEMSET_NODE_PARAMS& set) {
  for (size_t y = 0; y < set.height; ++y) {
    auto* row = reinterpret_cast<uint8_t*>(set.dst) + y * set.pitch;
    if (set.elementSize == 1) {
      std::memset(row, static_cast<int>(set.value & 0xff), set.width);
    } else if (set.elementSize == 2) {
      std::fill_n(reinterpret_cast<uint16_t*>(row), set.width, static_cast<uint16_t>(set.value));
    } else {
      std::fill_n(reinterpret_cast<uint32_t*>(row), set.width, set.value);
    }
  }
}

uint64_t value_bytes(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
                 operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64
             ? 8
             : 4;
}

}  // namespace

uint64_t extent_bytes(uint64_t width, uint64_t height, uint64_t pitch, uint64_t depth,
                      uint64_t slice) {
  return (depth - 1) * slice + (height - 1) * pitch + width;
}

CUresult copy_bytes(MemoryMap& memory, int device, const CopyShape& shape, const uint8_t* staged) {
  if (shape.bytes() == 0) return CUDA_SUCCESS;
  const auto still = memory.hold_still();
  const bool readable =
      staged != nullptr ||
      memory.touch(shape.source,
                   extent_bytes(shape.width_bytes, shape.height, shape.source_pitch_bytes,
                                shape.depth, shape.source_slice_bytes),
                   Touch::kRead, device);
  if (!readable || !touch_rows(memory, device,
                               {shape.target, shape.width_bytes, shape.height,
                                shape.target_pitch_bytes, shape.depth, shape.target_slice_bytes})) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  copy_rows(shape, staged != nullptr ? staged : reinterpret_cast<const uint8_t*>(shape.source));
  return CUDA_SUCCESS;
}

CUresult fill_bytes(MemoryMap& memory, int device, const CUDA_MEMSET_NODE_PARAMS& set) {
  const auto still = memory.hold_still();
  if (!touch_rows(memory, device,
                  {set.dst, set.width * set.elementSize, set.height, set.pitch, 1, 0})) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  set_rows(set);
  return CUDA_SUCCESS;
}

CUresult write_value(MemoryMap& memory, int device, const CUstreamBatchMemOpParams& operation) {
  const auto& write = operation.writeValue;
  const auto still = memory.hold_still();
  if (!memory.touch(write.address, value_bytes(operation), Touch::kWrite, device)) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(write.address), write.value64, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(write.address), write.value, __ATOMIC_RELEASE);
  }
  return CUDA_SUCCESS;
}

std::expected<bool, CUresult> value_reached(MemoryMap& memory, int device,
                                            const CUstreamBatchMemOpParams& operation) {
  const auto& wait = operation.waitValue;
  const auto still = memory.hold_still();
  if (!memory.touch(wait.address, value_bytes(operation), Touch::kRead, device)) {
    return std::unexpected(CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  const bool wide = operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const uint64_t now =
      wide ? __atomic_load_n(reinterpret_cast<const uint64_t*>(wait.address), __ATOMIC_ACQUIRE)
           : __atomic_load_n(reinterpret_cast<const uint32_t*>(wait.address), __ATOMIC_ACQUIRE);
  const uint64_t wanted = wide ? wait.value64 : wait.value;
  switch (wait.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return wide ? static_cast<int64_t>(now - wanted) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(now) - wait.value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    default:
      return wide ? ~(now | wanted) != 0 : static_cast<uint32_t>(~(now | wanted)) != 0;
  }
}

}  // namespace simgpu::driver
