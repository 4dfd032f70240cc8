// Every way to put a kernel or a host function on a stream.
#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/graph.h"

using namespace simgpu::driver;

namespace {

constexpr CUresult kWrong = CUDA_ERROR_INVALID_VALUE;

struct Shape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};

CUresult launch(CUfunction function, const Shape& shape, CUstream stream_handle, void** parameters,
                void** extra, bool cooperative, const CUlaunchAttribute* attributes,
                unsigned count) {
  Call call;
  if (!call) return call.error;
  const auto stream = call.stream(stream_handle);
  if (!stream) return stream.error();
  const auto context = call.state.context_of(**stream);
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  std::shared_ptr<Event> after;
  std::map<int, CUlaunchAttributeValue> kept;
  for (unsigned i = 0; i < count; ++i) {
    const CUlaunchAttribute& attribute = attributes[i];
    kept[attribute.id] = attribute.value;
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        cooperative |= attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
        const auto& cluster = attribute.value.clusterDim;
        constexpr uint64_t kMaxClusterBlocks = 16;
        if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || shape.grid[0] % cluster.x != 0 ||
            shape.grid[1] % cluster.y != 0 || shape.grid[2] % cluster.z != 0 ||
            uint64_t{cluster.x} * cluster.y * cluster.z > kMaxClusterBlocks) {
          return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        }
        break;
      }
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        // The earliest moment that is always allowed: the end of the kernel.
        after = call.state.events.find(attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                                           ? attribute.value.programmaticEvent.event
                                           : attribute.value.launchCompletionEvent.event);
        if (!after) return CUDA_ERROR_INVALID_HANDLE;
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (attribute.value.deviceUpdatableKernelNode.deviceUpdatable)
          return CUDA_ERROR_NOT_SUPPORTED;
        break;
      default:
        if (attribute.id < 0 || attribute.id >= CU_LAUNCH_ATTRIBUTE_MAX) return kWrong;
    }
  }
  auto work = make_kernel_work(call.state, *context, function, shape.grid, shape.block,
                               shape.shared_bytes, parameters, extra, cooperative);
  if (!work) return work.error();
  const auto module = work->function->module.lock();
  if (!module || module->context.lock() != context) return CUDA_ERROR_INVALID_HANDLE;
  work->attributes = std::move(kept);
  const CUresult result = enqueue(call, *stream, std::move(*work));
  if (result != CUDA_SUCCESS || !after || (*stream)->capture) return result;
  return enqueue(call, *stream, RecordWork{after});
}

}  // namespace

SIM_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void** parameters, void** extra) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},
                stream, parameters, extra, false, nullptr, 0);
}

SIM_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                         void** extra) {
  if (const CUresult refused = refuse_call()) return refused;
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) return kWrong;
  return launch(function,
                {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes},
                config->hStream, parameters, extra, false, config->attrs, config->numAttrs);
}

SIM_API cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes, CUstream stream,
                                  void** parameters) {
  return launch(function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},
                stream, parameters, nullptr, true, nullptr, 0);
}

SIM_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  Call call;
  if (!call) return call.error;
  if (function == nullptr) return kWrong;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  return enqueue(call, *stream, HostWork{function, user_data});
}

SIM_API cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user_data,
                            unsigned flags) {
  Call call;
  if (!call) return call.error;
  if (callback == nullptr || flags != 0) return kWrong;
  const auto stream = call.stream(handle);
  if (!stream) return stream.error();
  if ((*stream)->capture) {
    return invalidate(*(*stream)->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return enqueue(call, *stream, HostWork{nullptr, user_data, callback, handle});
}

// --- the calls of CUDA 3: block shape, shared memory and arguments are set beforehand ---

namespace {

template <class Body>
CUresult with_function(CUfunction handle, Body body) {
  Call call(Call::kContext);
  if (!call) return call.error;
  const auto function = call.state.functions.find(handle);
  return function ? body(*function) : CUDA_ERROR_INVALID_HANDLE;
}

constexpr int kMaxArgumentBytes = 4096;

CUresult set_argument(CUfunction handle, int offset, const void* data, unsigned size) {
  return with_function(handle, [&](Function& function) {
    if (offset < 0 || size > kMaxArgumentBytes ||
        offset + static_cast<int>(size) > kMaxArgumentBytes) {
      return kWrong;
    }
    if (size > 0 && data == nullptr) return kWrong;
    function.arguments.resize(std::max<size_t>(function.arguments.size(), offset + size));
    std::memcpy(function.arguments.data() + offset, data, size);
    return CUDA_SUCCESS;
  });
}

CUresult launch_grid(CUfunction handle, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return kWrong;
  Shape shape{{static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1}, {}, 0};
  std::vector<uint8_t> arguments;
  const CUresult found = with_function(handle, [&](Function& function) {
    std::memcpy(shape.block, function.block, sizeof shape.block);
    shape.shared_bytes = function.shared_bytes;
    arguments = function.arguments;
    arguments.resize(std::max<size_t>(arguments.size(), function.kernel->parameter_bytes));
    return CUDA_SUCCESS;
  });
  if (found != CUDA_SUCCESS) return found;
  size_t size = arguments.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  return launch(handle, shape, stream, nullptr, extra, false, nullptr, 0);
}

}  // namespace

SIM_API cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  return with_function(handle, [&](Function& function) {
    if (x <= 0 || y <= 0 || z <= 0) return kWrong;
    function.block[0] = static_cast<uint32_t>(x);
    function.block[1] = static_cast<uint32_t>(y);
    function.block[2] = static_cast<uint32_t>(z);
    return CUDA_SUCCESS;
  });
}

SIM_API cuFuncSetSharedSize(CUfunction handle, unsigned bytes) {
  return with_function(handle, [&](Function& function) {
    function.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

SIM_API cuParamSetSize(CUfunction handle, unsigned bytes) {
  return with_function(handle, [&](Function& function) {
    if (bytes > kMaxArgumentBytes) return kWrong;
    function.arguments.resize(bytes);
    return CUDA_SUCCESS;
  });
}

SIM_API cuParamSeti(CUfunction handle, int offset, unsigned value) {
  return set_argument(handle, offset, &value, sizeof value);
}
SIM_API cuParamSetf(CUfunction handle, int offset, float value) {
  return set_argument(handle, offset, &value, sizeof value);
}
SIM_API cuParamSetv(CUfunction handle, int offset, void* data, unsigned size) {
  return set_argument(handle, offset, data, size);
}

SIM_API cuLaunch(CUfunction handle) { return launch_grid(handle, 1, 1, nullptr); }
SIM_API cuLaunchGrid(CUfunction handle, int width, int height) {
  return launch_grid(handle, width, height, nullptr);
}
SIM_API cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) {
  return launch_grid(handle, width, height, stream);
}
