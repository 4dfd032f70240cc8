// Device memory whose every byte is known: a block got by one of the driver's ways, and beside it a
// model on the host of what is in it. For moving_work.cc; not thread-safe, each worker has blocks
// of its own.
//
// Work on a block is in order whatever stream it is in: each begins behind the block's event and
// records it anew. So the model may be written when the work is submitted.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "program.h"

using Random = std::mt19937_64;
using Bytes = std::vector<unsigned char>;

inline uint64_t below(Random& random, uint64_t bound) { return bound == 0 ? 0 : random() % bound; }

// Bytes that depend on the seed and the place, eight at a time.
inline void fill_pattern(unsigned char* to, size_t bytes, uint64_t seed) {
  uint64_t word = seed * 0x9e3779b97f4a7c15U + 1;
  size_t done = 0;
  for (; done + 8 <= bytes; done += 8) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    std::memcpy(to + done, &word, 8);
  }
  for (; done < bytes; ++done) to[done] = static_cast<unsigned char>(word >> (done % 8 * 8));
}

inline uint64_t digest_of(const unsigned char* bytes, size_t count, uint64_t digest) {
  size_t done = 0;
  for (uint64_t word = 0; done + 8 <= count; done += 8) {
    std::memcpy(&word, bytes + done, 8);
    digest = (digest ^ word) * 0x100000001b3U;
    digest ^= digest >> 29;
  }
  for (; done < count; ++done) digest = (digest ^ bytes[done]) * 0x100000001b3U;
  return digest;
}

enum class Way { kPlain, kPitch, kAsync, kPool, kMapped };
inline constexpr int kWays = 5;
inline const char* name_of(Way way) {
  static const char* const names[] = {"cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync",
                                      "cuMemAllocFromPoolAsync", "cuMemMap"};
  return names[static_cast<int>(way)];
}

// A part of a block: whole rows where it has rows.
struct Part {
  size_t offset, bytes;
};

struct Block {
  Way way = Way::kPlain;
  CUdeviceptr at = 0;
  size_t width = 0, rows = 1, pitch = 0;  // one row where it has no pitch
  Bytes model;                            // rows without padding
  CUevent ready = nullptr;
  // kMapped: one address range, several pieces of memory
  size_t reserved = 0, piece = 0;
  std::vector<CUmemGenericAllocationHandle> handles;  // 0: released right after it was mapped

  size_t bytes() const { return model.size(); }
  size_t held() const { return way == Way::kMapped ? reserved : rows * (pitch ? pitch : width); }
  bool has_rows() const { return way == Way::kPitch; }
  Part whole() const { return {0, bytes()}; }
  // Of a quarter of the cases the whole; else any place and length.
  Part some(Random& random) const {
    if (below(random, 4) == 0) return whole();
    const size_t unit = has_rows() ? width : 1, units = bytes() / unit;
    const size_t first = below(random, units);
    return {first * unit, (1 + below(random, units - first)) * unit};
  }
  CUdeviceptr address(size_t offset) const {
    return has_rows() ? at + offset / width * pitch : at + offset;
  }
};

class Memory {
 public:
  void start(CUdevice device) {
    device_ = device;
    CUmemPoolProps pool{};
    pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CHECK(cuMemPoolCreate(&pool_, &pool));
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    CHECK(cuMemGetAllocationGranularity(&granularity_, &properties_,
                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }
  void end() { CHECK(cuMemPoolDestroy(pool_)); }

  // Contents are undefined: the caller writes all of it.
  Block allocate(Way way, size_t bytes, CUstream stream, Random& random) {
    Block block;
    block.way = way;
    block.width = bytes;
    CHECK(cuEventCreate(&block.ready, CU_EVENT_DISABLE_TIMING));
    switch (way) {
      case Way::kPlain:
        CHECK(cuMemAlloc(&block.at, bytes));
        break;
      case Way::kPitch:
        block.rows = 1 + below(random, 64);
        block.width = 1 + bytes / block.rows;
        CHECK(cuMemAllocPitch(&block.at, &block.pitch, block.width, block.rows, 4));
        break;
      case Way::kAsync:
        CHECK(cuMemAllocAsync(&block.at, bytes, stream));
        break;
      case Way::kPool:
        CHECK(cuMemAllocFromPoolAsync(&block.at, bytes, pool_, stream));
        break;
      case Way::kMapped: {
        const size_t pieces = 1 + below(random, 3);
        block.piece = (bytes / pieces + granularity_) / granularity_ * granularity_;
        block.reserved = block.piece * pieces;
        CHECK(cuMemAddressReserve(&block.at, block.reserved, 0, 0, 0));
        block.handles.resize(pieces);
        for (size_t i = 0; i < pieces; ++i) map_piece(block, i, below(random, 2) == 0);
        break;
      }
    }
    block.model.assign(block.width * block.rows, 0);
    CHECK(cuEventRecord(block.ready, stream));
    return block;
  }

  void free(Block& block, CUstream stream) {
    if (block.way == Way::kAsync || block.way == Way::kPool) {
      CHECK(cuStreamWaitEvent(stream, block.ready, 0));
      CHECK(cuMemFreeAsync(block.at, stream));
    } else {
      CHECK(cuEventSynchronize(block.ready));
      if (block.way == Way::kMapped) {
        for (size_t i = 0; i < block.handles.size(); ++i) unmap_piece(block, i);
        CHECK(cuMemAddressFree(block.at, block.reserved));
      } else {
        CHECK(cuMemFree(block.at));
      }
    }
    CHECK(cuEventDestroy(block.ready));
    block.at = 0;
  }

  // Other memory at the same addresses, as PyTorch's expandable segments do it. Contents are
  // undefined.
  void replace_last_piece(Block& block, Random& random) {
    CHECK(cuEventSynchronize(block.ready));
    const size_t last = block.handles.size() - 1;
    unmap_piece(block, last);
    map_piece(block, last, below(random, 2) == 0);
  }

 private:
  void map_piece(Block& block, size_t index, bool keep_handle) {
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr at = block.at + index * block.piece;
    CUmemAccessDesc access{};
    access.location = properties_.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemCreate(&handle, block.piece, &properties_, 0));
    CHECK(cuMemMap(at, block.piece, 0, handle, 0));
    CHECK(cuMemSetAccess(at, block.piece, &access, 1));
    if (!keep_handle) {
      CHECK(cuMemRelease(handle));
      handle = 0;
    }
    block.handles[index] = handle;
  }
  void unmap_piece(Block& block, size_t index) {
    CHECK(cuMemUnmap(block.at + index * block.piece, block.piece));
    if (block.handles[index] != 0) CHECK(cuMemRelease(block.handles[index]));
  }

  CUdevice device_ = 0;
  CUmemoryPool pool_ = nullptr;
  CUmemAllocationProp properties_{};
  size_t granularity_ = 0;
};

// A copy between a part of a block and plain memory, or between parts of two blocks (`rows` of
// `width`): one call for all three. `ordered` false: the call returns when the bytes are where they
// belong.
struct Rows {
  size_t width, rows;
};
inline Rows rows_of(const Block& block, Part part) {
  return block.has_rows() ? Rows{block.width, part.bytes / block.width} : Rows{part.bytes, 1};
}
inline void set_device_source(CUDA_MEMCPY2D& copy, const Block& block, size_t offset,
                              size_t width) {
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = block.address(offset);
  copy.srcPitch = block.has_rows() ? block.pitch : width;
}
inline void set_device_target(CUDA_MEMCPY2D& copy, const Block& block, size_t offset,
                              size_t width) {
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = block.address(offset);
  copy.dstPitch = block.has_rows() ? block.pitch : width;
}

inline void upload(const Block& block, Part part, const unsigned char* from, CUstream stream,
                   bool ordered) {
  if (!block.has_rows()) {
    if (ordered) {
      CHECK(cuMemcpyHtoDAsync(block.address(part.offset), from, part.bytes, stream));
    } else {
      CHECK(cuMemcpyHtoD(block.address(part.offset), from, part.bytes));
    }
    return;
  }
  const Rows rows = rows_of(block, part);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  copy.srcPitch = copy.WidthInBytes = rows.width;
  copy.Height = rows.rows;
  set_device_target(copy, block, part.offset, rows.width);
  CHECK(ordered ? cuMemcpy2DAsync(&copy, stream) : cuMemcpy2D(&copy));
}

inline void download(const Block& block, Part part, unsigned char* to, CUstream stream,
                     bool ordered) {
  if (!block.has_rows()) {
    if (ordered) {
      CHECK(cuMemcpyDtoHAsync(to, block.address(part.offset), part.bytes, stream));
    } else {
      CHECK(cuMemcpyDtoH(to, block.address(part.offset), part.bytes));
    }
    return;
  }
  const Rows rows = rows_of(block, part);
  CUDA_MEMCPY2D copy{};
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.dstPitch = copy.WidthInBytes = rows.width;
  copy.Height = rows.rows;
  set_device_source(copy, block, part.offset, rows.width);
  CHECK(ordered ? cuMemcpy2DAsync(&copy, stream) : cuMemcpy2D(&copy));
}
