// The driver as this runtime sees it: a table of entry points fetched once, on the first runtime
// call of the process, the way any CUDA runtime fetches them:
//   dlopen("libcuda.so.1") -> dlsym("cuGetProcAddress_v2") -> cuGetProcAddress(name, version,
//   flags).
// So whatever stands between a program and its driver sees this runtime as it sees the real one.
//
// Called from any thread. Uses public entry points only, and never asks for a private export table.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <driver_types.h>

namespace lull::cudart {

// Which default stream an entry point means by stream 0: plain names mean the legacy stream, the
// `_ptsz` and `_ptds` twins the calling thread's own.
enum Twin : unsigned { kLegacy = 0, kPerThread = 1 };

struct Driver {
#define LULL_ENTRY(name, version) PFN_##name##_v##version name;
#define LULL_ENTRY_TWIN(name, version, twin_version, suffix) PFN_##name##_v##version name[2];
#include "tools/cudart/driver_entry_points.def"
  PFN_cuGetProcAddress_v12000 get_proc_address;
};

// The table. An entry point the driver does not have answers CUDA_ERROR_NOT_SUPPORTED.
const Driver& driver();

// cudaSuccess once the driver is loaded, recent enough and initialised; the same error each time
// when it is not.
cudaError_t driver_status();

}  // namespace lull::cudart
