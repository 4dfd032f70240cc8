// How many blocks fit: from the profile's limits, as the cost rules see them.
#include <algorithm>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/work.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

std::shared_ptr<Function> function_of(Call& call, CUfunction handle) {
  CUresult error = CUDA_SUCCESS;
  auto function = find_function(call.state, *call.context, handle, error);
  call.error = error;
  return function;
}

}  // namespace

SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                             int threads, size_t shared_bytes,
                                                             unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (blocks == nullptr || threads <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
    return kWrong;
  const auto function = function_of(call, handle);
  if (!function) return call.error;
  *blocks = static_cast<int>(blocks_per_sm_of(call.state, call.context->device, *function,
                                              static_cast<uint32_t>(threads), shared_bytes));
  return CUDA_SUCCESS;
}

SIM_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                    size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared_bytes,
                                                              0);
}

SIM_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* least_grid, int* block, CUfunction handle,
                                                  CUoccupancyB2DSize shared_of_block,
                                                  size_t shared_bytes, int limit, unsigned flags) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (least_grid == nullptr || block == nullptr || limit < 0 ||
      flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return kWrong;
  }
  const auto function = function_of(call, handle);
  if (!function) return call.error;
  call.lock.unlock();  // the callback is the program's; nothing below changes
  int most = static_cast<int>(function->kernel->max_threads);
  if (limit > 0) most = std::min(most, limit);
  int best_threads = 0;
  int best_blocks = 0;
  constexpr int kWarp = 32;
  for (int threads = std::max(kWarp, most / kWarp * kWarp); threads > 0; threads -= kWarp) {
    const int size = std::min(threads, most);
    const size_t shared = shared_of_block != nullptr ? shared_of_block(size) : shared_bytes;
    const int blocks = static_cast<int>(blocks_per_sm_of(
        call.state, call.context->device, *function, static_cast<uint32_t>(size), shared));
    if (blocks * size > best_blocks * best_threads) {
      best_threads = size;
      best_blocks = blocks;
    }
  }
  *block = best_threads;
  *least_grid = best_blocks * static_cast<int>(call.state.profile(call.context->device).sm_count);
  return CUDA_SUCCESS;
}

SIM_API cuOccupancyMaxPotentialBlockSize(int* least_grid, int* block, CUfunction handle,
                                         CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                         int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(least_grid, block, handle, shared_of_block,
                                                   shared_bytes, limit, 0);
}

SIM_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                int threads) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (bytes == nullptr || blocks <= 0 || threads <= 0) return kWrong;
  const auto function = function_of(call, handle);
  if (!function) return call.error;
  const auto& profile = call.state.profile(call.context->device);
  const uint64_t share = profile.shared_bytes_per_sm / static_cast<uint64_t>(blocks);
  const uint64_t most = std::min<uint64_t>(share, profile.shared_bytes_per_block_optin);
  const uint64_t fixed = function->kernel->static_shared_bytes;
  *bytes = most > fixed ? most - fixed : 0;
  return CUDA_SUCCESS;
}

SIM_API cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle,
                                           const CUlaunchConfig* config) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (size == nullptr || config == nullptr) return kWrong;
  const auto function = function_of(call, handle);
  if (!function) return call.error;
  *size = function->attributes.non_portable_cluster ? 16 : 8;
  return CUDA_SUCCESS;
}

SIM_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                     const CUlaunchConfig* config) {
  Call call(Call::kContext);
  if (!call) return call.error;
  if (clusters == nullptr || config == nullptr) return kWrong;
  const auto function = function_of(call, handle);
  if (!function) return call.error;
  uint64_t cluster_blocks = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& cluster = config->attrs[i].value.clusterDim;
      cluster_blocks = std::max<uint64_t>(1, uint64_t{cluster.x} * cluster.y * cluster.z);
    }
  }
  const uint32_t threads = config->blockDimX * config->blockDimY * config->blockDimZ;
  const uint64_t resident = uint64_t{blocks_per_sm_of(call.state, call.context->device, *function,
                                                      threads, config->sharedMemBytes)} *
                            call.state.profile(call.context->device).sm_count;
  *clusters = static_cast<int>(resident / cluster_blocks);
  return CUDA_SUCCESS;
}
