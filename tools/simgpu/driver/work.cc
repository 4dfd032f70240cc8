#include "tools/simgpu/driver/work.h"

#include <algorithm>
#include <cstring>

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/graph.h"
#include "tools/simgpu/driver/memory_effects.h"
#include "tools/simgpu/driver/module.h"

namespace simgpu::driver {
namespace {

std::optional<uint64_t> spin_ns_of(const KernelWork& kernel) {
  const int index = kernel.function->kernel->spin_parameter;
  if (index < 0) return std::nullopt;
  const ImageParameter& parameter = kernel.function->kernel->parameters[index];
  if (parameter.offset_bytes + sizeof(uint64_t) > kernel.arguments.size()) return std::nullopt;
  uint64_t value;
  std::memcpy(&value, kernel.arguments.data() + parameter.offset_bytes, sizeof value);
  return value;
}

bool has_peer(State& state, const Context& context, int device) {
  return std::ranges::any_of(context.peers, [&](const auto& peer) {
    const auto other = state.contexts.find(peer.first);
    return other && other->device == device;
  });
}

// Addresses among a kernel's arguments that it may turn out not to be allowed to touch: reserved
// ones, and memory of other devices. An address right behind what it may touch is an end, not used.
std::vector<uint64_t> doubtful_pointers(State& state, const Context& context,
                                        const KernelWork& kernel) {
  std::vector<uint64_t> doubtful;
  if (!state.memory.has_reservations() && state.visible.size() == 1) return doubtful;
  for (const ImageParameter& parameter : kernel.function->kernel->parameters) {
    uint64_t value = 0;
    if (parameter.size_bytes != sizeof value ||
        parameter.offset_bytes + sizeof value > kernel.arguments.size()) {
      continue;
    }
    std::memcpy(&value, kernel.arguments.data() + parameter.offset_bytes, sizeof value);
    const auto range = state.memory.find(value);
    const bool foreign = range && range->kind == MemoryKind::kDevice &&
                         range->device != context.device && !range->pool;
    if (state.memory.reservation(value) || (foreign && !has_peer(state, context, range->device))) {
      doubtful.push_back(value);
    }
  }
  return doubtful;
}

struct Submitter {
  State& state;
  Context& context;
  StreamId lane;
  std::vector<OpPoint> waits;

  using Result = std::expected<OpPoint, CUresult>;
  Result op(const Op& op_, Action action = {}) {
    auto point = submit_op(state, lane, op_, std::move(waits), std::move(action));
    waits.clear();
    return point;
  }

  std::shared_ptr<const LoggedOperation> logged_bytes(const Op& moved) {
    if (state.log == nullptr) return nullptr;
    return state.log->bytes(moved.kind, moved.bytes);
  }

  Result operator()(const EmptyWork&) { return op({.kind = OpKind::kMarker}); }

  Result operator()(const KernelWork& kernel) {
    KernelLaunch launch;
    launch.name = kernel.function->kernel->name;
    std::copy_n(kernel.grid, 3, launch.grid);
    std::copy_n(kernel.block, 3, launch.block);
    launch.shared_bytes = kernel.shared_bytes + kernel.function->kernel->static_shared_bytes;
    launch.spin_ns = spin_ns_of(kernel);
    const KernelCost cost = kernel_cost(state.profile(context.device), launch);
    Op launched{
        .kind = OpKind::kKernel, .duration_ns = cost.duration_ns, .sm_demand = cost.sm_demand};
    Action action;
    if (state.log != nullptr) action.logged = state.log->kernel(launch, kernel.shared_bytes);
    auto doubtful = doubtful_pointers(state, context, kernel);
    if (!doubtful.empty()) {
      launched.unhurried = true;
      action.apply = [memory = &state.memory, device = context.device,
                      doubtful = std::move(doubtful)](const Completion&) {
        const bool allowed = std::ranges::all_of(doubtful, [&](uint64_t address) {
          return memory->is_usable(address, device) || memory->is_usable(address - 1, device);
        });
        return allowed ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
      };
    }
    return op(launched, std::move(action));
  }

  Result operator()(const CopyWork& copy) {
    Op copied{.kind = copy.direction, .bytes = copy.shape.bytes(), .pageable = copy.pageable};
    return op(copied, {.apply =
                           [memory = &state.memory, device = context.device, shape = copy.shape,
                            staged = copy.staged](const Completion&) {
                             return copy_bytes(*memory, device, shape,
                                               staged ? staged->data() : nullptr);
                           },
                       .logged = logged_bytes(copied)});
  }

  Result operator()(const SetWork& set) {
    Op filled{
        .kind = OpKind::kMemset,
        .bytes = set.description.width * set.description.height * set.description.elementSize};
    return op(
        filled,
        {.apply = [memory = &state.memory, device = context.device, description = set.description](
                      const Completion&) { return fill_bytes(*memory, device, description); },
         .logged = logged_bytes(filled)});
  }

  Result operator()(const HostWork& host) {
    return op({.kind = OpKind::kHostFunction}, {.call = [host](CUresult failure) {
                if (host.callback != nullptr) {
                  host.callback(host.stream, failure, host.user_data);
                } else if (failure == CUDA_SUCCESS) {
                  host.function(host.user_data);
                }
              }});
  }

  Result operator()(const RecordWork& record) {
    auto recording = std::make_shared<Recording>();
    recording->timed = record.event->timed();
    Action action;
    if (recording->timed) {
      action.apply = [recording](const Completion& completion) {
        recording->at_ns.store(completion.completed_ns, std::memory_order_relaxed);
        // Pairs with the acquire of those who ask for the event's time.
        recording->complete.store(true, std::memory_order_release);
        return CUDA_SUCCESS;
      };
    }
    // Whoever wants to know asks, and asking collects.
    auto point = op({.kind = OpKind::kEventRecord, .unhurried = true}, std::move(action));
    if (!point) return point;
    recording->point = *point;
    record.event->recording = std::move(recording);
    record.event->capture.reset();
    record.event->captured.clear();
    return point;
  }

  Result operator()(const WaitWork& wait) {
    if (wait.event->recording) waits.push_back(wait.event->recording->point);
    return op({.kind = OpKind::kMarker});
  }

  Result operator()(const ValueWork& values) {
    Result last = std::unexpected(CUDA_ERROR_INVALID_VALUE);
    for (const CUstreamBatchMemOpParams& operation : values.operations) {
      switch (operation.operation) {
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
          last = op({.kind = OpKind::kWriteValue},
                    {.apply = [memory = &state.memory, device = context.device,
                               operation](const Completion&) {
                      return write_value(*memory, device, operation);
                    }});
          break;
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
          last = op({.kind = OpKind::kWaitValue},
                    {.satisfied = [memory = &state.memory, device = context.device, operation] {
                      return value_reached(*memory, device, operation);
                    }});
          break;
        default:
          last = op({.kind = OpKind::kMarker});
          break;
      }
      if (!last) return last;
    }
    return last;
  }

  Result operator()(const ChildWork& child) {
    std::vector<StreamId> no_branches;
    return submit_graph(state, context, *child.graph, lane, std::move(waits), no_branches);
  }

  // The memory of an allocation node is there as long as its graph.
  Result operator()(const AllocWork&) { return op({.kind = OpKind::kMarker}); }
  Result operator()(const FreeWork&) { return op({.kind = OpKind::kMarker}); }
};

}  // namespace

void KernelWork::point_to_arguments() {
  argument_pointers.clear();
  if (!function) return;
  for (const ImageParameter& parameter : function->kernel->parameters) {
    argument_pointers.push_back(arguments.data() + parameter.offset_bytes);
  }
}

std::expected<OpPoint, CUresult> submit_op(State& state, StreamId lane, Op op,
                                           std::vector<OpPoint> waits, Action action) {
  // Waiting for what is before us on the same lane is what a lane does anyway.
  std::erase_if(waits,
                [&](const OpPoint& point) { return point.stream == lane || point.seq == 0; });
  size_t used = 0;
  for (; waits.size() - used > kMaxWaits; used += kMaxWaits) {
    Op gather{.kind = OpKind::kMarker};
    std::copy_n(waits.begin() + static_cast<ptrdiff_t>(used), kMaxWaits, gather.wait_for.begin());
    gather.wait_count = kMaxWaits;
    const auto seq = state.effects->submit(lane, gather);
    if (!seq) return std::unexpected(to_result(seq.error()));
  }
  op.wait_count = static_cast<uint32_t>(waits.size() - used);
  std::copy_n(waits.begin() + static_cast<ptrdiff_t>(used), op.wait_count, op.wait_for.begin());
  const auto seq = state.effects->submit(lane, op, std::move(action));
  if (!seq) return std::unexpected(to_result(seq.error()));
  return OpPoint{lane, *seq};
}

std::expected<OpPoint, CUresult> submit_work(State& state, Context& context, StreamId lane,
                                             const Work& work, std::vector<OpPoint> waits) {
  return std::visit(Submitter{state, context, lane, std::move(waits)}, work);
}

void tell_log_where(State& state, const Context& context, Stream& stream, uint64_t graph_launch) {
  if (state.log == nullptr) return;
  state.log->go_to({state.visible[context.device], context.id, stream.id, graph_launch},
                   &stream.logged);
}

std::vector<OpPoint> legacy_order(State& state, Stream& stream) {
  std::vector<OpPoint> waits;
  const auto context = state.context_of(stream);
  if (!context) return waits;
  if (stream.kind == StreamKind::kLegacy) {
    for (const auto& other : context->streams) {
      if (!other->is_blocking() || other->last <= other->seen_by_legacy) continue;
      other->seen_by_legacy = other->last;
      waits.push_back(other->point());
    }
  } else if (stream.is_blocking() && context->legacy->last > stream.legacy_seen) {
    stream.legacy_seen = context->legacy->last;
    waits.push_back(context->legacy->point());
  }
  return waits;
}

std::expected<OpPoint, CUresult> submit_to_stream(State& state, Stream& stream, const Work& work,
                                                  std::vector<OpPoint> waits) {
  const auto context = state.context_of(stream);
  if (!context) return std::unexpected(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  for (const OpPoint& point : legacy_order(state, stream)) waits.push_back(point);
  tell_log_where(state, *context, stream, /*graph_launch=*/0);
  auto point = submit_work(state, *context, stream.lane, work, std::move(waits));
  if (point) stream.last = std::max(stream.last, point->seq);
  return point;
}

CUresult enqueue(Call& call, const std::shared_ptr<Stream>& stream, Work work, GraphNode** node) {
  State& state = call.state;
  if (node != nullptr) *node = nullptr;
  if (stream->capture) {
    Capture& capture = *stream->capture;
    if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    GraphNode* added = add_node(state, *capture.graph, std::move(work), stream->frontier);
    stream->frontier = {added};
    if (node != nullptr) *node = added;
    return CUDA_SUCCESS;
  }
  if (const CUresult refused = refuse_legacy_in_capture(state, *stream, /*invalidates=*/true)) {
    return refused;
  }
  const auto point = submit_to_stream(state, *stream, work);
  return point ? CUDA_SUCCESS : point.error();
}

std::shared_ptr<Function> find_function(State& state, Context& context, CUfunction handle,
                                        CUresult& error) {
  error = CUDA_SUCCESS;
  if (auto function = state.functions.find(handle)) return function;
  const auto kernel = state.kernels.find(handle);
  const auto library = kernel ? kernel->library.lock() : nullptr;
  if (!library) {
    error = CUDA_ERROR_INVALID_HANDLE;
    return nullptr;
  }
  const auto module = instantiate_library(state, *library, context, error);
  if (!module) return nullptr;
  const auto function = module_function(state, *module, kernel->kernel->name);
  if (!function) {
    error = CUDA_ERROR_NOT_FOUND;
    return nullptr;
  }
  const auto attributes = kernel->attributes.find(context.device);
  if (attributes != kernel->attributes.end()) function->attributes = attributes->second;
  return function;
}

uint32_t blocks_per_sm_of(State& state, int device, const Function& function, uint32_t threads,
                          uint64_t dynamic_shared_bytes) {
  const uint64_t shared = dynamic_shared_bytes + function.kernel->static_shared_bytes;
  if (threads == 0 || threads > function.kernel->max_threads || shared > UINT32_MAX) return 0;
  constexpr uint32_t kRegisters = 32;
  return blocks_per_sm(state.profile(device), threads, static_cast<uint32_t>(shared), kRegisters);
}

std::expected<KernelWork, CUresult> make_kernel_work(State& state, Context& context,
                                                     CUfunction handle, const uint32_t grid[3],
                                                     const uint32_t block[3], uint32_t shared_bytes,
                                                     void** parameters, void** extra,
                                                     bool cooperative) {
  const auto wrong = std::unexpected(CUDA_ERROR_INVALID_VALUE);
  CUresult error;
  KernelWork work;
  work.function = find_function(state, context, handle, error);
  if (!work.function) return std::unexpected(error);
  work.handle = handle;
  work.cooperative = cooperative;
  const ImageKernel& kernel = *work.function->kernel;
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0 || threads > kernel.max_threads || block[0] > 1024 || block[1] > 1024 ||
      block[2] > 64) {
    return wrong;
  }
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffff || grid[1] > 65535 ||
      grid[2] > 65535) {
    return wrong;
  }
  const DeviceProfile& profile = state.profile(context.device);
  const uint64_t shared_limit =
      std::max<uint64_t>(profile.shared_bytes_per_block,
                         static_cast<uint64_t>(work.function->attributes.dynamic_shared_bytes) +
                             kernel.static_shared_bytes);
  if (uint64_t{shared_bytes} + kernel.static_shared_bytes > shared_limit) return wrong;
  if (cooperative) {
    const uint64_t resident =
        uint64_t{blocks_per_sm_of(state, context.device, *work.function,
                                  static_cast<uint32_t>(threads), shared_bytes)} *
        profile.sm_count;
    if (uint64_t{grid[0]} * grid[1] * grid[2] > resident) {
      return std::unexpected(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
  }
  std::copy_n(grid, 3, work.grid);
  std::copy_n(block, 3, work.block);
  work.shared_bytes = shared_bytes;
  work.arguments.resize(kernel.parameter_bytes);
  if (parameters != nullptr && extra != nullptr) return wrong;
  if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t size = 0;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = extra[i + 1];
      } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        if (extra[i + 1] == nullptr) return wrong;
        size = *static_cast<const size_t*>(extra[i + 1]);
      } else {
        return wrong;
      }
    }
    if (size < kernel.parameter_bytes || (buffer == nullptr && kernel.parameter_bytes > 0)) {
      return wrong;
    }
    if (kernel.parameter_bytes > 0) {
      std::memcpy(work.arguments.data(), buffer, kernel.parameter_bytes);
    }
  } else if (!kernel.parameters.empty()) {
    if (parameters == nullptr) return wrong;
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (parameters[i] == nullptr) return wrong;
      std::memcpy(work.arguments.data() + kernel.parameters[i].offset_bytes, parameters[i],
                  kernel.parameters[i].size_bytes);
    }
  }
  return work;
}

std::expected<CopyWork, CUresult> make_copy_work(State& state, const CUDA_MEMCPY3D& d) {
  const auto wrong = std::unexpected(CUDA_ERROR_INVALID_VALUE);
  CopyWork work;
  work.description = d;
  CopyShape& shape = work.shape;
  shape.width_bytes = d.WidthInBytes;
  shape.height = d.Height;
  shape.depth = d.Depth;
  if (shape.bytes() == 0) return work;
  bool on_device[2];
  bool pinned[2];
  const auto in_array = [&](int index, CUarray handle, size_t x, size_t y, size_t z, uint64_t& base,
                            uint64_t& pitch_bytes, uint64_t& slice_bytes) {
    const auto array = state.arrays.find(handle);
    if (!array) return false;
    pitch_bytes = array->row_bytes();
    slice_bytes = pitch_bytes * array->rows();
    const uint64_t element = element_bytes(array->description);
    const auto within = [](size_t from, size_t count, uint64_t all) {
      return from <= all && count <= all - from;
    };
    if (x % element != 0 || d.WidthInBytes % element != 0 ||
        !within(x, d.WidthInBytes, pitch_bytes) || !within(y, d.Height, array->rows()) ||
        !within(z, d.Depth, array->slices())) {
      return false;
    }
    base = array->address + z * slice_bytes + y * pitch_bytes + x;
    on_device[index] = true;
    pinned[index] = false;
    return true;
  };
  const auto side = [&](int index, CUmemorytype type, const void* host, CUdeviceptr device,
                        CUarray array, size_t x, size_t y, size_t z, size_t pitch, size_t height,
                        uint64_t& base, uint64_t& pitch_bytes, uint64_t& slice_bytes) {
    if (type == CU_MEMORYTYPE_ARRAY) {
      return in_array(index, array, x, y, z, base, pitch_bytes, slice_bytes);
    }
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE &&
        type != CU_MEMORYTYPE_UNIFIED) {
      return false;
    }
    if (pitch == 0) pitch = d.WidthInBytes + x;
    if (height == 0) height = d.Height + y;
    if (pitch < d.WidthInBytes + x || (d.Depth > 1 && height < d.Height + y)) return false;
    base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
    if (base == 0) return false;
    pitch_bytes = pitch;
    slice_bytes = pitch * height;
    base += z * slice_bytes + y * pitch + x;
    const auto range = state.memory.find(base);
    if (!range && state.memory.reservation(base)) return false;
    on_device[index] = range && range->on_device();
    pinned[index] = range && !range->on_device();
    if (type == CU_MEMORYTYPE_DEVICE && !range) return false;
    if (!range) return true;
    const uint64_t bytes =
        extent_bytes(d.WidthInBytes, d.Height, pitch_bytes, d.Depth, slice_bytes);
    // Past the end of a registered range plain host memory may follow; device memory ends there.
    return !range->on_device() || state.memory.reaches(base, bytes);
  };
  if (!side(0, d.srcMemoryType, d.srcHost, d.srcDevice, d.srcArray, d.srcXInBytes, d.srcY, d.srcZ,
            d.srcPitch, d.srcHeight, shape.source, shape.source_pitch_bytes,
            shape.source_slice_bytes) ||
      !side(1, d.dstMemoryType, d.dstHost, d.dstDevice, d.dstArray, d.dstXInBytes, d.dstY, d.dstZ,
            d.dstPitch, d.dstHeight, shape.target, shape.target_pitch_bytes,
            shape.target_slice_bytes)) {
    return wrong;
  }
  // Whole slices or rows in one piece are one row.
  if (shape.width_bytes == shape.source_pitch_bytes &&
      shape.width_bytes == shape.target_pitch_bytes &&
      (shape.depth == 1 || (shape.source_slice_bytes == shape.width_bytes * shape.height &&
                            shape.target_slice_bytes == shape.width_bytes * shape.height))) {
    shape.width_bytes = shape.bytes();
    shape.height = shape.depth = 1;
  }
  if (on_device[0] && on_device[1]) {
    work.direction = OpKind::kCopyD2D;
  } else if (on_device[1]) {
    work.direction = OpKind::kCopyH2D;
    work.pageable = !pinned[0];
  } else if (on_device[0]) {
    work.direction = OpKind::kCopyD2H;
    work.pageable = !pinned[1];
  } else {
    work.direction = OpKind::kMarker;
    work.pageable = !pinned[0] || !pinned[1];
  }
  return work;
}

std::expected<CopyWork, CUresult> make_linear_copy(State& state, uint64_t target, uint64_t source,
                                                   uint64_t bytes, CUmemorytype target_type,
                                                   CUmemorytype source_type) {
  CUDA_MEMCPY3D description = {};
  description.srcMemoryType = source_type;
  description.srcHost = reinterpret_cast<const void*>(source);
  description.srcDevice = source;
  description.srcPitch = bytes;
  description.dstMemoryType = target_type;
  description.dstHost = reinterpret_cast<void*>(target);
  description.dstDevice = target;
  description.dstPitch = bytes;
  description.WidthInBytes = bytes;
  description.Height = 1;
  description.Depth = 1;
  return make_copy_work(state, description);
}

std::expected<SetWork, CUresult> make_set_work(State& state, const CUDA_MEMSET_NODE_PARAMS& d) {
  const auto wrong = std::unexpected(CUDA_ERROR_INVALID_VALUE);
  if (d.elementSize != 1 && d.elementSize != 2 && d.elementSize != 4) return wrong;
  SetWork work{d};
  if (d.height <= 1) work.description.pitch = d.width * d.elementSize;
  if (d.width == 0 || d.height == 0) return work;
  const auto range = state.memory.find(d.dst);
  if (!range || d.dst % d.elementSize != 0) return wrong;
  if (d.height > 1 && d.pitch < d.width * d.elementSize) return wrong;
  const uint64_t bytes =
      extent_bytes(uint64_t{d.width} * d.elementSize, d.height, work.description.pitch, 1, 0);
  if (!state.memory.reaches(d.dst, bytes)) return wrong;
  return work;
}

std::expected<ValueWork, CUresult> make_value_work(State& state, unsigned count,
                                                   const CUstreamBatchMemOpParams* operations,
                                                   unsigned flags) {
  const auto wrong = std::unexpected(CUDA_ERROR_INVALID_VALUE);
  constexpr unsigned kMaxOperations = 256;
  if (count == 0 || count > kMaxOperations || operations == nullptr || flags != 0) return wrong;
  ValueWork work{{operations, operations + count}, flags};
  for (const CUstreamBatchMemOpParams& operation : work.operations) {
    uint64_t size = 0;
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        size = 4;
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        size = 8;
        break;
      case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      case CU_STREAM_MEM_OP_BARRIER:
        continue;
      default:
        return wrong;
    }
    const uint64_t address = operation.writeValue.address;
    const auto range = state.memory.find(address);
    if (!range || address % size != 0 || !state.memory.reaches(address, size)) {
      return wrong;
    }
  }
  return work;
}

}  // namespace simgpu::driver
