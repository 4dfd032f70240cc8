// Arrays: what is copied to them and from them, how much they take, and what is refused.
#include <cstring>
#include <vector>

#include "tests/simgpu/driver/sim_program.h"

using sim_test::Program;

namespace {

using Bytes = std::vector<unsigned char>;

Bytes numbered(size_t bytes, unsigned seed) {
  Bytes all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = static_cast<unsigned char>(i * 31 + i / 251 + seed);
  return all;
}

CUDA_ARRAY3D_DESCRIPTOR described(size_t width, size_t height, size_t depth, CUarray_format format,
                                  unsigned channels, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR description = {};
  description.Width = width;
  description.Height = height;
  description.Depth = depth;
  description.Format = format;
  description.NumChannels = channels;
  description.Flags = flags;
  return description;
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  OK(cuMemGetInfo_v2(&free, &total));
  return free;
}

CUDA_MEMCPY3D box(size_t width_bytes, size_t height, size_t depth) {
  CUDA_MEMCPY3D copy = {};
  copy.WidthInBytes = width_bytes;
  copy.Height = height;
  copy.Depth = depth;
  return copy;
}

void to_host(CUDA_MEMCPY3D& copy, Bytes& bytes) {
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = bytes.data();
  copy.dstPitch = copy.WidthInBytes;
  copy.dstHeight = copy.Height;
}
void from_host(CUDA_MEMCPY3D& copy, const Bytes& bytes) {
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = bytes.data();
  copy.srcPitch = copy.WidthInBytes;
  copy.srcHeight = copy.Height;
}

}  // namespace

TEST_CASE("boxes of an array are copied in, within the device, and out") {
  Program program;
  const size_t before = free_bytes();
  CUarray first = nullptr, second = nullptr;
  const auto description = described(20, 10, 6, CU_AD_FORMAT_FLOAT, 2);  // 8 bytes an element
  OK(cuArray3DCreate_v2(&first, &description));
  OK(cuArray3DCreate_v2(&second, &description));
  CHECK(free_bytes() == before - 2 * ((20 * 10 * 6 * 8 + 511) / 512 * 512));
  const Bytes bytes = numbered(20 * 8 * 10 * 6, 1);
  CUDA_MEMCPY3D in = box(160, 10, 6);
  from_host(in, bytes);
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = first;
  OK(cuMemcpy3D_v2(&in));
  // A box from the middle of one to a corner of the other.
  CUDA_MEMCPY3D across = box(40, 3, 2);
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = first;
  across.srcXInBytes = 16;
  across.srcY = 4;
  across.srcZ = 3;
  across.dstArray = second;
  across.dstXInBytes = 120;
  across.dstY = 7;
  across.dstZ = 4;
  OK(cuMemcpy3DAsync_v2(&across, nullptr));
  Bytes back(40 * 3 * 2);
  CUDA_MEMCPY3D out = box(40, 3, 2);
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = second;
  out.srcXInBytes = 120;
  out.srcY = 7;
  out.srcZ = 4;
  to_host(out, back);
  OK(cuMemcpy3D_v2(&out));
  bool same = true;
  for (size_t z = 0; z < 2; ++z) {
    for (size_t y = 0; y < 3; ++y) {
      same = same && std::memcmp(&back[(z * 3 + y) * 40], &bytes[((z + 3) * 10 + y + 4) * 160 + 16],
                                 40) == 0;
    }
  }
  CHECK(same);
  // Beyond its ends, and between elements.
  for (auto change :
       {+[](CUDA_MEMCPY3D& wrong) { wrong.srcXInBytes += 8; },
        +[](CUDA_MEMCPY3D& wrong) { ++wrong.srcY; }, +[](CUDA_MEMCPY3D& wrong) { ++wrong.srcZ; },
        +[](CUDA_MEMCPY3D& wrong) { wrong.srcXInBytes -= 4; },
        +[](CUDA_MEMCPY3D& wrong) { wrong.srcArray = nullptr; }}) {
    CUDA_MEMCPY3D wrong = out;
    change(wrong);
    CHECK(cuMemcpy3D_v2(&wrong) == CUDA_ERROR_INVALID_VALUE);
  }
  // By way of linear memory with a pitch.
  CUdeviceptr linear = 0;
  size_t pitch = 0;
  OK(cuMemAllocPitch_v2(&linear, &pitch, 160, 10, 4));
  CUDA_MEMCPY2D plane = {};
  plane.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  plane.srcArray = first;
  plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  plane.dstDevice = linear;
  plane.dstPitch = pitch;
  plane.WidthInBytes = 160;
  plane.Height = 10;
  OK(cuMemcpy2DAsync_v2(&plane, nullptr));
  Bytes row(160);
  OK(cuMemcpyDtoH_v2(row.data(), linear + 9 * pitch, 160));
  CHECK(std::memcmp(row.data(), &bytes[9 * 160], 160) == 0);
  OK(cuMemFree_v2(linear));
  OK(cuArrayDestroy(first));
  CHECK(cuArrayDestroy(first) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuMemcpy3D_v2(&in) == CUDA_ERROR_INVALID_VALUE);
  OK(cuArrayDestroy(second));
  CHECK(free_bytes() == before);
}

TEST_CASE("rows of arrays of one dimension, and what nobody has written") {
  Program program;
  CUarray one = nullptr, other = nullptr;
  CUDA_ARRAY_DESCRIPTOR flat = {};
  flat.Width = 1000;
  flat.Format = CU_AD_FORMAT_UNSIGNED_INT16;
  flat.NumChannels = 1;
  OK(cuArrayCreate_v2(&one, &flat));
  OK(cuArrayCreate_v2(&other, &flat));
  const Bytes bytes = numbered(600, 3);
  Bytes back(600);
  OK(cuMemcpyHtoA_v2(one, 100, bytes.data(), 600));
  OK(cuMemcpyAtoA_v2(other, 1400, one, 100, 600));
  OK(cuMemcpyAtoH_v2(back.data(), other, 1400, 600));
  CHECK(back == bytes);
  OK(cuMemcpyAtoH_v2(back.data(), other, 0, 600));
  CHECK(back == Bytes(600, sim_test::kFreshByte));
  CUdeviceptr linear = 0;
  OK(cuMemAlloc_v2(&linear, 600));
  OK(cuMemcpyAtoD_v2(linear, one, 100, 600));
  OK(cuMemcpyDtoA_v2(other, 0, linear, 600));
  OK(cuMemcpyAtoHAsync_v2(back.data(), other, 0, 600, nullptr));
  OK(cuCtxSynchronize());
  CHECK(back == bytes);
  OK(cuMemcpyHtoAAsync_v2(one, 0, back.data(), 600, nullptr));
  OK(cuMemcpyAtoH(back.data(), one, 0, 600));
  CHECK(back == bytes);
  CHECK(cuMemcpyAtoH_v2(back.data(), one, 1402, 600) == CUDA_ERROR_INVALID_VALUE);
  CUDA_ARRAY_DESCRIPTOR told = {};
  OK(cuArrayGetDescriptor_v2(&told, one));
  CHECK((told.Width == 1000 && told.Height == 0 && told.NumChannels == 1));
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements = {};
  CHECK(cuArrayGetMemoryRequirements(&requirements, one, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(linear));
  OK(cuArrayDestroy(one));
  OK(cuArrayDestroy(other));
}

TEST_CASE("levels of a mipmapped array are arrays of their own that go with it") {
  Program program;
  const size_t before = free_bytes();
  CUmipmappedArray mipmap = nullptr;
  const auto description = described(64, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4);
  OK(cuMipmappedArrayCreate(&mipmap, &description, 100));
  CUarray level[7] = {};
  size_t bytes = 0;
  for (unsigned n = 0; n < 7; ++n) {
    OK(cuMipmappedArrayGetLevel(&level[n], mipmap, n));
    CUDA_ARRAY3D_DESCRIPTOR told = {};
    OK(cuArray3DGetDescriptor_v2(&told, level[n]));
    CHECK((told.Width == size_t{64} >> n && told.Height == std::max<size_t>(16 >> n, 1)));
    bytes += told.Width * told.Height * 4;
    const Bytes filled(4, static_cast<unsigned char>(n));
    OK(cuMemcpyHtoA_v2(level[n], 0, filled.data(), 4));
  }
  CHECK(cuMipmappedArrayGetLevel(&level[0], mipmap, 7) == CUDA_ERROR_INVALID_VALUE);
  CHECK(free_bytes() == before - (bytes + 511) / 512 * 512);
  for (unsigned n = 0; n < 7; ++n) {
    Bytes back(4);
    OK(cuMemcpyAtoH_v2(back.data(), level[n], 0, 4));
    CHECK(back == Bytes(4, static_cast<unsigned char>(n)));
  }
  CHECK(cuArrayDestroy(level[1]) == CUDA_ERROR_INVALID_HANDLE);
  OK(cuMipmappedArrayDestroy(mipmap));
  CUDA_ARRAY_DESCRIPTOR told = {};
  CHECK(cuArrayGetDescriptor_v2(&told, level[0]) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(free_bytes() == before);
}

TEST_CASE("what no array can be is refused, and a context takes its arrays along") {
  Program program;
  const size_t before = free_bytes();
  CUarray array = nullptr;
  const auto refused = [&](const CUDA_ARRAY3D_DESCRIPTOR& description) {
    return cuArray3DCreate_v2(&array, &description);
  };
  CHECK(refused(described(0, 0, 0, CU_AD_FORMAT_FLOAT, 1)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(refused(described(8, 0, 8, CU_AD_FORMAT_FLOAT, 1)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(refused(described(8, 8, 8, CU_AD_FORMAT_FLOAT, 3)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(refused(described(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE)) ==
        CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuArray3DCreate_v2(&array, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(refused(described(100000, 100000, 100, CU_AD_FORMAT_FLOAT, 4)) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(free_bytes() == before);
  CUcontext context = nullptr;
  OK(cuCtxCreate_v2(&context, 0, 0));
  const auto description = described(1000, 1000, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  OK(cuArray3DCreate_v2(&array, &description));
  CHECK(free_bytes() < before);
  OK(cuCtxDestroy_v2(context));
  OK(cuCtxSetCurrent(program.context));
  CHECK(free_bytes() == before);
  CHECK(cuArrayDestroy(array) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("the driver says what graphs hold") {
  Program program;
  const auto held = [](CUgraphMem_attribute attribute) {
    cuuint64_t bytes = 1;
    OK(cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
    return bytes;
  };
  CHECK(held(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  OK(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  allocation.bytesize = 3 << 20;
  OK(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation));
  CHECK(held(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 4 << 20);
  CHECK(held(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 4 << 20);
  cuuint64_t none = 0;
  OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
  OK(cuDeviceGraphMemTrim(0));
  CHECK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &none) ==
        CUDA_ERROR_INVALID_VALUE);
  cuuint64_t bytes = 0;
  CHECK(cuDeviceGetGraphMemAttribute(7, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes) ==
        CUDA_ERROR_INVALID_DEVICE);
}
