#include "tools/simgpu/driver/array.h"

#include <algorithm>
#include <bit>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/memory.h"

namespace simgpu::driver {

uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& description) {
  const unsigned channels = description.NumChannels;
  if (channels != 1 && channels != 2 && channels != 4) return 0;
  switch (description.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return uint64_t{2} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return uint64_t{4} * channels;
    default:
      return 0;
  }
}

uint64_t Array::row_bytes() const { return description.Width * element_bytes(description); }

}  // namespace simgpu::driver

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;
constexpr uint64_t kMostExtent = 131072;  // of an H100, of any kind of array
constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT;

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (d.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) {
    return CUDA_ERROR_NOT_SUPPORTED;  // memory that is mapped later
  }
  if (element_bytes(d) == 0 || (d.Flags & ~kKnownFlags) != 0) return kWrong;
  if (d.Width == 0 || d.Width > kMostExtent || d.Height > kMostExtent || d.Depth > kMostExtent) {
    return kWrong;
  }
  const bool layered = d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  return d.Depth != 0 && d.Height == 0 && !layered ? kWrong : CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR flat(const auto& d) {
  CUDA_ARRAY3D_DESCRIPTOR wide = {};
  wide.Width = d.Width;
  wide.Height = d.Height;
  wide.Format = d.Format;
  wide.NumChannels = d.NumChannels;
  return wide;
}

CUDA_ARRAY3D_DESCRIPTOR deep(const CUDA_ARRAY3D_DESCRIPTOR_v1& d) {
  CUDA_ARRAY3D_DESCRIPTOR wide = flat(d);
  wide.Depth = d.Depth;
  wide.Flags = d.Flags;
  return wide;
}

std::shared_ptr<Array> add_array(Call& call, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  auto array = std::make_shared<Array>();
  array->handle = call.state.new_handle();
  array->context = call.context;
  array->description = description;
  call.state.arrays.add(array);
  return array;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  Call call(Call::kContext | Call::kUnsafeInCapture);
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  if (const CUresult refused = check(description)) return refused;
  Array sized;
  sized.description = description;
  const auto address =
      allocate_device(call.state, *call.context, sized.bytes(), MemoryKind::kArray);
  if (!address) return address.error();
  const auto array = add_array(call, description);
  array->address = *address;
  *out = to_handle<CUarray>(array->handle);
  return CUDA_SUCCESS;
}

// As the driver's: waits until nobody can be using it.
CUresult give_back(Call& call, const std::weak_ptr<Context>& owner, uint64_t address) {
  const auto context = owner.lock();
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  call.wait(call.state.device->unfinished(context->engine));
  release_device(call.state, address, context->engine, nullptr);
  return CUDA_SUCCESS;
}

template <class Body>
CUresult with_array(CUarray handle, const void* out, Body body) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (out == nullptr) return kWrong;
  const auto array = call.state.arrays.find(handle);
  return array ? body(*array) : CUDA_ERROR_INVALID_HANDLE;
}

template <class Descriptor>
CUresult describe_flat(Descriptor* out, CUarray handle) {
  return with_array(handle, out, [&](const Array& array) {
    *out = {};
    out->Width = static_cast<decltype(out->Width)>(array.description.Width);
    out->Height = static_cast<decltype(out->Height)>(array.description.Height);
    out->Format = array.description.Format;
    out->NumChannels = array.description.NumChannels;
    return CUDA_SUCCESS;
  });
}

}  // namespace

SIM_API cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  if (const CUresult refused = refuse_call()) return refused;
  return description == nullptr ? kWrong : create(out, *description);
}
SIM_API cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* description) {
  if (const CUresult refused = refuse_call()) return refused;
  return description == nullptr ? kWrong : create(out, deep(*description));
}
SIM_API cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* description) {
  if (const CUresult refused = refuse_call()) return refused;
  return description == nullptr ? kWrong : create(out, flat(*description));
}
SIM_API cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* description) {
  if (const CUresult refused = refuse_call()) return refused;
  return description == nullptr ? kWrong : create(out, flat(*description));
}

SIM_API cuArrayDestroy(CUarray handle) {
  Call call(Call::kUnsafeInCapture);
  if (!call) return call.error;
  const auto array = call.state.arrays.find(handle);
  if (!array || array->mipmap != 0) return CUDA_ERROR_INVALID_HANDLE;
  call.state.arrays.remove(array->handle);
  return give_back(call, array->context, array->address);
}

SIM_API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return with_array(handle, out, [&](const Array& array) {
    *out = array.description;
    return CUDA_SUCCESS;
  });
}
SIM_API cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* out, CUarray handle) {
  const CUresult result = describe_flat(out, handle);
  if (result != CUDA_SUCCESS) return result;
  return with_array(handle, out, [&](const Array& array) {
    out->Depth = static_cast<unsigned>(array.description.Depth);
    out->Flags = array.description.Flags;
    return CUDA_SUCCESS;
  });
}
SIM_API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  return describe_flat(out, handle);
}
SIM_API cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* out, CUarray handle) {
  return describe_flat(out, handle);
}

// The driver tells it of arrays alone whose memory is mapped later.
SIM_API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle,
                                     CUdevice) {
  return with_array(handle, out, [](const Array&) { return kWrong; });
}

SIM_API cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* description,
                               unsigned levels) {
  Call call(Call::kContext | Call::kUnsafeInCapture);
  if (!call) return call.error;
  if (out == nullptr || description == nullptr || levels == 0) return kWrong;
  if (const CUresult refused = check(*description)) return refused;
  const bool layered = description->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  const uint64_t largest =
      std::max({description->Width, description->Height, layered ? size_t{0} : description->Depth});
  levels = std::min(levels, static_cast<unsigned>(std::bit_width(largest)));
  std::vector<Array> sized(levels);
  uint64_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    const auto smaller = [&](size_t extent) {
      return extent == 0 ? 0 : std::max<size_t>(extent >> level, 1);
    };
    CUDA_ARRAY3D_DESCRIPTOR& d = sized[level].description;
    d = *description;
    d.Width = smaller(d.Width);
    d.Height = smaller(d.Height);
    if (!layered) d.Depth = smaller(d.Depth);
    sized[level].address = bytes;
    bytes += sized[level].bytes();
  }
  const auto address = allocate_device(call.state, *call.context, bytes, MemoryKind::kArray);
  if (!address) return address.error();
  auto mipmap = std::make_shared<MipmappedArray>();
  mipmap->handle = call.state.new_handle();
  mipmap->context = call.context;
  mipmap->address = *address;
  for (const Array& level : sized) {
    const auto array = add_array(call, level.description);
    array->address = *address + level.address;
    array->mipmap = mipmap->handle;
    mipmap->levels.push_back(array->handle);
  }
  call.state.mipmaps.add(mipmap);
  *out = to_handle<CUmipmappedArray>(mipmap->handle);
  return CUDA_SUCCESS;
}

SIM_API cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto mipmap = call.state.mipmaps.find(handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= mipmap->levels.size()) return kWrong;
  *out = to_handle<CUarray>(mipmap->levels[level]);
  return CUDA_SUCCESS;
}

SIM_API cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  Call call(Call::kUnsafeInCapture);
  if (!call) return call.error;
  const auto mipmap = call.state.mipmaps.find(handle);
  if (!mipmap) return CUDA_ERROR_INVALID_HANDLE;
  for (const uint64_t level : mipmap->levels) call.state.arrays.remove(level);
  call.state.mipmaps.remove(mipmap->handle);
  return give_back(call, mipmap->context, mipmap->address);
}
