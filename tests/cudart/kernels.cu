#include "kernels.h"

#include <cuda_runtime.h>

__constant__ float table[16];
__device__ int counter;
__managed__ int shared_number;

__global__ void touch(float* data, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = table[i % 16] + counter + shared_number;
}

__global__ void unused(int* data) { *data = 1; }

void launch_touch(float* data, int count, int blocks, int threads, cudaStream_t stream) {
  touch<<<blocks, threads, 0, stream>>>(data, count);
}
const void* touch_function() { return reinterpret_cast<const void*>(touch); }
const void* table_symbol() { return table; }
const void* counter_symbol() { return &counter; }
int* shared_number_address() { return &shared_number; }
cudaError_t touch_block_size(int* blocks, int* threads) {
  return cudaOccupancyMaxPotentialBlockSize(blocks, threads, touch, 0, 0);
}
