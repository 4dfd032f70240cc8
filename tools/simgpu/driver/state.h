// What the simulated driver knows about this process: devices, contexts, and every object behind a
// handle. One State per process, made on first use and never destroyed, so that threads which
// still run at exit find it. All of it is guarded by `State::mutex`, which `Call` holds; waiting
// happens with the mutex released.
//
// Handles are numbers, never addresses: each names an entry of a table and is not used twice, so a
// destroyed or invented handle is refused instead of followed.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/device/device.h"
#include "tools/simgpu/driver/effects.h"
#include "tools/simgpu/driver/event_log.h"
#include "tools/simgpu/driver/export.h"
#include "tools/simgpu/driver/image.h"
#include "tools/simgpu/driver/memory_map.h"
#include "tools/simgpu/driver/physical.h"

namespace simgpu::driver {

struct Capture;
struct Array;
struct Graph;
struct GraphNode;
struct GraphExec;
struct Context;
struct MipmappedArray;
struct Module;
struct Library;

enum class StreamKind { kCreated, kLegacy, kPerThread };

struct Stream {
  uint64_t handle = 0;
  uint64_t id = 0;
  StreamKind kind = StreamKind::kCreated;
  std::weak_ptr<Context> context;
  StreamId lane;
  unsigned flags = 0;
  int priority = 0;
  Seq last = 0;            // newest op of the lane
  uint64_t logged = 0;     // operations told to the event log
  Seq seen_by_legacy = 0;  // the newest op of ours that the legacy stream waited for
  Seq legacy_seen = 0;     // the newest op of the legacy stream that we waited for
  CUsynchronizationPolicy sync_policy = CU_SYNC_POLICY_AUTO;
  std::map<int, CUstreamAttrValue> attributes;
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> frontier;  // of the capture: what the next captured node depends on
  bool is_blocking() const {
    return kind != StreamKind::kLegacy && !(flags & CU_STREAM_NON_BLOCKING);
  }
  OpPoint point() const { return {lane, last}; }
};

// One recording of an event; the event points to its newest.
struct Recording {
  OpPoint point;
  bool timed = false;
  std::atomic<bool> complete{false};
  std::atomic<ModelNs> at_ns{0};
};

struct Event {
  uint64_t handle = 0;
  std::weak_ptr<Context> context;
  unsigned flags = 0;
  std::shared_ptr<Recording> recording;  // none: never recorded, which counts as complete
  // Recorded in a capture: what a waiting stream joins at.
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> captured;
  bool timed() const { return !(flags & CU_EVENT_DISABLE_TIMING); }
};

struct KernelAttributes {
  int dynamic_shared_bytes = 0;  // opted into
  int carveout = -1;
  bool non_portable_cluster = false;
};

struct Function {
  uint64_t handle = 0;
  std::weak_ptr<Module> module;
  std::shared_ptr<const Image> image;
  const ImageKernel* kernel = nullptr;
  KernelAttributes attributes;
  // Of the launch calls of CUDA 3: shape and arguments are kept by the function.
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<uint8_t> arguments;
};

struct ModuleGlobal {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
};

struct Module {
  uint64_t handle = 0;
  std::weak_ptr<Context> context;
  std::shared_ptr<const Image> image;
  std::map<std::string, std::shared_ptr<Function>, std::less<>> functions;
  std::map<std::string, ModuleGlobal, std::less<>> globals;
  uint64_t library = 0;  // handle of the library it is an instance of; 0: loaded by itself
};

struct Kernel {
  uint64_t handle = 0;
  std::weak_ptr<Library> library;
  std::shared_ptr<const Image> image;
  const ImageKernel* kernel = nullptr;
  std::map<int, KernelAttributes> attributes;  // by device
};

struct Library {
  uint64_t handle = 0;
  std::shared_ptr<const Image> image;
  std::map<std::string, std::shared_ptr<Kernel>, std::less<>> kernels;
  std::map<uint64_t, std::shared_ptr<Module>> modules;  // by context
};

struct Pool {
  uint64_t handle = 0;
  int device = 0;
  uint64_t release_threshold = 0;
  int reuse[3] = {1, 1, 1};
  std::atomic<uint64_t> used_bytes{0};
  std::atomic<uint64_t> used_high_bytes{0};
  std::map<int, CUmemAccess_flags> access;
  uint64_t max_bytes = 0;
};

struct Context : std::enable_shared_from_this<Context> {
  uint64_t handle = 0;
  uint64_t id = 0;
  int device = 0;  // as the program counts
  ContextId engine;
  bool primary = false;
  unsigned flags = 0;
  unsigned api_version = 3020;
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  std::map<CUlimit, size_t> limits;
  int attach_count = 1;
  std::shared_ptr<Stream> legacy;
  std::map<uint64_t, std::shared_ptr<Stream>> per_thread;  // by thread id
  std::vector<std::shared_ptr<Stream>> streams;  // all but the legacy one, retired ones too
  std::vector<std::shared_ptr<Stream>> retired;  // destroyed by the program, not yet idle
  std::map<uint64_t, uint64_t> peers;            // contexts whose memory we may use
};

template <class T>
class Table {
 public:
  void add(const std::shared_ptr<T>& object) { objects_[object->handle] = object; }
  template <class Handle>
  std::shared_ptr<T> find(Handle handle) const {
    return find(reinterpret_cast<uint64_t>(handle));
  }
  std::shared_ptr<T> find(uint64_t handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  void remove(uint64_t handle) { objects_.erase(handle); }
  template <class Predicate>
  void remove_if(Predicate predicate) {
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
};

// Trivial, so that calls made while the thread ends still find it.
struct ThreadState {
  static constexpr int kMaxDepth = 64;
  uint64_t context[kMaxDepth];
  int depth;
  uint64_t id;
  CUstreamCaptureMode capture_mode;
};

// What a CUmemGenericAllocationHandle names.
struct MemoryHandle {
  std::shared_ptr<Physical> physical;
  int references = 0;  // 0: released, still named by mappings
  int mappings = 0;
};

struct PrimaryContext {
  std::shared_ptr<Context> context;
  int references = 0;
  unsigned flags = 0;
};

struct State {
  static State& get();

  std::mutex mutex;
  bool initialised = false;
  Device* device = nullptr;
  Effects* effects = nullptr;
  EventLog* log = nullptr;  // none: nobody asked for one
  uint64_t graph_launches = 0;
  std::once_flag serving;
  std::vector<uint32_t> visible;  // engine's device index of each of the program's devices
  // The same as it was when the program started: bus ids stay, however the process is moved.
  std::vector<uint32_t> visible_at_start;
  // For a checkpoint: calls wait for `unlocked`. Cleared with the mutex held only.
  std::atomic<bool> locked{false};
  std::condition_variable unlocked;
  uint64_t next_handle = 0;
  uint64_t next_id = 1;

  std::vector<PrimaryContext> primaries;
  Table<Context> contexts;
  Table<Stream> streams;
  Table<Event> events;
  Table<Module> modules;
  Table<Function> functions;
  Table<Library> libraries;
  Table<Kernel> kernels;
  Table<Pool> pools;
  std::vector<std::shared_ptr<Pool>> default_pool;  // by device
  std::vector<std::shared_ptr<Pool>> current_pool;
  std::map<int, uint64_t> graph_high_bytes;  // by device: most that graphs held since it was reset
  Table<Array> arrays;
  Table<MipmappedArray> mipmaps;
  Table<Graph> graphs;
  Table<GraphNode> nodes;
  Table<GraphExec> execs;
  std::vector<std::weak_ptr<Capture>> captures;  // open ones
  MemoryMap memory;
  std::map<uint64_t, MemoryHandle> memory_handles;

  uint64_t new_handle() { return next_handle += 64; }
  const DeviceProfile& profile(int ordinal) const { return device->profile(visible[ordinal]); }
  bool is_device(int ordinal) const {
    return ordinal >= 0 && static_cast<size_t>(ordinal) < visible.size();
  }
  // Starts the service thread unless it runs.
  void serve();
  std::expected<std::shared_ptr<Context>, CUresult> create_context(int ordinal, unsigned flags);
  // Waits for its work with the mutex released.
  void destroy_context(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Context>& context);
  std::expected<std::shared_ptr<Stream>, CUresult> create_stream(Context& context, StreamKind kind,
                                                                 unsigned flags, int priority);
  void retire_stream(const std::shared_ptr<Stream>& stream);
  std::shared_ptr<Context> context_of(const Stream& stream) { return stream.context.lock(); }

 private:
  State() = default;
};

ThreadState& thread_state();

template <class Handle>
Handle to_handle(uint64_t handle) {
  return reinterpret_cast<Handle>(handle);
}

CUresult to_result(Status status);

// One call of the program into the driver: refuses it before cuInit, in a fork child and in a host
// function, waits while the process is locked for a checkpoint, takes the lock, finds the current
// context. A context that has failed refuses every call that needs one.
class Call {
 public:
  enum Needs : unsigned {
    kNothing = 0,          // initialised only
    kContext = 1,          // a current context that is alive
    kUnsafeInCapture = 2,  // refused while a capture forbids calls of that kind
    kUnfailed = 4,         // works without a context, but not with one that has failed
  };
  explicit Call(unsigned needs = kNothing);
  explicit operator bool() const { return error == CUDA_SUCCESS; }

  // 0 and the two special handles included. A stream of another context than the current is fine.
  std::expected<std::shared_ptr<Stream>, CUresult> stream(CUstream handle);
  // Waits with the lock released. Returns what the points' context failed with.
  CUresult wait(OpPoint point);
  CUresult wait(const std::vector<OpPoint>& points);
  // Keeps the caller for as long as the device's driver would, with the lock released for good.
  void spend(ModelNs host_ns);

  State& state;
  std::unique_lock<std::mutex> lock;
  std::shared_ptr<Context> context;  // with kContext
  CUresult error = CUDA_SUCCESS;

 private:
  std::expected<std::shared_ptr<Stream>, CUresult> find_stream(CUstream handle);
};

// The refusal of a call that may be made without a lock or a context; CUDA_SUCCESS: go on.
CUresult refuse_call();
bool is_forked();
// By cuInit, once the device is open: calls are let in from now on.
void mark_initialised();

}  // namespace simgpu::driver
