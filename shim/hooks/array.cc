// Arrays: device memory that programs reach by handles. Accounting and the limit as for any memory;
// in a process that can be moved it stays where it is.
//
// They count as what their elements take: how much the driver adds it does not tell
// (cuArrayGetMemoryRequirements answers for arrays alone whose memory the program maps later).
// Those, and sparse ones, have none of their own: it is counted where it was made.
#include "shim/hooks/counted_allocation.h"
#include "shim/residence/memory_gate.h"
#include "shim/submit.h"

using namespace lull::shim;
using lull::channel::Fixed;

namespace {

// Bits of one element; of formats that are not listed here those of the smallest there is:
// compressed blocks of 4 x 4 texels in 8 bytes.
uint64_t element_bits(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return uint64_t{8} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return uint64_t{16} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return uint64_t{32} * channels;
    case CU_AD_FORMAT_NV12:
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
      return 8;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
      return 16;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
      return 32;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
      return 64;
    default:
      return 4;
  }
}

uint64_t level_of(uint64_t extent, unsigned level) {
  const uint64_t smaller = extent >> level;
  return smaller == 0 ? 1 : smaller;
}

// 0: none of its own, or a description that no driver takes.
uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& d, unsigned levels) {
  constexpr size_t kMostExtent = size_t{1} << 18;  // twice that of any device so far
  if ((d.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) return 0;
  if (d.NumChannels > 4 || d.Width > kMostExtent || d.Height > kMostExtent ||
      d.Depth > kMostExtent) {
    return 0;
  }
  const bool layered = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const uint64_t bits = element_bits(d.Format, d.NumChannels);
  uint64_t all = 0;
  // Beyond 63 no level is smaller than one element.
  for (unsigned level = 0; level < levels && level < 64; ++level) {
    const uint64_t width = level_of(d.Width, level);
    const uint64_t height = level_of(d.Height, level);
    const uint64_t depth = layered && d.Depth != 0 ? d.Depth : level_of(d.Depth, level);
    all += (width * height * depth * bits + 7) / 8;
    if (width == 1 && height == 1 && (layered || depth == 1)) break;
  }
  return all;
}

CUDA_ARRAY3D_DESCRIPTOR flat(const auto& d) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  wide.Width = d.Width;
  wide.Height = d.Height;
  wide.Format = d.Format;
  wide.NumChannels = d.NumChannels;
  return wide;
}
const CUDA_ARRAY3D_DESCRIPTOR& deep(const CUDA_ARRAY3D_DESCRIPTOR& d) { return d; }
CUDA_ARRAY3D_DESCRIPTOR deep(const CUDA_ARRAY3D_DESCRIPTOR_v1& d) {
  CUDA_ARRAY3D_DESCRIPTOR wide = flat(d);
  wide.Depth = d.Depth;
  wide.Flags = d.Flags;
  return wide;
}

template <typename Handle, typename Call>
CUresult create(Handle* array, uint64_t bytes, Call call) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  if (thread.depth != 0 || !shim_enabled() || array == nullptr || bytes == 0) {
    return forward(thread, call);
  }
  return count_allocation(
      current_device(), MemoryKind::kArray, bytes,
      [&] { return reinterpret_cast<uint64_t>(*array); }, call, Fixed::kArrays);
}

template <typename Handle, typename Call>
CUresult destroy(Handle array, Call call) {
  ThreadState& thread = thread_state;
  MemoryUse use(thread);
  if (thread.depth != 0) return call();
  const CUresult result = forward(thread, call);
  if (result == CUDA_SUCCESS) memory_freed(MemoryKind::kArray, reinterpret_cast<uint64_t>(array));
  return result;
}

}  // namespace

LULL_ENTRY(cuArrayCreate)(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* description) {
  return create(array, description != nullptr ? bytes_of(flat(*description), 1) : 0,
                [&] { return driver().cuArrayCreate(array, description); });
}
LULL_ENTRY(cuArrayCreate_v2)(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* description) {
  return create(array, description != nullptr ? bytes_of(flat(*description), 1) : 0,
                [&] { return driver().cuArrayCreate_v2(array, description); });
}
LULL_ENTRY(cuArray3DCreate)(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* description) {
  return create(array, description != nullptr ? bytes_of(deep(*description), 1) : 0,
                [&] { return driver().cuArray3DCreate(array, description); });
}
LULL_ENTRY(cuArray3DCreate_v2)(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  return create(array, description != nullptr ? bytes_of(deep(*description), 1) : 0,
                [&] { return driver().cuArray3DCreate_v2(array, description); });
}
LULL_ENTRY(cuArrayDestroy)(CUarray array) {
  return destroy(array, [=] { return driver().cuArrayDestroy(array); });
}
LULL_ENTRY(cuMipmappedArrayCreate)
(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* description, unsigned int levels) {
  return create(array, description != nullptr ? bytes_of(deep(*description), levels) : 0,
                [&] { return driver().cuMipmappedArrayCreate(array, description, levels); });
}
LULL_ENTRY(cuMipmappedArrayDestroy)(CUmipmappedArray array) {
  return destroy(array, [=] { return driver().cuMipmappedArrayDestroy(array); });
}
