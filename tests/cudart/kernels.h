// The CUDA side of cudart_test.cc, compiled by nvcc: kernels, variables and their host addresses.
#pragma once

#include <cuda_runtime_api.h>

void launch_touch(float* data, int count, int blocks, int threads, cudaStream_t stream);
const void* touch_function();  // touch(float*, int)
const void* table_symbol();    // __constant__ float[16]
const void* counter_symbol();  // __device__ int
int* shared_number_address();  // __managed__ int
cudaError_t touch_block_size(int* blocks, int* threads);
