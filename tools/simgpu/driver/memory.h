// Taking and giving back device memory: counted by the device, backed by this process.
// Called with State::mutex held.
#pragma once

#include "tools/simgpu/driver/state.h"

namespace simgpu::driver {

std::expected<uint64_t, CUresult> allocate_device(State& state, Context& context,
                                                  uint64_t size_bytes, MemoryKind kind,
                                                  const std::shared_ptr<Pool>& pool = nullptr,
                                                  bool below_4g = false);
// It is an allocation node's from now on.
void becomes_graph_memory(State& state, uint64_t address);
// What happens when the stream of a cuMemFreeAsync gets there; takes no lock of the API layer.
void release_device(State& state, uint64_t address, ContextId charged,
                    const std::shared_ptr<Pool>& pool);

}  // namespace simgpu::driver
