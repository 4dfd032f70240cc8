// The tables that generate.py writes from the toolkit's headers and driver_exports.txt.
#pragma once

#include <stddef.h>

namespace simgpu::driver {

// One row of cuGetProcAddress: `name` as of `version` is `address`.
struct ProcAddress {
  const char* name;
  int version;
  bool per_thread;  // the _ptds/_ptsz symbol
  void* address;
};
extern const ProcAddress kProcAddresses[];  // by name, plain before per-thread, then by version
extern const size_t kProcAddressCount;

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};
extern const ErrorText kErrorTexts[];
extern const size_t kErrorTextCount;

}  // namespace simgpu::driver
