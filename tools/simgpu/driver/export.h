// How a driver call is defined here: SIM_API at the start of a line, then the exported name. That
// is the form generate.py looks for, so a call that is written is a call that is exported.
#pragma once

#include <cuda.h>

#define SIM_API extern "C" __attribute__((visibility("default"))) CUresult

namespace simgpu::driver {

// While one lives, stream 0 means the calling thread's own stream: the _ptds/_ptsz variants.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream() { ++depth_; }
  ~PerThreadDefaultStream() { --depth_; }
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;
  static bool active() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace simgpu::driver
