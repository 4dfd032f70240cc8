// One piece of work for the device, as a stream call or a graph node describes it, and its way to
// the device. Each stream call makes a Work and hands it to `enqueue`: it becomes a graph node
// while the stream captures, ops on the stream's lane otherwise. Called with State::mutex held.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "tools/simgpu/driver/state.h"

namespace simgpu::driver {

struct KernelWork {
  CUfunction handle = nullptr;  // as the program gave it: a CUfunction or a CUkernel
  std::shared_ptr<Function> function;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  bool cooperative = false;
  std::vector<uint8_t> arguments;
  std::vector<void*> argument_pointers;  // into `arguments`, for those who ask a node
  std::map<int, CUlaunchAttributeValue> attributes;
  void point_to_arguments();
};

// Rows and slices of bytes, from here to there. Linear copies are one row.
struct CopyShape {
  uint64_t source = 0;
  uint64_t target = 0;
  uint64_t width_bytes = 0;
  uint64_t height = 1;
  uint64_t depth = 1;
  uint64_t source_pitch_bytes = 0;
  uint64_t target_pitch_bytes = 0;
  uint64_t source_slice_bytes = 0;
  uint64_t target_slice_bytes = 0;
  uint64_t bytes() const { return width_bytes * height * depth; }
};

struct CopyWork {
  CopyShape shape;
  OpKind direction = OpKind::kCopyD2D;
  bool pageable = false;
  CUDA_MEMCPY3D description = {};                // for those who ask a node
  std::shared_ptr<std::vector<uint8_t>> staged;  // the source, where it was read at the call
};

struct SetWork {
  CUDA_MEMSET_NODE_PARAMS description = {};
};

struct HostWork {
  CUhostFn function = nullptr;
  void* user_data = nullptr;
  CUstreamCallback callback = nullptr;  // instead of `function`
  CUstream stream = nullptr;            // what the callback is told
};

struct RecordWork {
  std::shared_ptr<Event> event;
};
struct WaitWork {
  std::shared_ptr<Event> event;
};
struct ValueWork {
  std::vector<CUstreamBatchMemOpParams> operations;
  unsigned flags = 0;
};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};
struct AllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS description = {};
};
struct FreeWork {
  uint64_t address = 0;
};
struct EmptyWork {};

using Work = std::variant<EmptyWork, KernelWork, CopyWork, SetWork, HostWork, RecordWork, WaitWork,
                          ValueWork, ChildWork, AllocWork, FreeWork>;

// Captures or submits. `node`, if asked for, is the node it became while capturing.
CUresult enqueue(Call& call, const std::shared_ptr<Stream>& stream, Work work,
                 GraphNode** node = nullptr);

// Submits to a lane after the points given; returns the point of its last op.
std::expected<OpPoint, CUresult> submit_work(State& state, Context& context, StreamId lane,
                                             const Work& work, std::vector<OpPoint> waits);
// What a stream's next op has to wait for because of the legacy stream's rules; notes that it will.
std::vector<OpPoint> legacy_order(State& state, Stream& stream);
// The event log's operations from here on were called for in this stream. 0: not by a graph.
void tell_log_where(State& state, const Context& context, Stream& stream, uint64_t graph_launch);
std::expected<OpPoint, CUresult> submit_to_stream(State& state, Stream& stream, const Work& work,
                                                  std::vector<OpPoint> waits = {});
std::expected<OpPoint, CUresult> submit_op(State& state, StreamId lane, Op op,
                                           std::vector<OpPoint> waits, Action action = {});

// From the program's arguments to work; the errors are the driver's.
std::expected<KernelWork, CUresult> make_kernel_work(State& state, Context& context,
                                                     CUfunction handle, const uint32_t grid[3],
                                                     const uint32_t block[3], uint32_t shared_bytes,
                                                     void** parameters, void** extra,
                                                     bool cooperative = false);
std::expected<CopyWork, CUresult> make_copy_work(State& state, const CUDA_MEMCPY3D& description);
std::expected<CopyWork, CUresult> make_linear_copy(State& state, uint64_t target, uint64_t source,
                                                   uint64_t bytes, CUmemorytype target_type,
                                                   CUmemorytype source_type);
std::expected<SetWork, CUresult> make_set_work(State& state,
                                               const CUDA_MEMSET_NODE_PARAMS& description);
std::expected<ValueWork, CUresult> make_value_work(State& state, unsigned count,
                                                   const CUstreamBatchMemOpParams* operations,
                                                   unsigned flags);
// A CUfunction, or a CUkernel as the context sees it.
std::shared_ptr<Function> find_function(State& state, Context& context, CUfunction handle,
                                        CUresult& error);
uint32_t blocks_per_sm_of(State& state, int device, const Function& function, uint32_t threads,
                          uint64_t dynamic_shared_bytes);

}  // namespace simgpu::driver
