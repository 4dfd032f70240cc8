// What a module image holds, as far as the simulated driver needs it: kernels with their
// parameters, and global variables. Reads PTX text, fat binaries (PTX entries plain, zstd or LZ4
// compressed, else their ELF entries) and ELF images. Pure: no state, any thread. Code is not run.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <vector>

namespace simgpu::driver {

struct ImageParameter {
  std::string name;  // empty for ELF images, which keep no names
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct ImageKernel {
  std::string name;
  std::vector<ImageParameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t max_threads = 1024;
  int spin_parameter = -1;  // index of the u64 `spin_ns` / `*_spin_ns`, which says what a run costs
};

struct ImageGlobal {
  std::string name;
  uint64_t size_bytes = 0;
  std::vector<uint8_t> initial;  // shorter than size_bytes: the rest is zero
  bool managed = false;
};

struct Image {
  std::vector<ImageKernel> kernels;
  std::vector<ImageGlobal> globals;
};

// `size_bytes` absent: as the driver's own calls, the image says its length itself.
std::expected<Image, CUresult> read_image(const void* data,
                                          std::optional<size_t> size_bytes = std::nullopt);

}  // namespace simgpu::driver
