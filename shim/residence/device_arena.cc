#include "shim/residence/device_arena.h"

namespace lull::shim {

void visit_backings(bool (*)(Backing&, void*), void*) {}
CUdeviceptr begin_copying(Backing&) { return 0; }
void end_copying(Backing&) {}
CUresult release_backing(Backing&) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult restore_backing(Backing&) { return CUDA_ERROR_NOT_SUPPORTED; }
uint64_t swappable_bytes(uint32_t) { return 0; }
uint64_t fixed_bytes(uint32_t) { return 0; }
const char* fixed_memory_reason() { return ""; }

}  // namespace lull::shim
