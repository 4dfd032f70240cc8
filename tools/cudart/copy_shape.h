// A runtime copy described the driver's way: what is on which side follows from the kind. Pure;
// used by memory.cc and graph.cc. Arrays are not covered.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace lull::cudart {

inline CUmemorytype source_type(cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                        : CU_MEMORYTYPE_DEVICE;
}

inline CUmemorytype destination_type(cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                        : CU_MEMORYTYPE_DEVICE;
}

// Host and device addresses share one address space: both fields are set, the type chooses.
template <typename Shape>
void set_ends(Shape& shape, void* to, const void* from, cudaMemcpyKind kind) {
  shape.srcMemoryType = source_type(kind);
  shape.dstMemoryType = destination_type(kind);
  if (shape.srcMemoryType == CU_MEMORYTYPE_HOST) {
    shape.srcHost = from;
  } else {
    shape.srcDevice = reinterpret_cast<CUdeviceptr>(from);
  }
  if (shape.dstMemoryType == CU_MEMORYTYPE_HOST) {
    shape.dstHost = to;
  } else {
    shape.dstDevice = reinterpret_cast<CUdeviceptr>(to);
  }
}

inline CUDA_MEMCPY2D copy_shape_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                   size_t width, size_t height, cudaMemcpyKind kind) {
  CUDA_MEMCPY2D shape{};
  set_ends(shape, to, from, kind);
  shape.srcPitch = from_pitch;
  shape.dstPitch = to_pitch;
  shape.WidthInBytes = width;
  shape.Height = height;
  return shape;
}

inline CUDA_MEMCPY3D copy_shape_1d(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D shape{};
  set_ends(shape, to, from, kind);
  shape.srcPitch = shape.dstPitch = bytes;
  shape.srcHeight = shape.dstHeight = 1;
  shape.WidthInBytes = bytes;
  shape.Height = shape.Depth = 1;
  return shape;
}

inline bool is_pitched_copy(const cudaMemcpy3DParms* parameters) {
  return parameters != nullptr && parameters->srcArray == nullptr &&
         parameters->dstArray == nullptr;
}

inline CUDA_MEMCPY3D copy_shape_3d(const cudaMemcpy3DParms& from) {
  CUDA_MEMCPY3D shape{};
  set_ends(shape, from.dstPtr.ptr, from.srcPtr.ptr, from.kind);
  shape.srcXInBytes = from.srcPos.x;
  shape.srcY = from.srcPos.y;
  shape.srcZ = from.srcPos.z;
  shape.srcPitch = from.srcPtr.pitch;
  shape.srcHeight = from.srcPtr.ysize;
  shape.dstXInBytes = from.dstPos.x;
  shape.dstY = from.dstPos.y;
  shape.dstZ = from.dstPos.z;
  shape.dstPitch = from.dstPtr.pitch;
  shape.dstHeight = from.dstPtr.ysize;
  shape.WidthInBytes = from.extent.width;
  shape.Height = from.extent.height;
  shape.Depth = from.extent.depth;
  return shape;
}

}  // namespace lull::cudart
