// Copies and memsets of every linear, 2D and 3D form. Pinned and device memory is copied when the
// device says so. Pageable host memory is slower and holds the caller: until it has been read
// (small copies to the device are read at once), or until it has been written.
#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"

using namespace simgpu::driver;
using simgpu::OpKind;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
constexpr uint64_t kStagedBytes = 64 << 10;
constexpr CUmemorytype kHost = CU_MEMORYTYPE_HOST;
constexpr CUmemorytype kDevice = CU_MEMORYTYPE_DEVICE;
constexpr CUmemorytype kUnified = CU_MEMORYTYPE_UNIFIED;

enum class Caller { kWaits, kGoesOn };

void stage(CopyWork& work) {
  CopyShape& shape = work.shape;
  auto staged = std::make_shared<std::vector<uint8_t>>(shape.bytes());
  uint8_t* at = staged->data();
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y, at += shape.width_bytes) {
      std::memcpy(at,
                  reinterpret_cast<const uint8_t*>(shape.source) + z * shape.source_slice_bytes +
                      y * shape.source_pitch_bytes,
                  shape.width_bytes);
    }
  }
  shape.source_pitch_bytes = shape.width_bytes;
  shape.source_slice_bytes = shape.width_bytes * shape.height;
  work.staged = std::move(staged);
}

CUresult run(Call& call, const std::shared_ptr<Stream>& stream,
             std::expected<CopyWork, CUresult> work, Caller caller) {
  if (!work) return work.error();
  if (stream->capture && caller == Caller::kWaits) {
    return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (work->shape.bytes() == 0) {
    return refuse_legacy_in_capture(call.state, *stream, /*invalidates=*/true);
  }
  bool waits = caller == Caller::kWaits && work->direction != OpKind::kCopyD2D;
  if (work->pageable && !stream->capture && caller == Caller::kGoesOn) {
    if (work->direction == OpKind::kCopyH2D && work->shape.bytes() <= kStagedBytes) {
      stage(*work);
    } else {
      waits = true;
    }
  }
  const CUresult result = enqueue(call, stream, std::move(*work));
  return result == CUDA_SUCCESS && waits ? call.wait(stream->point()) : result;
}

CUresult linear(uint64_t target, CUmemorytype target_type, uint64_t source,
                CUmemorytype source_type, size_t bytes, CUstream handle, Caller caller) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  return run(call, *stream,
             make_linear_copy(call.state, target, source, bytes, target_type, source_type), caller);
}

CUresult block(const CUDA_MEMCPY3D& description, CUstream handle, Caller caller) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  return run(call, *stream, make_copy_work(call.state, description), caller);
}

template <class Copy>
CUDA_MEMCPY3D common_fields(const Copy& copy) {
  CUDA_MEMCPY3D wide = {};
  wide.srcXInBytes = copy.srcXInBytes;
  wide.srcY = copy.srcY;
  wide.srcMemoryType = copy.srcMemoryType;
  wide.srcHost = copy.srcHost;
  wide.srcDevice = copy.srcDevice;
  wide.srcArray = copy.srcArray;
  wide.srcPitch = copy.srcPitch;
  wide.dstXInBytes = copy.dstXInBytes;
  wide.dstY = copy.dstY;
  wide.dstMemoryType = copy.dstMemoryType;
  wide.dstHost = copy.dstHost;
  wide.dstDevice = copy.dstDevice;
  wide.dstArray = copy.dstArray;
  wide.dstPitch = copy.dstPitch;
  wide.WidthInBytes = copy.WidthInBytes;
  wide.Height = copy.Height;
  wide.Depth = 1;
  return wide;
}

template <class Copy>
CUDA_MEMCPY3D all_fields(const Copy& copy) {
  CUDA_MEMCPY3D wide = common_fields(copy);
  wide.srcZ = copy.srcZ;
  wide.srcHeight = copy.srcHeight;
  wide.dstZ = copy.dstZ;
  wide.dstHeight = copy.dstHeight;
  wide.Depth = copy.Depth;
  return wide;
}

template <class Copy>
CUresult plane(const Copy* copy, CUstream stream, Caller caller) {
  if (const CUresult refused = refuse_call()) return refused;
  return copy == nullptr ? kWrong : block(common_fields(*copy), stream, caller);
}

template <class Copy>
CUresult volume(const Copy* copy, CUstream stream, Caller caller) {
  if (const CUresult refused = refuse_call()) return refused;
  return copy == nullptr ? kWrong : block(all_fields(*copy), stream, caller);
}

// Between a row of an array and memory in a row, or another one.
struct Place {
  CUmemorytype type;
  uint64_t address;
  CUarray array;
  size_t offset;
};
Place in(CUarray array, size_t offset) { return {CU_MEMORYTYPE_ARRAY, 0, array, offset}; }
Place in_host(const void* pointer) {
  return {kHost, reinterpret_cast<uint64_t>(pointer), nullptr, 0};
}
Place in_device(CUdeviceptr address) { return {kDevice, address, nullptr, 0}; }

CUresult row(const Place& target, const Place& source, size_t bytes, CUstream stream,
             Caller caller) {
  if (const CUresult refused = refuse_call()) return refused;
  CUDA_MEMCPY3D wide = {};
  wide.srcMemoryType = source.type;
  wide.srcHost = reinterpret_cast<const void*>(source.address);
  wide.srcDevice = source.address;
  wide.srcArray = source.array;
  wide.srcXInBytes = source.offset;
  wide.dstMemoryType = target.type;
  wide.dstHost = reinterpret_cast<void*>(target.address);
  wide.dstDevice = target.address;
  wide.dstArray = target.array;
  wide.dstXInBytes = target.offset;
  wide.WidthInBytes = bytes;
  wide.Height = wide.Depth = 1;
  return block(wide, stream, caller);
}

bool are_contexts(CUcontext one, CUcontext other) {
  Call call;
  return call && call.state.contexts.find(one) && call.state.contexts.find(other);
}

CUresult fill(CUdeviceptr target, size_t pitch, unsigned value, unsigned element_bytes,
              size_t width, size_t height, CUstream handle) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  CUDA_MEMSET_NODE_PARAMS description = {target, pitch, value, element_bytes, width, height};
  auto work = make_set_work(call.state, description);
  if (!work) return work.error();
  if (width == 0 || height == 0) return refuse_legacy_in_capture(call.state, **stream, true);
  return enqueue(call, *stream, std::move(*work));
}

// The forms without a stream run on the default one, and refuse to be captured.
CUresult fill_now(CUdeviceptr target, size_t pitch, unsigned value, unsigned element_bytes,
                  size_t width, size_t height) {
  {
    Call call;
    if (!call) return call.error;
    const auto stream = call.stream(nullptr);
    if (!stream) return stream.error();
    if ((*stream)->capture) {
      return invalidate(*(*stream)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return fill(target, pitch, value, element_bytes, width, height, nullptr);
}

uint64_t at(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult batch(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes, size_t count,
               size_t* failed, CUstream stream) {
  if (const CUresult refused = refuse_call()) return refused;
  if (failed != nullptr) *failed = SIZE_MAX;
  if (targets == nullptr || sources == nullptr || sizes == nullptr || count == 0) return kWrong;
  const bool legacy =
      stream == CU_STREAM_LEGACY || (stream == nullptr && !PerThreadDefaultStream::active());
  if (legacy) return kWrong;
  for (size_t i = 0; i < count; ++i) {
    const CUresult result =
        linear(targets[i], kUnified, sources[i], kUnified, sizes[i], stream, Caller::kGoesOn);
    if (result != CUDA_SUCCESS) {
      if (failed != nullptr) *failed = i;
      return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

SIM_API cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return linear(target, kUnified, source, kUnified, bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return linear(target, kUnified, source, kUnified, bytes, stream, Caller::kGoesOn);
}
SIM_API cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t bytes) {
  return linear(target, kDevice, at(source), kHost, bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t bytes) {
  return linear(at(target), kHost, source, kDevice, bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return linear(target, kDevice, source, kDevice, bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t bytes,
                             CUstream stream) {
  return linear(target, kDevice, at(source), kHost, bytes, stream, Caller::kGoesOn);
}
SIM_API cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return linear(at(target), kHost, source, kDevice, bytes, stream, Caller::kGoesOn);
}
SIM_API cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes,
                             CUstream stream) {
  return linear(target, kDevice, source, kDevice, bytes, stream, Caller::kGoesOn);
}

SIM_API cuMemcpyPeer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                     CUcontext source_context, size_t bytes) {
  if (const CUresult refused = refuse_call()) return refused;
  if (!are_contexts(target_context, source_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return linear(target, kDevice, source, kDevice, bytes, nullptr, Caller::kGoesOn);
}
SIM_API cuMemcpyPeerAsync(CUdeviceptr target, CUcontext target_context, CUdeviceptr source,
                          CUcontext source_context, size_t bytes, CUstream stream) {
  if (const CUresult refused = refuse_call()) return refused;
  if (!are_contexts(target_context, source_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return linear(target, kDevice, source, kDevice, bytes, stream, Caller::kGoesOn);
}

SIM_API cuMemcpyBatchAsync(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes, size_t count,
                           CUmemcpyAttributes*, size_t*, size_t, size_t* failed, CUstream stream) {
  return batch(targets, sources, sizes, count, failed, stream);
}
SIM_API cuMemcpyBatchAsync_v2(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes,
                              size_t count, CUmemcpyAttributes*, size_t*, size_t, CUstream stream) {
  return batch(targets, sources, sizes, count, nullptr, stream);
}

SIM_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return plane(copy, nullptr, Caller::kWaits); }
SIM_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return plane(copy, nullptr, Caller::kWaits);
}
SIM_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return plane(copy, stream, Caller::kGoesOn);
}
SIM_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return volume(copy, nullptr, Caller::kWaits); }
SIM_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return volume(copy, stream, Caller::kGoesOn);
}
SIM_API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  return volume(copy, nullptr, Caller::kGoesOn);
}
SIM_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return volume(copy, stream, Caller::kGoesOn);
}

SIM_API cuMemcpyHtoA_v2(CUarray target, size_t offset, const void* source, size_t bytes) {
  return row(in(target, offset), in_host(source), bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyAtoH_v2(void* target, CUarray source, size_t offset, size_t bytes) {
  return row(in_host(target), in(source, offset), bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyDtoA_v2(CUarray target, size_t offset, CUdeviceptr source, size_t bytes) {
  return row(in(target, offset), in_device(source), bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyAtoD_v2(CUdeviceptr target, CUarray source, size_t offset, size_t bytes) {
  return row(in_device(target), in(source, offset), bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyAtoA_v2(CUarray target, size_t target_offset, CUarray source, size_t source_offset,
                        size_t bytes) {
  return row(in(target, target_offset), in(source, source_offset), bytes, nullptr, Caller::kWaits);
}
SIM_API cuMemcpyHtoAAsync_v2(CUarray target, size_t offset, const void* source, size_t bytes,
                             CUstream stream) {
  return row(in(target, offset), in_host(source), bytes, stream, Caller::kGoesOn);
}
SIM_API cuMemcpyAtoHAsync_v2(void* target, CUarray source, size_t offset, size_t bytes,
                             CUstream stream) {
  return row(in_host(target), in(source, offset), bytes, stream, Caller::kGoesOn);
}

SIM_API cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) {
  return fill_now(target, 0, value, 1, count, 1);
}
SIM_API cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_t count) {
  return fill_now(target, 0, value, 2, count, 1);
}
SIM_API cuMemsetD32_v2(CUdeviceptr target, unsigned value, size_t count) {
  return fill_now(target, 0, value, 4, count, 1);
}
SIM_API cuMemsetD2D8_v2(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                        size_t height) {
  return fill_now(target, pitch, value, 1, width, height);
}
SIM_API cuMemsetD2D16_v2(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                         size_t height) {
  return fill_now(target, pitch, value, 2, width, height);
}
SIM_API cuMemsetD2D32_v2(CUdeviceptr target, size_t pitch, unsigned value, size_t width,
                         size_t height) {
  return fill_now(target, pitch, value, 4, width, height);
}
SIM_API cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  return fill(target, 0, value, 1, count, 1, stream);
}
SIM_API cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream) {
  return fill(target, 0, value, 2, count, 1, stream);
}
SIM_API cuMemsetD32Async(CUdeviceptr target, unsigned value, size_t count, CUstream stream) {
  return fill(target, 0, value, 4, count, 1, stream);
}
SIM_API cuMemsetD2D8Async(CUdeviceptr target, size_t pitch, unsigned char value, size_t width,
                          size_t height, CUstream stream) {
  return fill(target, pitch, value, 1, width, height, stream);
}
SIM_API cuMemsetD2D16Async(CUdeviceptr target, size_t pitch, unsigned short value, size_t width,
                           size_t height, CUstream stream) {
  return fill(target, pitch, value, 2, width, height, stream);
}
SIM_API cuMemsetD2D32Async(CUdeviceptr target, size_t pitch, unsigned value, size_t width,
                           size_t height, CUstream stream) {
  return fill(target, pitch, value, 4, width, height, stream);
}

// --- the 32-bit interface of CUDA 3.1 and before ---

SIM_API cuMemcpyHtoD(CUdeviceptr_v1 target, const void* source, unsigned bytes) {
  return cuMemcpyHtoD_v2(target, source, bytes);
}
SIM_API cuMemcpyDtoH(void* target, CUdeviceptr_v1 source, unsigned bytes) {
  return cuMemcpyDtoH_v2(target, source, bytes);
}
SIM_API cuMemcpyDtoD(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned bytes) {
  return cuMemcpyDtoD_v2(target, source, bytes);
}
SIM_API cuMemcpyHtoDAsync(CUdeviceptr_v1 target, const void* source, unsigned bytes,
                          CUstream stream) {
  return cuMemcpyHtoDAsync_v2(target, source, bytes, stream);
}
SIM_API cuMemcpyDtoHAsync(void* target, CUdeviceptr_v1 source, unsigned bytes, CUstream stream) {
  return cuMemcpyDtoHAsync_v2(target, source, bytes, stream);
}
SIM_API cuMemcpyDtoDAsync(CUdeviceptr_v1 target, CUdeviceptr_v1 source, unsigned bytes,
                          CUstream stream) {
  return cuMemcpyDtoDAsync_v2(target, source, bytes, stream);
}
SIM_API cuMemcpyHtoA(CUarray target, unsigned offset, const void* source, unsigned bytes) {
  return cuMemcpyHtoA_v2(target, offset, source, bytes);
}
SIM_API cuMemcpyAtoH(void* target, CUarray source, unsigned offset, unsigned bytes) {
  return cuMemcpyAtoH_v2(target, source, offset, bytes);
}
SIM_API cuMemcpyDtoA(CUarray target, unsigned offset, CUdeviceptr_v1 source, unsigned bytes) {
  return cuMemcpyDtoA_v2(target, offset, source, bytes);
}
SIM_API cuMemcpyAtoD(CUdeviceptr_v1 target, CUarray source, unsigned offset, unsigned bytes) {
  return cuMemcpyAtoD_v2(target, source, offset, bytes);
}
SIM_API cuMemcpyAtoA(CUarray target, unsigned target_offset, CUarray source, unsigned source_offset,
                     unsigned bytes) {
  return cuMemcpyAtoA_v2(target, target_offset, source, source_offset, bytes);
}
SIM_API cuMemcpyHtoAAsync(CUarray target, unsigned offset, const void* source, unsigned bytes,
                          CUstream stream) {
  return cuMemcpyHtoAAsync_v2(target, offset, source, bytes, stream);
}
SIM_API cuMemcpyAtoHAsync(void* target, CUarray source, unsigned offset, unsigned bytes,
                          CUstream stream) {
  return cuMemcpyAtoHAsync_v2(target, source, offset, bytes, stream);
}
SIM_API cuMemcpy2D(const CUDA_MEMCPY2D_v1* copy) { return plane(copy, nullptr, Caller::kWaits); }
SIM_API cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1* copy) {
  return plane(copy, nullptr, Caller::kWaits);
}
SIM_API cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1* copy, CUstream stream) {
  return plane(copy, stream, Caller::kGoesOn);
}
SIM_API cuMemcpy3D(const CUDA_MEMCPY3D_v1* copy) { return volume(copy, nullptr, Caller::kWaits); }
SIM_API cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1* copy, CUstream stream) {
  return volume(copy, stream, Caller::kGoesOn);
}
SIM_API cuMemsetD8(CUdeviceptr_v1 target, unsigned char value, unsigned count) {
  return cuMemsetD8_v2(target, value, count);
}
SIM_API cuMemsetD16(CUdeviceptr_v1 target, unsigned short value, unsigned count) {
  return cuMemsetD16_v2(target, value, count);
}
SIM_API cuMemsetD32(CUdeviceptr_v1 target, unsigned value, unsigned count) {
  return cuMemsetD32_v2(target, value, count);
}
SIM_API cuMemsetD2D8(CUdeviceptr_v1 target, unsigned pitch, unsigned char value, unsigned width,
                     unsigned height) {
  return cuMemsetD2D8_v2(target, pitch, value, width, height);
}
SIM_API cuMemsetD2D16(CUdeviceptr_v1 target, unsigned pitch, unsigned short value, unsigned width,
                      unsigned height) {
  return cuMemsetD2D16_v2(target, pitch, value, width, height);
}
SIM_API cuMemsetD2D32(CUdeviceptr_v1 target, unsigned pitch, unsigned value, unsigned width,
                      unsigned height) {
  return cuMemsetD2D32_v2(target, pitch, value, width, height);
}
