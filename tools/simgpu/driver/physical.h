// The memory behind cuMemCreate: real bytes that can be at several addresses at once and, once they
// are exported, in several processes. They live in an unnamed file of the process, whose mapping
// (`home`) is where the simulated driver itself finds them; each cuMemMap maps them once more.
// Called with State::mutex and MemoryMap's layout lock held.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <expected>
#include <memory>

#include "tools/simgpu/driver/address_space.h"
#include "tools/simgpu/driver/first_touch.h"

namespace simgpu::driver {

struct Physical {
  uint64_t home = 0;
  uint64_t size_bytes = 0;
  uint64_t id = 0;  // never reused in this process
  CUmemAllocationProp properties = {};
  int users = 0;                      // references to handles, and mappings
  uint64_t block = 0;                 // the device's number for it once it is exported; 0: private
  int file = -1;                      // once it is exported: a file of its own
  std::shared_ptr<FirstTouch> fresh;  // none once it is exported: all of it has contents
  int device() const { return properties.location.id; }
};

// What stands behind the contents in an exported file: how an importer knows it.
struct exported_memory {
  char magic[8];
  uint64_t origin_ns;  // of the simulated device's file
  uint64_t size_bytes;
  uint64_t block;
  uint32_t device;  // as the engine counts
  uint32_t reserved;
  CUmemAllocationProp properties;
};

class PhysicalStore {
 public:
  // Null: no host memory. The caller has it granted by the device beforehand.
  std::shared_ptr<Physical> create(uint64_t size_bytes, const CUmemAllocationProp& properties);
  // Its contents are gone. Of what nobody uses any more.
  void destroy(Physical& physical);
  // Puts the memory's first `bytes` at the address, over whatever is mapped there.
  static bool put(const Physical& physical, uint64_t address, uint64_t bytes);
  // Moves it into a file of its own; what is mapped has to be put again. False: no file to be had.
  bool move_to_file(Physical& physical, const exported_memory& what);
  // From a descriptor that a process was given. CUDA_ERROR_INVALID_VALUE: not such a file.
  static std::expected<exported_memory, CUresult> read_file(int descriptor);
  std::shared_ptr<Physical> open_file(int descriptor, const exported_memory& what);

 private:
  AddressSpace home_;
  uint64_t next_id_ = 1;
};

}  // namespace simgpu::driver
