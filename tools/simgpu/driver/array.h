// Arrays and mipmapped arrays: device memory that programs reach by handles and copies only. Rows
// of elements lie one behind the other here, as no real device keeps them; nobody can see that.
// Guarded by State::mutex.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace simgpu::driver {

struct Context;
struct MipmappedArray;

struct Array {
  uint64_t handle = 0;
  std::weak_ptr<Context> context;
  CUDA_ARRAY3D_DESCRIPTOR description = {};  // as asked for; 0: there is no such extent
  uint64_t address = 0;
  uint64_t mipmap = 0;  // handle of the mipmapped array that it is a level of; 0: none
  uint64_t row_bytes() const;
  uint64_t rows() const { return description.Height == 0 ? 1 : description.Height; }
  uint64_t slices() const { return description.Depth == 0 ? 1 : description.Depth; }
  uint64_t bytes() const { return row_bytes() * rows() * slices(); }
};

struct MipmappedArray {
  uint64_t handle = 0;
  std::weak_ptr<Context> context;
  uint64_t address = 0;
  std::vector<uint64_t> levels;  // handles of arrays
};

// 0: no format of a single plane that is known.
uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description);

}  // namespace simgpu::driver
