// alloc_limit [CHUNK_BYTES [MOST_BYTES]]: allocates until the driver says out of memory (or
// MOST_BYTES), and prints what it was told and given:
//   device_total_bytes=  free_bytes=  total_bytes=  allocated_bytes=  error=  after_free_bytes=
// error is the CUresult that ended it (2 is out of memory, 0 is MOST_BYTES reached). With
// PROGRAM_WAIT_FILE set it waits before freeing.
#define DRIVER(name) name
#include "driver_work.h"

int main(int argc, char** argv) {
  const auto chunk_bytes = argument(argc, argv, 1, 256ull << 20);
  const auto most_bytes = argument(argc, argv, 2, ~0ull);
  CHECK(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  size_t device_total = 0, free_bytes = 0, total_bytes = 0;
  CHECK(cuDeviceTotalMem(&device_total, device));
  CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
  std::printf("device_total_bytes=%zu free_bytes=%zu total_bytes=%zu\n", device_total, free_bytes,
              total_bytes);
  std::vector<CUdeviceptr> chunks;
  CUresult result = CUDA_SUCCESS;
  while (chunks.size() * chunk_bytes < most_bytes) {
    CUdeviceptr chunk = 0;
    result = cuMemAlloc(&chunk, chunk_bytes);
    if (result != CUDA_SUCCESS) break;
    chunks.push_back(chunk);
  }
  CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
  std::printf("allocated_bytes=%llu error=%d free_bytes=%zu\n",
              static_cast<unsigned long long>(chunks.size() * chunk_bytes),
              static_cast<int>(result), free_bytes);
  std::fflush(stdout);
  wait_until_told();  // with all of it held
  for (CUdeviceptr chunk : chunks) CHECK(cuMemFree(chunk));
  CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
  std::printf("after_free_bytes=%zu\n", free_bytes);
  return finish(Counts{});
}
