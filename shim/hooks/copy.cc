// Copies, memsets and prefetches: all counted; those over kLargeBytes are units with identity and
// record, the others are recorded for a trace only. A large one towards the device, inside it, or a memset passes the gate like a launch; a
// read-back never does, however large: the program is waiting for finished work.
#include "shim/submit.h"

using namespace lull::shim;

namespace {

constexpr uint64_t kLargeBytes = 64 * 1024;
constexpr uint64_t kBytesPerUs = 20'000;  // of a copy that was never measured

enum class Wait : bool { kAsync, kBlocking };

// The driver's call, for one body that serves every copy: inlined into each of them it would be
// more than half of the library.
struct DriverCall {
  CUresult (*run)(void* call);
  void* call;
  CUresult operator()() const { return run(call); }
};

CUresult transfer(Direction direction, uint64_t bytes, uintptr_t stream, Wait wait,
                  DriverCall call) {
  const Counter counter = direction == Direction::kMemset ? Counter::kMemsets : Counter::kCopies;
  const auto run = [&]() -> CUresult {
    Unit unit{handle_of(direction), shape_of_copy(bytes), stream};
    unit.counter = counter;
    unit.bytes = bytes;
    if (bytes <= kLargeBytes || (direction == Direction::kDeviceToHost && wait == Wait::kBlocking)) {
      return submit_aside(unit, call);
    }
    const uint64_t guess_ns = bytes * 1000 / kBytesPerUs;
    unit.default_ns = guess_ns > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(guess_ns);
    unit.gated = direction != Direction::kDeviceToHost;
    return submit(unit, call);
  };
  // A blocking read-back proves what stood before it in the stream complete. The other blocking
  // copies may return before the device has finished.
  if (wait == Wait::kBlocking && direction == Direction::kDeviceToHost &&
      thread_state.depth == 0) {
    Attachment* link = enter(thread_state);
    if (link == nullptr || is_capturing(stream)) return run();
    SeenSequences seen;
    remember_stream(thread_state, stream, seen);
    const uint64_t began = wait_begins(*link);
    const CUresult result = run();
    if (result == CUDA_SUCCESS) {
      report_complete(thread_state, *link, seen, began);
      harvest_timing(thread_state, *link);
    }
    return result;
  }
  return run();
}

template <typename Call>
inline CUresult transfer(Direction direction, uint64_t bytes, uintptr_t stream, Wait wait,
                         Call call) {
  const auto run = [](void* what) { return (*static_cast<Call*>(what))(); };
  return transfer(direction, bytes, stream, wait, DriverCall{run, &call});
}

Direction direction_of(CUmemorytype from, CUmemorytype to) {
  const bool from_device = from == CU_MEMORYTYPE_DEVICE || from == CU_MEMORYTYPE_ARRAY;
  const bool to_device = to == CU_MEMORYTYPE_DEVICE || to == CU_MEMORYTYPE_ARRAY;
  if (from == CU_MEMORYTYPE_HOST && to_device) return Direction::kHostToDevice;
  if (from_device && to == CU_MEMORYTYPE_HOST) return Direction::kDeviceToHost;
  if (from_device && to_device) return Direction::kDeviceToDevice;
  return Direction::kUnknown;
}
template <typename Copy2D>
Direction direction_of(const Copy2D* copy) {
  return copy == nullptr ? Direction::kUnknown
                         : direction_of(copy->srcMemoryType, copy->dstMemoryType);
}
template <typename Copy2D>
uint64_t bytes_2d(const Copy2D* copy) {
  return copy == nullptr ? 0 : static_cast<uint64_t>(copy->WidthInBytes) * copy->Height;
}
template <typename Copy3D>
uint64_t bytes_3d(const Copy3D* copy) {
  return copy == nullptr
             ? 0
             : static_cast<uint64_t>(copy->WidthInBytes) * copy->Height * copy->Depth;
}
uint64_t bytes_in_all(const size_t* sizes, size_t count) {
  uint64_t bytes = 0;
  for (size_t n = 0; sizes != nullptr && n < count; ++n) bytes += sizes[n];
  return bytes;
}
uint64_t bytes_in_all(const CUDA_MEMCPY3D_BATCH_OP* operations, size_t count) {
  uint64_t bytes = 0;
  for (size_t n = 0; operations != nullptr && n < count; ++n) {
    const CUextent3D& extent = operations[n].extent;
    bytes += static_cast<uint64_t>(extent.width) * extent.height * extent.depth;
  }
  return bytes;
}
uint64_t bytes_in_all(const CUmemDecompressParams* parts, size_t count) {
  uint64_t bytes = 0;
  for (size_t n = 0; parts != nullptr && n < count; ++n) bytes += parts[n].dstNumBytes;
  return bytes;
}

constexpr auto kToDevice = Direction::kHostToDevice;
constexpr auto kToHost = Direction::kDeviceToHost;
constexpr auto kInside = Direction::kDeviceToDevice;
constexpr auto kUnified = Direction::kUnknown;
constexpr auto kLegacy = DefaultStream::kLegacy;
constexpr auto kPerThread = DefaultStream::kPerThread;

}  // namespace

// ---- linear and array copies: the call of CUDA 3, the present one, the per-thread one -----------
#define LULL_COPIES(suffix, Address, Size, variant)                                               \
  LULL_ENTRY(cuMemcpyHtoD##suffix)(Address to, const void* from, Size bytes) {                    \
    return transfer(kToDevice, bytes, normalise(nullptr, variant), Wait::kBlocking,               \
                    [&] { return driver().cuMemcpyHtoD##suffix(to, from, bytes); });              \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyDtoH##suffix)(void* to, Address from, Size bytes) {                          \
    return transfer(kToHost, bytes, normalise(nullptr, variant), Wait::kBlocking,                 \
                    [&] { return driver().cuMemcpyDtoH##suffix(to, from, bytes); });              \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyDtoD##suffix)(Address to, Address from, Size bytes) {                        \
    return transfer(kInside, bytes, normalise(nullptr, variant), Wait::kBlocking,                 \
                    [&] { return driver().cuMemcpyDtoD##suffix(to, from, bytes); });              \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyDtoA##suffix)(CUarray to, Size offset, Address from, Size bytes) {           \
    return transfer(kInside, bytes, normalise(nullptr, variant), Wait::kBlocking,                 \
                    [&] { return driver().cuMemcpyDtoA##suffix(to, offset, from, bytes); });      \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyAtoD##suffix)(Address to, CUarray from, Size offset, Size bytes) {           \
    return transfer(kInside, bytes, normalise(nullptr, variant), Wait::kBlocking,                 \
                    [&] { return driver().cuMemcpyAtoD##suffix(to, from, offset, bytes); });      \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyHtoA##suffix)(CUarray to, Size offset, const void* from, Size bytes) {       \
    return transfer(kToDevice, bytes, normalise(nullptr, variant), Wait::kBlocking,               \
                    [&] { return driver().cuMemcpyHtoA##suffix(to, offset, from, bytes); });      \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyAtoH##suffix)(void* to, CUarray from, Size offset, Size bytes) {             \
    return transfer(kToHost, bytes, normalise(nullptr, variant), Wait::kBlocking,                 \
                    [&] { return driver().cuMemcpyAtoH##suffix(to, from, offset, bytes); });      \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyAtoA##suffix)                                                                \
  (CUarray to, Size to_offset, CUarray from, Size from_offset, Size bytes) {                      \
    return transfer(kInside, bytes, normalise(nullptr, variant), Wait::kBlocking, [&] {           \
      return driver().cuMemcpyAtoA##suffix(to, to_offset, from, from_offset, bytes);              \
    });                                                                                           \
  }
LULL_COPIES(, CUdeviceptr_v1, unsigned int, kLegacy)
LULL_COPIES(_v2, CUdeviceptr, size_t, kLegacy)
LULL_COPIES(_v2_ptds, CUdeviceptr, size_t, kPerThread)
#undef LULL_COPIES

#define LULL_COPIES_ASYNC(suffix, Address, Size, variant)                                         \
  LULL_ENTRY(cuMemcpyHtoDAsync##suffix)                                                           \
  (Address to, const void* from, Size bytes, CUstream stream) {                                   \
    return transfer(kToDevice, bytes, normalise(stream, variant), Wait::kAsync,                   \
                    [&] { return driver().cuMemcpyHtoDAsync##suffix(to, from, bytes, stream); }); \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyDtoHAsync##suffix)(void* to, Address from, Size bytes, CUstream stream) {    \
    return transfer(kToHost, bytes, normalise(stream, variant), Wait::kAsync,                     \
                    [&] { return driver().cuMemcpyDtoHAsync##suffix(to, from, bytes, stream); }); \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyDtoDAsync##suffix)(Address to, Address from, Size bytes, CUstream stream) {  \
    return transfer(kInside, bytes, normalise(stream, variant), Wait::kAsync,                     \
                    [&] { return driver().cuMemcpyDtoDAsync##suffix(to, from, bytes, stream); }); \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyHtoAAsync##suffix)                                                           \
  (CUarray to, Size offset, const void* from, Size bytes, CUstream stream) {                      \
    return transfer(kToDevice, bytes, normalise(stream, variant), Wait::kAsync, [&] {             \
      return driver().cuMemcpyHtoAAsync##suffix(to, offset, from, bytes, stream);                 \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyAtoHAsync##suffix)                                                           \
  (void* to, CUarray from, Size offset, Size bytes, CUstream stream) {                            \
    return transfer(kToHost, bytes, normalise(stream, variant), Wait::kAsync, [&] {               \
      return driver().cuMemcpyAtoHAsync##suffix(to, from, offset, bytes, stream);                 \
    });                                                                                           \
  }
LULL_COPIES_ASYNC(, CUdeviceptr_v1, unsigned int, kLegacy)
LULL_COPIES_ASYNC(_v2, CUdeviceptr, size_t, kLegacy)
LULL_COPIES_ASYNC(_v2_ptsz, CUdeviceptr, size_t, kPerThread)
#undef LULL_COPIES_ASYNC

// ---- described by a struct ---------------------------------------------------------------------
#define LULL_COPY_STRUCT(name, Struct, bytes, variant)                                            \
  LULL_ENTRY(name)(const Struct* copy) {                                                          \
    return transfer(direction_of(copy), bytes(copy), normalise(nullptr, variant),                 \
                    Wait::kBlocking, [&] { return driver().name(copy); });                        \
  }
#define LULL_COPY_STRUCT_ASYNC(name, Struct, bytes, variant)                                      \
  LULL_ENTRY(name)(const Struct* copy, CUstream stream) {                                         \
    return transfer(direction_of(copy), bytes(copy), normalise(stream, variant), Wait::kAsync,    \
                    [&] { return driver().name(copy, stream); });                                 \
  }
LULL_COPY_STRUCT(cuMemcpy2D, CUDA_MEMCPY2D_v1, bytes_2d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy2D_v2, CUDA_MEMCPY2D, bytes_2d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, bytes_2d, kPerThread)
LULL_COPY_STRUCT(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, bytes_2d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, bytes_2d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, bytes_2d, kPerThread)
LULL_COPY_STRUCT(cuMemcpy3D, CUDA_MEMCPY3D_v1, bytes_3d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy3D_v2, CUDA_MEMCPY3D, bytes_3d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, bytes_3d, kPerThread)
LULL_COPY_STRUCT(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, bytes_3d, kLegacy)
LULL_COPY_STRUCT(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, bytes_3d, kPerThread)
LULL_COPY_STRUCT_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, bytes_2d, kLegacy)
LULL_COPY_STRUCT_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, bytes_2d, kLegacy)
LULL_COPY_STRUCT_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, bytes_2d, kPerThread)
LULL_COPY_STRUCT_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, bytes_3d, kLegacy)
LULL_COPY_STRUCT_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, bytes_3d, kLegacy)
LULL_COPY_STRUCT_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, bytes_3d, kPerThread)
LULL_COPY_STRUCT_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, bytes_3d, kLegacy)
LULL_COPY_STRUCT_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, bytes_3d, kPerThread)
#undef LULL_COPY_STRUCT
#undef LULL_COPY_STRUCT_ASYNC

// ---- unified addressing, peers -----------------------------------------------------------------
#define LULL_UNIFIED(blocking, async, variant)                                                    \
  LULL_ENTRY(cuMemcpy##blocking)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {                \
    return transfer(kUnified, bytes, normalise(nullptr, variant), Wait::kBlocking,                \
                    [&] { return driver().cuMemcpy##blocking(to, from, bytes); });                \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyAsync##async)                                                                \
  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {                             \
    return transfer(kUnified, bytes, normalise(stream, variant), Wait::kAsync,                    \
                    [&] { return driver().cuMemcpyAsync##async(to, from, bytes, stream); });      \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyPeer##blocking)                                                              \
  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,                \
   size_t bytes) {                                                                                \
    return transfer(kInside, bytes, normalise(nullptr, variant), Wait::kBlocking, [&] {           \
      return driver().cuMemcpyPeer##blocking(to, to_context, from, from_context, bytes);          \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyPeerAsync##async)                                                            \
  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,  \
   CUstream stream) {                                                                             \
    return transfer(kInside, bytes, normalise(stream, variant), Wait::kAsync, [&] {               \
      return driver().cuMemcpyPeerAsync##async(to, to_context, from, from_context, bytes,         \
                                               stream);                                           \
    });                                                                                           \
  }
LULL_UNIFIED(, , kLegacy)
LULL_UNIFIED(_ptds, _ptsz, kPerThread)
#undef LULL_UNIFIED

// ---- batches, prefetches, decompression --------------------------------------------------------
#define LULL_BATCHES(suffix, variant)                                                             \
  LULL_ENTRY(cuMemcpyBatchAsync##suffix)                                                          \
  (CUdeviceptr * to, CUdeviceptr * from, size_t* sizes, size_t count,                             \
   CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, size_t* failed,       \
   CUstream stream) {                                                                             \
    return transfer(kUnified, bytes_in_all(sizes, count), normalise(stream, variant),             \
                    Wait::kAsync, [&] {                                                           \
                      return driver().cuMemcpyBatchAsync##suffix(                                 \
                          to, from, sizes, count, attributes, indices, attribute_count, failed,   \
                          stream);                                                                \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemcpyBatchAsync_v2##suffix)                                                       \
  (CUdeviceptr * to, CUdeviceptr * from, size_t* sizes, size_t count,                             \
   CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, CUstream stream) {    \
    return transfer(kUnified, bytes_in_all(sizes, count), normalise(stream, variant),             \
                    Wait::kAsync, [&] {                                                           \
                      return driver().cuMemcpyBatchAsync_v2##suffix(                              \
                          to, from, sizes, count, attributes, indices, attribute_count, stream);  \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemcpy3DBatchAsync##suffix)                                                        \
  (size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed, unsigned long long flags,    \
   CUstream stream) {                                                                             \
    return transfer(kUnified, bytes_in_all(operations, count), normalise(stream, variant),        \
                    Wait::kAsync, [&] {                                                           \
                      return driver().cuMemcpy3DBatchAsync##suffix(count, operations, failed,     \
                                                                   flags, stream);                \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemcpy3DBatchAsync_v2##suffix)                                                     \
  (size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,                    \
   CUstream stream) {                                                                             \
    return transfer(kUnified, bytes_in_all(operations, count), normalise(stream, variant),        \
                    Wait::kAsync, [&] {                                                           \
                      return driver().cuMemcpy3DBatchAsync_v2##suffix(count, operations, flags,   \
                                                                      stream);                    \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemPrefetchAsync##suffix)                                                          \
  (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {                         \
    return transfer(Direction::kPrefetch, bytes, normalise(stream, variant), Wait::kAsync, [&] {  \
      return driver().cuMemPrefetchAsync##suffix(address, bytes, device, stream);                 \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemPrefetchAsync_v2##suffix)                                                       \
  (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags,                 \
   CUstream stream) {                                                                             \
    return transfer(Direction::kPrefetch, bytes, normalise(stream, variant), Wait::kAsync, [&] {  \
      return driver().cuMemPrefetchAsync_v2##suffix(address, bytes, location, flags, stream);     \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemPrefetchBatchAsync##suffix)                                                     \
  (CUdeviceptr * addresses, size_t* sizes, size_t count, CUmemLocation* locations,                \
   size_t* indices, size_t location_count, unsigned long long flags, CUstream stream) {           \
    return transfer(Direction::kPrefetch, bytes_in_all(sizes, count),                             \
                    normalise(stream, variant), Wait::kAsync, [&] {                               \
                      return driver().cuMemPrefetchBatchAsync##suffix(                            \
                          addresses, sizes, count, locations, indices, location_count, flags,     \
                          stream);                                                                \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemDiscardBatchAsync##suffix)                                                      \
  (CUdeviceptr * addresses, size_t* sizes, size_t count, unsigned long long flags,                \
   CUstream stream) {                                                                             \
    return transfer(Direction::kPrefetch, 0, normalise(stream, variant), Wait::kAsync, [&] {      \
      return driver().cuMemDiscardBatchAsync##suffix(addresses, sizes, count, flags, stream);     \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemDiscardAndPrefetchBatchAsync##suffix)                                           \
  (CUdeviceptr * addresses, size_t* sizes, size_t count, CUmemLocation* locations,                \
   size_t* indices, size_t location_count, unsigned long long flags, CUstream stream) {           \
    return transfer(Direction::kPrefetch, bytes_in_all(sizes, count),                             \
                    normalise(stream, variant), Wait::kAsync, [&] {                               \
                      return driver().cuMemDiscardAndPrefetchBatchAsync##suffix(                  \
                          addresses, sizes, count, locations, indices, location_count, flags,     \
                          stream);                                                                \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemBatchDecompressAsync##suffix)                                                   \
  (CUmemDecompressParams * parts, size_t count, unsigned int flags, size_t* failed,               \
   CUstream stream) {                                                                             \
    return transfer(kInside, bytes_in_all(parts, count), normalise(stream, variant),              \
                    Wait::kAsync, [&] {                                                           \
                      return driver().cuMemBatchDecompressAsync##suffix(parts, count, flags,      \
                                                                        failed, stream);          \
                    });                                                                           \
  }
LULL_BATCHES(, kLegacy)
LULL_BATCHES(_ptsz, kPerThread)
#undef LULL_BATCHES

// ---- memsets -----------------------------------------------------------------------------------
#define LULL_MEMSET(width, Value, suffix, Address, Size, variant)                                 \
  LULL_ENTRY(cuMemsetD##width##suffix)(Address to, Value value, Size count) {                     \
    return transfer(Direction::kMemset, uint64_t{count} * sizeof(Value),                          \
                    normalise(nullptr, variant), Wait::kBlocking,                                 \
                    [&] { return driver().cuMemsetD##width##suffix(to, value, count); });         \
  }                                                                                               \
  LULL_ENTRY(cuMemsetD2D##width##suffix)                                                          \
  (Address to, Size pitch, Value value, Size columns, Size rows) {                                \
    return transfer(Direction::kMemset, uint64_t{columns} * rows * sizeof(Value),                 \
                    normalise(nullptr, variant), Wait::kBlocking, [&] {                           \
                      return driver().cuMemsetD2D##width##suffix(to, pitch, value, columns,       \
                                                                 rows);                           \
                    });                                                                           \
  }
#define LULL_MEMSET_ASYNC(width, Value, suffix, variant)                                          \
  LULL_ENTRY(cuMemsetD##width##Async##suffix)                                                     \
  (CUdeviceptr to, Value value, size_t count, CUstream stream) {                                  \
    return transfer(Direction::kMemset, uint64_t{count} * sizeof(Value),                          \
                    normalise(stream, variant), Wait::kAsync, [&] {                               \
                      return driver().cuMemsetD##width##Async##suffix(to, value, count, stream);  \
                    });                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuMemsetD2D##width##Async##suffix)                                                   \
  (CUdeviceptr to, size_t pitch, Value value, size_t columns, size_t rows, CUstream stream) {     \
    return transfer(Direction::kMemset, uint64_t{columns} * rows * sizeof(Value),                 \
                    normalise(stream, variant), Wait::kAsync, [&] {                               \
                      return driver().cuMemsetD2D##width##Async##suffix(to, pitch, value,         \
                                                                        columns, rows, stream);   \
                    });                                                                           \
  }
#define LULL_MEMSETS(width, Value)                                     \
  LULL_MEMSET(width, Value, , CUdeviceptr_v1, unsigned int, kLegacy)   \
  LULL_MEMSET(width, Value, _v2, CUdeviceptr, size_t, kLegacy)         \
  LULL_MEMSET(width, Value, _v2_ptds, CUdeviceptr, size_t, kPerThread) \
  LULL_MEMSET_ASYNC(width, Value, , kLegacy)                           \
  LULL_MEMSET_ASYNC(width, Value, _ptsz, kPerThread)
LULL_MEMSETS(8, unsigned char)
LULL_MEMSETS(16, unsigned short)
LULL_MEMSETS(32, unsigned int)
#undef LULL_MEMSETS
#undef LULL_MEMSET
#undef LULL_MEMSET_ASYNC
