// Everything that starts kernels: launches in all forms, graphs, and host functions in a stream.
#include "shim/submit.h"

using namespace lull::shim;

namespace {

// What lets the next kernel start before this one has ended.
bool is_programmatic(const CUlaunchConfig& config) {
  for (unsigned n = 0; n < config.numAttrs; ++n) {
    const CUlaunchAttribute& attribute = config.attrs[n];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return true;
  }
  return false;
}

template <typename Call>
[[gnu::always_inline]] inline CUresult launch_config(const CUlaunchConfig* config, CUfunction f,
                                                     DefaultStream variant, Call&& call) {
  if (config == nullptr) return forward(thread_state, call);
  Unit unit{f,
            {{config->gridDimX, config->gridDimY, config->gridDimZ},
             {config->blockDimX, config->blockDimY, config->blockDimZ},
             config->sharedMemBytes},
            normalise(config->hStream, variant)};
  unit.undisturbed = config->numAttrs != 0 && config->attrs != nullptr && is_programmatic(*config);
  return submit(unit, call);
}

// The program's own code in a stream: no device time, but a unit behind it does not follow on.
template <typename Call>
CUresult host_function(Call&& call) {
  if (thread_state.depth == 0) break_chain(thread_state);
  return forward(thread_state, call);
}

}  // namespace

#define LULL_LAUNCHES(suffix, variant)                                                            \
  LULL_ENTRY(cuLaunchKernel##suffix)                                                              \
  (CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,                   \
   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,   \
   CUstream stream, void** params, void** extra) {                                                \
    return submit(Unit{f,                                                                         \
                       {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},     \
                       normalise(stream, variant)},                                               \
                  [&] {                                                                           \
                    return driver().cuLaunchKernel##suffix(f, grid_x, grid_y, grid_z, block_x,    \
                                                           block_y, block_z, shared_bytes,        \
                                                           stream, params, extra);                \
                  });                                                                             \
  }                                                                                               \
  LULL_ENTRY(cuLaunchCooperativeKernel##suffix)                                                   \
  (CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,                   \
   unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,   \
   CUstream stream, void** params) {                                                              \
    return submit(Unit{f,                                                                         \
                       {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes},     \
                       normalise(stream, variant)},                                               \
                  [&] {                                                                           \
                    return driver().cuLaunchCooperativeKernel##suffix(                            \
                        f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,       \
                        stream, params);                                                          \
                  });                                                                             \
  }                                                                                               \
  LULL_ENTRY(cuLaunchKernelEx##suffix)                                                            \
  (const CUlaunchConfig* config, CUfunction f, void** params, void** extra) {                     \
    return launch_config(config, f, variant, [&] {                                                \
      return driver().cuLaunchKernelEx##suffix(config, f, params, extra);                         \
    });                                                                                           \
  }                                                                                               \
  LULL_ENTRY(cuGraphLaunch##suffix)(CUgraphExec exec, CUstream stream) {                          \
    return submit(Unit{exec, {}, normalise(stream, variant)},                                     \
                  [&] { return driver().cuGraphLaunch##suffix(exec, stream); });                  \
  }                                                                                               \
  LULL_ENTRY(cuLaunchHostFunc##suffix)(CUstream stream, CUhostFn function, void* data) {          \
    return host_function(                                                                         \
        [&] { return driver().cuLaunchHostFunc##suffix(stream, function, data); });               \
  }                                                                                               \
  LULL_ENTRY(cuStreamAddCallback##suffix)                                                         \
  (CUstream stream, CUstreamCallback callback, void* data, unsigned int flags) {                  \
    return host_function([&] {                                                                    \
      return driver().cuStreamAddCallback##suffix(stream, callback, data, flags);                 \
    });                                                                                           \
  }
LULL_LAUNCHES(, DefaultStream::kLegacy)
LULL_LAUNCHES(_ptsz, DefaultStream::kPerThread)
#undef LULL_LAUNCHES

namespace {

// One unit a device, each with its own gate; the driver is called once, inside the last.
CUresult launch_on_each(CUDA_LAUNCH_PARAMS* list, unsigned int count, unsigned int flags,
                        unsigned int at) {
  if (at == count) {
    return forward(thread_state, [&] {
      return driver().cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    });
  }
  const CUDA_LAUNCH_PARAMS& one = list[at];
  Unit unit{one.function,
            {{one.gridDimX, one.gridDimY, one.gridDimZ},
             {one.blockDimX, one.blockDimY, one.blockDimZ},
             one.sharedMemBytes},
            normalise(one.hStream, DefaultStream::kLegacy)};
  // The others wait at gates of their own meanwhile, and who waits there uses nothing.
  unit.uses_memory = at + 1 == count;
  return submit(unit, [&] {
    // submit has entered a driver call; the next unit is still ours.
    ThreadState& thread = thread_state;
    const uint32_t depth = thread.depth;
    thread.depth = 0;
    const CUresult result = launch_on_each(list, count, flags, at + 1);
    thread.depth = depth;
    return result;
  });
}

}  // namespace

LULL_ENTRY(cuLaunchCooperativeKernelMultiDevice)
(CUDA_LAUNCH_PARAMS* list, unsigned int count, unsigned int flags) {
  if (thread_state.depth != 0 || list == nullptr || count == 0 ||
      count > lull::channel::kMaxDevices) {
    return forward(thread_state, [&] {
      return driver().cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    });
  }
  return launch_on_each(list, count, flags, 0);
}

// The launch calls of CUDA 1. Their block shape was set by calls of its own and is left out.
LULL_ENTRY(cuLaunch)(CUfunction f) {
  return submit(Unit{f, {{1, 1, 1}, {0, 0, 0}, 0}, kLegacyHandle},
                [&] { return driver().cuLaunch(f); });
}
LULL_ENTRY(cuLaunchGrid)(CUfunction f, int width, int height) {
  return submit(Unit{f,
                     {{static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1}, {0, 0, 0}, 0},
                     kLegacyHandle},
                [&] { return driver().cuLaunchGrid(f, width, height); });
}
LULL_ENTRY(cuLaunchGridAsync)(CUfunction f, int width, int height, CUstream stream) {
  return submit(Unit{f,
                     {{static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1}, {0, 0, 0}, 0},
                     normalise(stream, DefaultStream::kLegacy)},
                [&] { return driver().cuLaunchGridAsync(f, width, height, stream); });
}
