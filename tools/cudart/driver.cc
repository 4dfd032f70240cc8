#include "tools/cudart/driver.h"

#include <dlfcn.h>

#include <mutex>
#include <type_traits>

namespace lull::cudart {
namespace {

constexpr int kOldestDriver = 12000;  // cuLibrary* is how kernels are loaded

// Stands in for whatever the driver does not export; the C calling convention lets it ignore the
// arguments.
CUresult missing_entry() { return CUDA_ERROR_NOT_SUPPORTED; }

struct Loaded {
  Driver table{};
  cudaError_t status = cudaErrorInsufficientDriver;
};

template <typename Function>
void fetch(const Driver& table, Function& slot, const char* name, int version, cuuint64_t flags) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = table.get_proc_address
                              ? table.get_proc_address(name, &address, version, flags, &found)
                              : CUDA_ERROR_NOT_FOUND;
  if (result != CUDA_SUCCESS || address == nullptr) {
    address = reinterpret_cast<void*>(&missing_entry);
  }
  slot = reinterpret_cast<Function>(address);
}

void load(Loaded& loaded) {
  Driver& table = loaded.table;
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library != nullptr) {
    table.get_proc_address =
        reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  }
  if (table.get_proc_address != nullptr) {
    PFN_cuGetProcAddress_v12000 unused = nullptr;
    fetch(table, unused, "", 0, CU_GET_PROC_ADDRESS_DEFAULT);
    fetch(table, unused, "cuGetProcAddress", 11030, CU_GET_PROC_ADDRESS_DEFAULT);
    fetch(table, unused, "cuGetProcAddress", 12000, CU_GET_PROC_ADDRESS_DEFAULT);
  }
#define LULL_ENTRY(name, version) \
  fetch(table, table.name, #name, version, CU_GET_PROC_ADDRESS_DEFAULT);
#define LULL_ENTRY_TWIN(name, version, twin_version, suffix)                                       \
  static_assert(std::is_same_v<PFN_##name##_v##version, PFN_##name##_v##twin_version##_##suffix>); \
  fetch(table, table.name[kLegacy], #name, version, CU_GET_PROC_ADDRESS_DEFAULT);                  \
  fetch(table, table.name[kPerThread], #name, twin_version,                                        \
        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
#include "tools/cudart/driver_entry_points.def"

  int version = 0;
  if (table.get_proc_address == nullptr || table.cuDriverGetVersion(&version) != CUDA_SUCCESS ||
      version < kOldestDriver) {
    return;
  }
  loaded.status = static_cast<cudaError_t>(table.cuInit(0));
}

// Never destroyed: programs call the runtime from their exit handlers.
const Loaded& loaded_driver() {
  static std::once_flag once;
  alignas(Loaded) static unsigned char storage[sizeof(Loaded)];
  std::call_once(once, [] { load(*new (storage) Loaded); });
  return *reinterpret_cast<const Loaded*>(storage);
}

}  // namespace

const Driver& driver() { return loaded_driver().table; }
cudaError_t driver_status() { return loaded_driver().status; }

}  // namespace lull::cudart
