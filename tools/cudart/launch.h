// The one way a kernel launch takes from any runtime entry point to the driver: `<<<>>>`,
// cudaLaunchKernel and cudaLaunchCooperativeKernel. Called on the launching thread; records the
// thread's last error. Extended launches (attributes) go to cuLaunchKernelEx in launch.cc.
#pragma once

#include "tools/cudart/runtime.h"

namespace lull::cudart {

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
  bool cooperative;
};

cudaError_t launch(Twin twin, CUkernel kernel, const LaunchShape& shape, void** arguments);

}  // namespace lull::cudart
