// From the parameter structs of graph nodes to work. Called with State::mutex held.
#pragma once

#include "tools/simgpu/driver/graph.h"

namespace simgpu::driver {

std::expected<Work, CUresult> work_of(Call& call, const CUDA_KERNEL_NODE_PARAMS& p);
std::expected<Work, CUresult> work_of(Call& call, const CUDA_MEMCPY3D& p);
std::expected<Work, CUresult> work_of(Call& call, const CUDA_MEMSET_NODE_PARAMS& p);
std::expected<Work, CUresult> work_of(Call& call, const CUDA_HOST_NODE_PARAMS& p);
std::expected<Work, CUresult> work_of(Call& call, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p);
std::expected<Work, CUresult> work_of(Call& call, CUgraphNodeParams& p);
std::expected<Work, CUresult> child_work(Call& call, CUgraph graph);
// Kind: RecordWork or WaitWork.
template <class Kind>
std::expected<Work, CUresult> event_work(Call& call, CUevent handle);
CUDA_KERNEL_NODE_PARAMS wide(const CUDA_KERNEL_NODE_PARAMS_v1& p);
// Work of the kind that the node has; refused otherwise.
CUresult replace_work(GraphNode& node, std::expected<Work, CUresult> work);

}  // namespace simgpu::driver
