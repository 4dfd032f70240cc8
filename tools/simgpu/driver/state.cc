#include "tools/simgpu/driver/state.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "tools/simgpu/driver/array.h"
#include "tools/simgpu/driver/checkpoint.h"
#include "tools/simgpu/driver/graph.h"

namespace simgpu::driver {
namespace {

// Far from any address and from the handles 1 and 2, which mean streams.
constexpr uint64_t kFirstHandle = 0x0000'6c75'0000'0000;

std::atomic<bool> g_forked{false};
std::atomic<bool> g_initialised{false};
std::atomic<uint64_t> g_next_thread{1};
thread_local ThreadState t_thread;
pthread_key_t g_thread_key;
pthread_once_t g_thread_key_once = PTHREAD_ONCE_INIT;

void thread_ended(void* value) {
  if (is_forked()) return;
  const uint64_t thread = reinterpret_cast<uint64_t>(value);
  State& state = State::get();
  const std::lock_guard lock(state.mutex);
  for (const auto& [handle, context] : state.contexts) {
    const auto found = context->per_thread.find(thread);
    if (found == context->per_thread.end()) continue;
    const std::shared_ptr<Stream> stream = found->second;
    context->per_thread.erase(found);
    state.retire_stream(stream);
  }
}

// The lanes of streams that the program destroyed go when their work is done: the device counts a
// lane that is gone as complete, which an event recorded in it must not be.
void release_retired(State& state, Context& context) {
  std::erase_if(context.retired, [&](const std::shared_ptr<Stream>& stream) {
    if (!state.device->is_idle(stream->lane)) return false;
    state.device->destroy_stream(stream->lane);
    std::erase(context.streams, stream);
    return true;
  });
}

}  // namespace

bool is_forked() { return g_forked.load(std::memory_order_relaxed); }

State& State::get() {
  static State* const state = [] {
    auto* made = new State;
    made->next_handle = kFirstHandle;
    pthread_atfork(nullptr, nullptr, [] {
      if (g_initialised.load(std::memory_order_relaxed)) {
        g_forked.store(true, std::memory_order_relaxed);
      }
    });
    return made;
  }();
  return *state;
}

ThreadState& thread_state() {
  if (t_thread.id == 0) {
    pthread_once(&g_thread_key_once, [] { pthread_key_create(&g_thread_key, thread_ended); });
    t_thread.id = g_next_thread.fetch_add(1, std::memory_order_relaxed);
    t_thread.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    pthread_setspecific(g_thread_key, reinterpret_cast<void*>(t_thread.id));
  }
  return t_thread;
}

CUresult to_result(Status status) {
  switch (status) {
    case Status::kOk:
      return CUDA_SUCCESS;
    case Status::kOutOfMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Status::kTableFull:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Status::kStale:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case Status::kRingFull:
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    case Status::kForked:
      return CUDA_ERROR_NOT_INITIALIZED;
    case Status::kBusy:
      return CUDA_ERROR_NOT_READY;
  }
  return CUDA_ERROR_UNKNOWN;
}

void State::serve() {
  std::call_once(serving, [&] { effects->start([] { return attend_requests(); }); });
}

std::expected<std::shared_ptr<Context>, CUresult> State::create_context(int ordinal,
                                                                        unsigned flags) {
  const auto engine = device->create_context(visible[ordinal]);
  if (!engine) return std::unexpected(to_result(engine.error()));
  auto context = std::make_shared<Context>();
  context->handle = new_handle();
  context->id = next_id++;
  context->device = ordinal;
  context->engine = *engine;
  context->flags = flags;
  const auto legacy = create_stream(*context, StreamKind::kLegacy, 0, 0);
  if (!legacy) {
    device->destroy_context(*engine);
    return std::unexpected(legacy.error());
  }
  context->legacy = *legacy;
  contexts.add(context);
  serve();
  return context;
}

std::expected<std::shared_ptr<Stream>, CUresult> State::create_stream(Context& context,
                                                                      StreamKind kind,
                                                                      unsigned flags,
                                                                      int priority) {
  release_retired(*this, context);
  const auto lane = device->create_stream(context.engine);
  if (!lane) return std::unexpected(to_result(lane.error()));
  auto stream = std::make_shared<Stream>();
  stream->handle = new_handle();
  stream->id = next_id++;
  stream->kind = kind;
  // The legacy stream is made while its context is being built.
  stream->context = context.weak_from_this();
  stream->lane = *lane;
  stream->flags = flags;
  stream->priority = priority;
  if (kind != StreamKind::kLegacy) context.streams.push_back(stream);
  return stream;
}

void State::retire_stream(const std::shared_ptr<Stream>& stream) {
  streams.remove(stream->handle);
  if (const auto context = stream->context.lock()) {
    context->retired.push_back(stream);
    release_retired(*this, *context);
  }
}

void State::destroy_context(std::unique_lock<std::mutex>& lock,
                            const std::shared_ptr<Context>& context) {
  contexts.remove(context->handle);  // nobody submits any more
  lock.unlock();
  effects->wait(device->unfinished(context->engine));
  lock.lock();
  unlocked.wait(lock, [&] { return !locked; });
  effects->forget(context->engine);
  device->destroy_context(context->engine);
  const auto ours = [&](const auto& object) { return object.context.lock() == context; };
  streams.remove_if(ours);
  events.remove_if(ours);
  execs.remove_if(ours);
  arrays.remove_if(ours);
  mipmaps.remove_if(ours);
  functions.remove_if([&](const Function& function) {
    const auto module = function.module.lock();
    return module && ours(*module);
  });
  modules.remove_if(ours);
  for (const auto& [handle, library] : libraries) library->modules.erase(context->handle);
  for (const MemoryRange& range : memory.remove_context(context->handle)) {
    const auto pool = pools.find(range.pool);
    if (pool) pool->used_bytes.fetch_sub(range.reserved_bytes, std::memory_order_relaxed);
  }
}

CUresult refuse_call() {
  if (is_forked() || !g_initialised.load(std::memory_order_relaxed)) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (Effects::in_host_function()) return CUDA_ERROR_NOT_PERMITTED;
  return CUDA_SUCCESS;
}

void mark_initialised() { g_initialised.store(true, std::memory_order_relaxed); }

Call::Call(unsigned needs) : state(State::get()) {
  error = refuse_call();
  if (error != CUDA_SUCCESS) return;
  lock = std::unique_lock(state.mutex);
  state.unlocked.wait(lock, [&] { return !state.locked; });
  ThreadState& thread = thread_state();
  if (thread.depth > 0) context = state.contexts.find(thread.context[thread.depth - 1]);
  if (needs & kContext && !context) {
    error = thread.depth == 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return;
  }
  if (needs != kNothing && context) error = state.effects->failure(context->engine);
  if (error == CUDA_SUCCESS && needs & kUnsafeInCapture) error = refuse_unsafe_call(state);
}

std::expected<std::shared_ptr<Stream>, CUresult> Call::stream(CUstream handle) {
  auto found = find_stream(handle);
  if (!found) return found;
  const CUresult failed = state.effects->failure((*found)->lane.context);
  if (failed != CUDA_SUCCESS) return std::unexpected(failed);
  return found;
}

std::expected<std::shared_ptr<Stream>, CUresult> Call::find_stream(CUstream handle) {
  const auto absent = [&] {
    return std::unexpected(thread_state().depth == 0 ? CUDA_ERROR_INVALID_CONTEXT
                                                     : CUDA_ERROR_CONTEXT_IS_DESTROYED);
  };
  const bool per_thread =
      handle == CU_STREAM_PER_THREAD || (handle == nullptr && PerThreadDefaultStream::active());
  if (per_thread) {
    if (!context) return absent();
    std::shared_ptr<Stream>& stream = context->per_thread[thread_state().id];
    if (!stream) {
      auto made = state.create_stream(*context, StreamKind::kPerThread, 0, 0);
      if (!made) {
        context->per_thread.erase(thread_state().id);
        return std::unexpected(made.error());
      }
      stream = *made;
    }
    return stream;
  }
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    if (!context) return absent();
    return context->legacy;
  }
  auto stream = state.streams.find(handle);
  if (!stream) return std::unexpected(CUDA_ERROR_INVALID_HANDLE);
  return stream;
}

CUresult Call::wait(OpPoint point) { return wait(std::vector{point}); }

CUresult Call::wait(const std::vector<OpPoint>& points) {
  lock.unlock();
  state.effects->wait(points);
  lock.lock();
  state.unlocked.wait(lock, [&] { return !state.locked; });
  for (const OpPoint& point : points) {
    const CUresult failed = state.effects->failure(point.stream.context);
    if (failed != CUDA_SUCCESS) return failed;
  }
  return CUDA_SUCCESS;
}

void Call::spend(ModelNs host_ns) {
  const ModelNs until = state.device->now_ns() + host_ns;
  lock.unlock();
  state.device->pass_until(until);
}

}  // namespace simgpu::driver
